#!/bin/bash
# 2 x MI300X of pool m: apptainer rocm/pytorch:1, isolation slurm.  Written by `ridgeline ci pools`.
set -uo pipefail
pool=m gpus=2 root=
workspace=$PWD
image=rocm/pytorch:1
options=(--ipc=host)
mounts=()
packages=()
venv=/tmp/ridgeline-venv.$$.$RANDOM
setup='make --silent setup VENV="$VENV"' preflight=
command=(python -m ci run --out 'a b.jsonl')

say() { printf 'ridgeline: pool %s: %s\n' "$pool" "$*" >&2; }

# 3 is an error of the infrastructure: nothing was measured.
refuse() {
  said=$*
  say "$said"
  exit 3
}

# NAME=VALUE of the variables that may enter, in `environment`.
allow() {
  local name
  environment=(RIDGELINE_POOL="$pool" RIDGELINE_GPUS="$gpus" RIDGELINE_NODE="${SLURMD_NODENAME:-$HOSTNAME}")
  for name in $(compgen -e); do
    case $name in
      RIDGELINE_POOL | RIDGELINE_GPUS | RIDGELINE_NODE) ;;
      *TOKEN* | *SECRET* | *PASSW* | *CREDENTIAL* | *PRIVATE* | *JWT* | *AUTH* | *_KEY*) ;;  # no secret enters
      RIDGELINE_* | LANG | LC_ALL | TZ | USER | LOGNAME | ROCR_VISIBLE_DEVICES | HIP_VISIBLE_DEVICES | CUDA_VISIBLE_DEVICES | GPU_DEVICE_ORDINAL | SLURM_JOB_ID | SLURM_ARRAY_JOB_ID | SLURM_ARRAY_TASK_ID | SLURM_RESTART_COUNT | SLURM_JOB_PARTITION | SLURM_JOB_NAME | SLURM_JOB_NODELIST | SLURMD_NODENAME | SLURM_CLUSTER_NAME) environment+=("$name=${!name}") ;;
    esac
  done
}

# Run a command to its end.  It leads a process group of its own and gets the signals that this script gets; a child
# that is merely put into the background would ignore SIGINT, and so would all that it starts.
supervise() {
  local code
  set -m
  "$@" &
  child=$!
  set +m
  for name in TERM USR1 USR2 HUP; do trap "kill -s $name -- -$child 2>/dev/null" "$name"; done
  trap 'kill -s TERM -- -$child 2>/dev/null' INT
  wait "$child"
  code=$?
  while [ "$code" -gt 128 ] && kill -0 "$child" 2>/dev/null; do
    wait "$child"
    code=$?
  done
  wait "$child" 2>/dev/null
  code=$?
  trap - TERM USR1 USR2 HUP INT
  return "$code"
}

# The rest runs inside.
inside() {
  set -euo pipefail
  cd -- "$workspace"
  install
  trust
  prepare
  [ -z "$preflight" ] || python -m ci doctor --node || say "no verdict will rest on times of this node"
  exec "${command[@]}"
}

install() {
  local missing=() name
  for name in ${packages[@]+"${packages[@]}"}; do
    { dpkg -s "$name" || rpm -q "$name"; } >/dev/null 2>&1 || missing+=("$name")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  local as_root=()
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || refuse "packages ${missing[*]} need root or sudo; build them into the image"
    as_root=(sudo -n)
  fi
  if command -v apt-get >/dev/null; then
    ${as_root[@]+"${as_root[@]}"} apt-get -qq update &&
      ${as_root[@]+"${as_root[@]}"} env DEBIAN_FRONTEND=noninteractive \
        apt-get -qq install --yes --no-install-recommends "${missing[@]}" >/dev/null
  else
    ${as_root[@]+"${as_root[@]}"} dnf --quiet --assumeyes install "${missing[@]}"
  fi || refuse "packages ${missing[*]} were not installed; build them into the image"
}

# The workspace may belong to another user than the one inside: git then asks whether it is to be trusted.
trust() {
  command -v git >/dev/null || return 0
  git config --global --get-all safe.directory 2>/dev/null | grep -qxF -- "$PWD" ||
    git config --global --add safe.directory "$PWD" || say "git may refuse $PWD: its settings cannot be written"
}

# An environment with Ridgeline: the one the image brings, or one that is made now.
prepare() {
  [ -n "$venv" ] || return 0
  [ -z "$setup" ] || VENV="$venv" bash -euo pipefail -c "$setup" || refuse "\`$setup\` failed; see above"
  export PATH="$venv/bin:$PATH"
}

entry() {
  declare -p pool workspace packages venv setup preflight command
  declare -f say refuse inside install trust prepare
  echo inside
}

# A container that ran as root leaves files that the runner's user cannot remove.  They are given to that user.
own() {
  local foreign
  [ "$(id -u)" != 0 ] || return 0
  foreign=$(find "$workspace" -xdev ! -uid "$(id -u)" -print -quit 2>/dev/null)
  [ -n "$foreign" ] || return 0
  give || say "$foreign belongs to somebody else; as root: chown -hR $(id -u):$(id -g) '$workspace'"
}

clean() { own; }

give() { command -v sudo >/dev/null && sudo -n chown -hR "$(id -u):$(id -g)" "$workspace" 2>/dev/null; }

# `entries`: what was given to this job, as indices or GPU-<unique id>.
count_entries() {
  local IFS=,
  # shellcheck disable=SC2206
  list=($entries)
  [ "${#list[@]}" = "$gpus" ] ||
    refuse "the job wants $gpus GPUs and $source gives ${#list[@]} (${entries:-none}); correct the pool or the runner"
}

find_entries() {
  local name
  source="the environment"
  entries=
  for name in ROCR_VISIBLE_DEVICES HIP_VISIBLE_DEVICES CUDA_VISIBLE_DEVICES; do
    [ -z "${!name-}" ] || { entries=${!name} source=$name; break; }
  done
  count_entries
}

# Without docker a job has the devices of its user or its allocation; the variable says which of them it uses.
choose_devices() {
  local name kept=()
  find_entries
  for name in "${environment[@]}"; do
    case ${name%%=*} in *_VISIBLE_DEVICES | GPU_DEVICE_ORDINAL) ;; *) kept+=("$name") ;; esac
  done
  environment=("${kept[@]}" "ROCR_VISIBLE_DEVICES=$entries")
}

enter() {
  local flags=() passed=() one
  for one in "${environment[@]}"; do passed+=("APPTAINERENV_$one"); done  # --env would split a value at its commas
  for one in ${mounts[@]+"${mounts[@]}"}; do flags+=("--bind=$one"); done
  supervise env -i PATH="$PATH" HOME="${HOME-/}" "${passed[@]}" apptainer exec --cleanenv --no-home \
    ${flags[@]+"${flags[@]}"} ${options[@]+"${options[@]}"} --bind="$workspace:$workspace" --pwd="$workspace" \
    "$image" bash -c "$(entry)"
}

clean
allow
choose_devices
enter
code=$?
rm -rf -- "$venv"
(clean)
exit "$code"
