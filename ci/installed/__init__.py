"""Ridgeline as `pip install` brings it: the one name that it takes in an environment.

A wheel carries the rooms `kernels`, `benchmarks`, `ci` and `dashboards` in the folder `house` of this package, so that
a project's own packages of these names are never ours, nor ours theirs.  `house` is put on the path of our own
processes alone (`ridgeline.__main__`, `ridgeline.program`).  A declaration imports `ridgeline.spec`.
"""

from __future__ import annotations

import sys
from pathlib import Path

_HERE = Path(__file__).resolve()

HOUSE = _HERE.parent / "house" if (_HERE.parent / "house").is_dir() else _HERE.parents[2]
"""The folder with the rooms: in this package, or the root of the clone that an editable install shows."""


def enter() -> None:
    """Let `ci` and the other rooms be ours in this process, whatever the current folder or PYTHONPATH holds."""
    sys.path[:] = [str(HOUSE), *(entry for entry in sys.path if entry != str(HOUSE))]
