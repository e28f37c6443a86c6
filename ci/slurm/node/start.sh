#!/bin/bash
# Runs on the node: GitHub's runner program, for one job.  Argument: the program.  This file lies in the folder of the job.
#
# The configuration is a secret.  It lies in a file that only this user can read and is deleted before the program
# starts.  It reaches the program in the variable that the program reads once and removes from its environment
# (actions/runner, CommandSettings.cs): other users of the node see arguments, but no environment.
set -u
umask 077
folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) program=$1

[ -x "$program" ] || { echo "the runner program $program is not there or cannot be run; see the key program of [site.NAME.runner]" >&2; exit 3; }
config=$(<"$folder/config") || exit 3
rm -f "$folder/config"

# The program writes its credentials beside itself: each job gets a copy of its own.  Its Node.js is large and only read.
# Copies of jobs that were killed go after 5 days, the longest that a job of GitHub's may take.
find "${TMPDIR:-/tmp}" -maxdepth 1 -type d -name 'ridgeline-runner-*' -user "$(id -u)" -mtime +5 -exec rm -rf {} + 2>/dev/null
home=$(mktemp -d "${TMPDIR:-/tmp}/ridgeline-runner-XXXXXX") || exit 5
trap 'rm -rf "$home" "$folder"' EXIT
origin=$(dirname "$(readlink -f "$program")")
for part in "$origin"/* ; do
    case ${part##*/} in
        externals) ln -s "$part" "$home/externals" ;;
        _work | _diag) ;;
        *) cp -a "$part" "$home/" || exit 5 ;;
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
[ "$code" != 7 ] || echo "GitHub no longer accepts this version of the runner program; install a newer one" >&2
exit "$code"
