#!/usr/bin/env bash
# Install Ridgeline from $HERE beside what your kernels need ($REQUIREMENTS, a file); an installed torch stays.
set -euo pipefail
install=(python -m pip install --quiet --disable-pip-version-check)
[ -z "${REQUIREMENTS:-}" ] || "${install[@]}" -r "$REQUIREMENTS"
if python -c 'import torch' 2>/dev/null; then
  "${install[@]}" "$HERE"
else
  "${install[@]}" -c "$HERE/constraints-cpu.txt" "$HERE[cpu]"
fi
