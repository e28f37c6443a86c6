"""Results of whole trees, kept by everything that decides them: a tree that has not changed starts no process.

Compilations are kept by their content (compile.py), but to know the content of 300 of them takes two processes that
import torch, Triton and every operator, and specialise every launch: 4 s of CPU for a tree in which nothing is new.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.isa.compile import Cache, environment, key_of
from benchmarks.isa.pool import Choice, CompileSetting
from benchmarks.reach.code import CheckoutCode, of_harness

MOST = 24
"""Results that are kept, the last used ones: about 1 MB each for 300 compilations (2026-11)."""

DECIDED = ("ok", "unsupported", "refused", "undeclared")
"""What becomes of a compilation and stays so; what failed for want of time or memory is tried again."""


@dataclasses.dataclass(frozen=True)
class KeptRun:
    """What pool.CompilePool knows in the end of one architecture; nothing made the whole of it fail."""

    arch: str
    listing: dict[str, Any]
    records: Mapping[int, dict[str, Any]]
    failure: str = ""


def tree_key(arches: Sequence[str], choice: Choice, setting: CompileSetting) -> str:
    """The key of a result, "" for another Python than this one: what is installed there is not known here."""
    if setting.python != sys.executable:
        return ""
    code = CheckoutCode(setting.tree)
    parts = {
        "tree": code.digest(),
        "looks_at": code.environment(),
        "ours": of_harness(),
        "arches": list(arches),
        "choice": dataclasses.asdict(choice),
        "units": setting.compute_units,
        "python": sys.version,
        "installed": sorted(_installed([*map(str, setting.packages), *sys.path])),
        "environment": {name: value for name, value in environment(os.environ).items() if name.startswith("TRITON")},
    }
    return key_of(parts)


def _installed(folders: Sequence[str]) -> set[str]:
    """Every distribution in the folders, as name and version."""
    return {path.name for folder in folders if folder for path in Path(folder).glob("*-info")}


def load(cache: Path, key: str) -> list[KeptRun] | None:
    """The result by architecture, None if it is not kept, torn, or a code text that it names is gone."""
    path = _path(cache, key)
    try:
        runs = [_run(one) for one in json.loads(path.read_text(encoding="utf-8"))]
        os.utime(path)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    texts = {record["asm"] for run in runs for record in run.records.values() if record.get("asm")}
    return runs if all((cache / text).is_file() for text in texts) else None


def _run(kept: Mapping[str, Any]) -> KeptRun:
    return KeptRun(kept["arch"], kept["listing"], dict(enumerate(kept["records"])))


def store(cache: Path, key: str, runs: Sequence[Any]) -> None:
    """Keep the result of finished runs, unless something in it may end otherwise the next time."""
    if not key or not all(_decided(run) for run in runs):
        return
    kept = [
        {"arch": run.arch, "listing": run.listing, "records": [run.records[i] for i in range(len(run.records))]}
        for run in runs
    ]
    Cache(cache).write(_path(cache, key).name, json.dumps(kept))
    for old in sorted(cache.glob("tree-*.json"), key=_used)[:-MOST]:
        with contextlib.suppress(OSError):
            old.unlink()


def _decided(run: Any) -> bool:
    """Whether a run is complete, and nothing in it broke off."""
    if run.failure or run.listing is None or run.listing["broken"] or len(run.records) < len(run.listing["units"]):
        return False
    return all(record["status"] in DECIDED or "key" in record for record in run.records.values())


def _used(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _path(cache: Path, key: str) -> Path:
    return cache / f"tree-{key}.json"
