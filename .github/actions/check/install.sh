#!/usr/bin/env bash
# Install Ridgeline from $HERE beside what your kernels need ($REQUIREMENTS, a file); an installed torch stays.
set -euo pipefail
case "${FAIL_ON:=regression}" in
  regression | undecided) ;;
  *) echo "Error: fail-on: '$FAIL_ON' is not one of regression, undecided; correct it in the workflow" >&2; exit 3 ;;
esac
install=(python -m pip install --quiet --disable-pip-version-check)
[ -z "${REQUIREMENTS:-}" ] || "${install[@]}" -r "$REQUIREMENTS"
extra=${EMULATE:+emulate}
if python -c 'import torch' 2>/dev/null; then
  "${install[@]}" "$HERE${extra:+[$extra]}"
else
  python "$HERE/ci/set_up.py" install -c "$HERE/constraints.txt" "$HERE[cpu${extra:+,$extra}]"
fi
