"""What knobs compiled to where they were measured, as a file beside the trials: other hosts have another Triton."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from ci.sweeps.measured import SweepError
from ci.sweeps.tuned.verifying import CodeObjects
from ci.whole_files import replace

LARGEST = 20_000_000
"""Bytes: an entry has some 400, and a night measures a few thousand sets of knobs."""


def beside(trials: Path) -> Path:
    """The file of a trial file: sweep.jsonl -> sweep.code.json."""
    name = trials.name.removesuffix(".gz").removesuffix(".jsonl")
    return trials.with_name(f"{name}.code.json")


def write(trials: Path, operator: str, code: CodeObjects) -> None:
    """Keep what is known, with what the file had of other operators; one entry a line."""
    old = [one for one in _entries(beside(trials)) if one[0] != operator]
    new = [[operator, *place, found] for place, found in code.items() if found]
    lines = ",\n".join(json.dumps(one) for one in sorted([*old, *new]))
    replace(beside(trials), f"[\n{lines}\n]\n")


def read(files: Iterable[Path], operator: str) -> CodeObjects:
    """What some files say of an operator; nothing where there are none."""
    entries = [one for path in files for one in _entries(path)]
    return {(case, backend, identity): found for owner, case, backend, identity, found in entries if owner == operator}


def _entries(path: Path) -> list[list[str]]:
    """[operator, case, backend, identity, digest] each.  SweepError for a file that is something else."""
    if not path.exists():
        return []
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError(f"it has more than {LARGEST:,} bytes")
        found = json.loads(path.read_text(encoding="utf-8"))
        if all(len(one) == 5 and all(isinstance(part, str) for part in one) for one in found):
            return list(found)
        why = "an entry is not five texts"
    except (OSError, ValueError, TypeError) as error:
        why = str(error)
    raise SweepError(f"{path} cannot be used: {why}; remove it, and the entries are verified again in time")
