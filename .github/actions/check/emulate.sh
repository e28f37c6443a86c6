#!/usr/bin/env bash
# Run the command $EMULATE, written as in a shell, on an emulated $ARCH.
set -uo pipefail
eval "command=($EMULATE)"
exec ridgeline emulate --arch "$ARCH" -- "${command[@]}"
