#!/bin/bash
# GitHub's runner program calls this before anything of a job runs, its containers included.  GitHub routes by labels:
# a runner that was started for one job may be given another, which may come from a fork.  The file `allowed` holds what
# may run: repository, workflow file, pattern of branches and event, separated by tabs.
#
# A hook that fails is not enough: steps with `if: always()` would still run.  So the process that runs the steps, our
# parent, is killed, and the program reports the job as failed.
set -u
folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
workflow=${GITHUB_WORKFLOW_REF:-} event=${GITHUB_EVENT_NAME:-} here=${GITHUB_REPOSITORY:-}
path=${workflow%%@*} ref=${workflow#*@}
while IFS=$'\t' read -r repository file pattern by; do
    # shellcheck disable=SC2053  # the pattern of branches is a pattern
    if [[ ${here,,} == "${repository,,}" && $path == "$here/$file" && $ref == $pattern && $event == "$by" ]]; then
        exit 0
    fi
done <"$folder/allowed"
said="$workflow by $event in run ${GITHUB_RUN_ID:-?}"
echo "This runner does not take $said: it is not among the workflows that [site.NAME.runner] in ci/runners.toml names." >&2
kill -KILL "$PPID"
exit 1
