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
      @SECRET@) ;;  # no secret enters
      RIDGELINE_* | @ALLOWED@) environment+=("$name=${!name}") ;;
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
  [ -z "$preflight" ] || python @VERBS@ doctor --node || say "no verdict will rest on times of this node"
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
