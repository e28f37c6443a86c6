#!/bin/bash
# Runs on the node, inside the pool's environment: asks for a configuration, waits for it, and runs GitHub's runner
# program with it for one job.  Arguments: the folder of this slot, the program, seconds to wait at most.
#
# The configuration is a secret.  It comes as a file that only this user can read and is deleted before the program
# starts.  It reaches the program in the variable that the program reads once and removes from its environment
# (actions/runner, CommandSettings.cs): other users of the node see arguments, but no environment.
set -u
umask 077
folder=$1 program=$2 patience=$3

say() { # a letter to the service: whole or not at all
    printf '%s\n' "$2" >"$folder/.$1.$$" && mv "$folder/.$1.$$" "$folder/$1"
}

leave() { # $1: exit code
    rm -rf "${home:-}"
    say code "$1"
    exit "$1"
}

[ -x "$program" ] || { echo "the runner program $program is not there or cannot be run; see `program` of [site.NAME.runner]" >&2; leave 3; }
say asked "${SLURM_JOB_ID:-}"
for ((look = 0; ; look++)); do
    ls "$folder" >/dev/null # a network file system may remember that a file was not there
    [ -f "$folder/config" ] && break
    ((look < patience * 2)) || { echo "no configuration came within $patience s: is the service running?" >&2; leave 4; }
    sleep 0.5
done
config=$(<"$folder/config")
rm -f "$folder/config" "$folder/asked"

# The program writes its credentials beside itself: each job gets a copy of its own.  Its Node.js is large and only read.
home=$(mktemp -d "${TMPDIR:-/tmp}/ridgeline-runner-XXXXXX") || leave 5
origin=$(dirname "$(readlink -f "$program")")
for part in "$origin"/* ; do
    case ${part##*/} in
        externals) ln -s "$part" "$home/externals" ;;
        _work | _diag) ;;
        *) cp -a "$part" "$home/" || leave 5 ;;
    esac
done

export ACTIONS_RUNNER_HOOK_JOB_STARTED="$folder/guard.sh"
export ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE=1 # 7: GitHub wants a newer program
export RUNNER_MANUALLY_TRAP_SIG=1                           # the end of the Slurm job reaches the program as an interrupt
[ "$(id -u)" != 0 ] || export RUNNER_ALLOW_RUNASROOT=1      # root of a container
ACTIONS_RUNNER_INPUT_JITCONFIG=$config "$home/${program##*/}" &
program=$!
unset config
signalled=
trap 'signalled=yes; kill -TERM "$program" 2>/dev/null' TERM INT
wait "$program"
code=$?
while [ -n "$signalled" ]; do # the signal ended `wait`, not the program
    signalled=
    wait "$program"
    code=$?
done
leave "$code"
