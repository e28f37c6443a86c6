#!/bin/bash
# 2 x MI300X of pool m: docker rocm/pytorch:1, isolation slurm.  Written by `ridgeline ci pools`.
set -uo pipefail
pool=m gpus=2 root=
workspace=$PWD
image=rocm/pytorch:1
options=(--ipc=host)
mounts=()
user=(--user=0:0)
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

# Containers of a job that was killed, then its files.
clean() {
  local left
  left=$(docker ps --all --quiet --filter "label=ridgeline.workspace=$workspace") || refuse "docker does not answer"
  [ -z "$left" ] || docker rm --force $left >/dev/null
  own
}

give() {
  docker run --rm --network=none --user=0:0 --volume="$workspace:$workspace" --entrypoint=chown \
    "$image" -hR "$(id -u):$(id -g)" "$workspace"
}

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

# One line for each AMD GPU that this host shows, as ROCr counts them: the minor of its render device, its unique id.
render_nodes() {
  local number=0 key value simd minor unique
  while [ -d "$root/sys/class/kfd/kfd/topology/nodes/$number" ]; do
    simd=0 minor=0 unique=0
    while read -r key value; do
      case $key in
        simd_count) simd=$value ;;
        drm_render_minor) minor=$value ;;
        unique_id) unique=$value ;;
      esac
    done 2>/dev/null <"$root/sys/class/kfd/kfd/topology/nodes/$number/properties"
    [ "$simd" = 0 ] || printf '%s %016x\n' "$minor" "$((unique))"
    number=$((number + 1))
  done
}

renumber() {
  local name kept=() number=0 numbers=
  for name in "${environment[@]}"; do
    case ${name%%=*} in *_VISIBLE_DEVICES | GPU_DEVICE_ORDINAL) ;; *) kept+=("$name") ;; esac
  done
  while [ "$number" -lt "$gpus" ]; do
    numbers=$numbers${numbers:+,}$number
    number=$((number + 1))
  done
  environment=("${kept[@]}" "ROCR_VISIBLE_DEVICES=$numbers")
}

# The render devices of the entries, and no others.  Inside they are all there is, so they are counted anew from 0.
choose_devices() {
  local one minor unique number found seen=,
  find_entries
  devices=(--device=/dev/kfd)
  for one in "${list[@]}"; do
    number=0 found=
    while read -r minor unique; do
      case $one in "$number" | "GPU-$unique") found=$minor ;; esac
      number=$((number + 1))
    done < <(render_nodes)
    [ -n "$found" ] || refuse "$source names GPU $one, and this host shows $number GPUs; correct the runner"
    case $seen in *",$found,"*) refuse "$source names one GPU twice ($entries); correct the runner" ;; esac
    seen=$seen$found,
    devices+=("--device=/dev/dri/renderD$found")
  done
  renumber
}

enter() {
  local flags=() one code
  name=ridgeline-$pool-$$-$RANDOM
  for one in "${environment[@]}"; do flags+=("--env=$one"); done
  for one in ${mounts[@]+"${mounts[@]}"}; do flags+=("--volume=$one"); done
  for one in $(stat --format=%g "$root"/dev/kfd "$root"/dev/dri/renderD* 2>/dev/null | sort -u); do
    flags+=("--group-add=$one")
  done
  supervise docker run --rm --init --name="$name" --label="ridgeline.workspace=$workspace" "${user[@]}" "${flags[@]}" \
    ${devices[@]+"${devices[@]}"} ${options[@]+"${options[@]}"} --volume="$workspace:$workspace" \
    --workdir="$workspace" --entrypoint=bash "$image" -c "$(entry)"
  code=$?
  docker rm --force "$name" >/dev/null 2>&1
  return "$code"
}

clean
allow
choose_devices
enter
code=$?
rm -rf -- "$venv"
(clean)
exit "$code"
