"""The same kernels under several versions of Triton: which upgrade breaks what.

Each version lies in a folder of its own, `.ridgeline/triton/<version>`, which holds nothing but the triton wheel and is
put before the packages of this Python.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock
from rich.table import Table
from rich.text import Text

from ci.harness import run_here
from ci.isa.compiled import CompiledEntry, CompiledTree
from ci.isa.judge import CodeVerdict, Difference, IsaJudgement, compare, pairs
from ci.isa.rules import IsaPolicy
from ci.isa.text import few
from ci.report.words import plural

INSTALL_SECONDS = 900
VERSION = re.compile(r"\d+(\.\d+){1,3}((a|b|rc|\.post|\.dev)\d+)?(\+[\w.]+)?", re.ASCII)
PIP_INSTALL = ("install", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:")


class InstallError(Exception):
    """A version of Triton cannot be installed; the text says why."""


class VersionError(ValueError):
    """A version of Triton is not written as one; the text says how."""


@dataclasses.dataclass(frozen=True)
class VersionStep:
    """An upgrade from one version to the next, judged as base and head."""

    old: str
    new: str
    judgement: IsaJudgement

    @property
    def breaks(self) -> tuple[Difference, ...]:
        """The configurations that the upgrade breaks or makes worse."""
        return self.judgement.of(CodeVerdict.BROKEN, CodeVerdict.SLOWER)


@dataclasses.dataclass(frozen=True)
class Versions:
    """Compiled trees by version in the order asked, the steps between neighbours, and versions that are missing."""

    trees: Mapping[str, CompiledTree]
    steps: tuple[VersionStep, ...]
    missing: Mapping[str, str]

    @property
    def exit_code(self) -> int:
        """1 if an upgrade breaks something, 2 if fewer than two versions could be compiled, else 0."""
        if len(self.trees) < 2:
            return 2
        return max(step.judgement.exit_code == 1 for step in self.steps)


@dataclasses.dataclass(frozen=True)
class VersionCell:
    """One compilation in the table: what is shown of it, its digest or why it failed, whether the upgrade broke it."""

    text: str
    hash: str = ""
    why: str = ""
    breaks: bool = False

    def as_json(self) -> dict[str, str | bool]:
        """Text, digest or reason, and whether it breaks."""
        return {"text": self.text, **({"why": self.why} if self.why else {"hash": self.hash}), "breaks": self.breaks}


@dataclasses.dataclass(frozen=True)
class VersionRow:
    """One configuration in the table, with a cell per version; None where a version does not have it."""

    name: str
    arch: str
    cases: tuple[str, ...]
    cells: dict[str, VersionCell | None]


def parse_versions(asked: str) -> list[str]:
    """Versions of a comma-separated list; VersionError names a wrong one."""
    versions = [part.strip() for part in asked.split(",") if part.strip()]
    for version in versions:
        if not VERSION.fullmatch(version):
            raise VersionError(f"{version!r} is not a version of Triton; give for instance 3.7.1,3.8.0")
    if not versions:
        raise VersionError("--triton names no version; give for instance 3.7.1,3.8.0")
    return list(dict.fromkeys(versions))


def installed() -> str | None:
    """The version of Triton in this Python, None without one."""
    try:
        return importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        return None


def provide(version: str, folder: Path) -> Path | None:
    """The folder with that version, installed if need be; None if it is this Python's own.  Raises InstallError."""
    if version == installed():
        return None
    place = folder / version
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{place}.lock"):
        if not place.is_dir():
            _install(version, place)
    return place


def _install(version: str, place: Path) -> None:
    draft = Path(tempfile.mkdtemp(dir=place.parent, prefix=".installing-"))
    asked = (*PIP_INSTALL, "--target", str(draft.resolve()), f"triton=={version}")
    try:
        done = run_here("pip", *asked, limit_s=INSTALL_SECONDS, capture_output=True, text=True)
        if done.returncode:
            raise InstallError(f"Triton {version} cannot be installed: {_first_error(done.stderr)}")
        draft.rename(place)
    except subprocess.TimeoutExpired:
        raise InstallError(f"Triton {version} cannot be installed: pip took longer than {INSTALL_SECONDS} s") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _first_error(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR:")]
    return ([line for line in errors if "No matching" in line] or errors or lines or ["pip said nothing"])[0]


# ---- the table -----------------------------------------------------------------------------------------------------


def judge(trees: Mapping[str, CompiledTree], missing: Mapping[str, str], policy: IsaPolicy) -> Versions:
    """Judge every version against the one before it."""
    neighbours = zip(list(trees), list(trees)[1:], strict=False)
    steps = [VersionStep(old, new, compare(trees[old], trees[new], policy)) for old, new in neighbours]
    return Versions(trees, tuple(steps), missing)


def rows(versions: Versions) -> list[VersionRow]:
    """One row per configuration."""
    broken = {d.head for step in versions.steps for d in step.breaks}
    found: dict[tuple[object, ...], VersionRow] = {}
    for version, tree in versions.trees.items():
        for (_, entry), cases in pairs(EMPTY, tree):
            assert entry is not None
            key = (entry.kernel, entry.backend, entry.label, entry.arch, cases)
            row = found.setdefault(key, VersionRow(entry.name, entry.arch, cases, dict.fromkeys(versions.trees)))
            row.cells[version] = dataclasses.replace(cell(entry), breaks=entry in broken)
    return list(found.values())


EMPTY = CompiledTree(triton=None, arches=(), entries=())
"""A tree that declares nothing."""


def cell(entry: CompiledEntry) -> VersionCell:
    """What the table shows: registers, spills, scratch, LDS, occupancy, store width, drains; or why it has no code."""
    if entry.code is None:
        return VersionCell(str(entry.status), why=entry.why)
    metrics = entry.code.metrics
    width = metrics.bytes_per_remote_store or metrics.bytes_per_store
    parts = [
        f"{metrics.lane_registers} regs",
        f"{metrics.vgpr_spills} spilled" if metrics.vgpr_spills else "",
        f"{metrics.scratch_bytes} B scratch" if metrics.scratch_bytes else "",
        f"{_size(metrics.lds_bytes)} LDS" if metrics.lds_bytes else "",
        f"occ {metrics.occupancy}",
        f"st {width:g} B" if width else "",
        f"{metrics.remote_store_drains} drains" if metrics.remote_store_drains else "",
    ]
    return VersionCell(", ".join(filter(None, parts)), hash=entry.code.hash)


def _size(count: int) -> str:
    return f"{count} B" if count < 1024 else f"{count / 1024:.4g} K"


def table(versions: Versions) -> Table:
    """The table for a terminal: the rows in which more than the number of registers differs; `!` marks a break."""
    every = rows(versions)
    found = [row for row in every if _differs(list(row.cells.values()))]
    out = Table(title="What each version of Triton makes of the same kernels", expand=False)
    if alike := len(every) - len(found):
        more = plural(alike, "further configuration")
        out.caption = f"{more} with no difference but in the number of registers; --json shows all."
    out.add_column("configuration", overflow="fold")
    out.add_column("arch")
    for version in versions.trees:
        out.add_column(version, overflow="fold")
    for row in found:
        cells = [f"{'! ' if one.breaks else ''}{one.text}" if one else "-" for one in row.cells.values()]
        out.add_row(Text(f"{row.name} {few(row.cases, 1)}"), row.arch, *map(Text, cells))
    return out


def _differs(cells: Sequence[VersionCell | None]) -> bool:
    """Whether versions differ beyond the count of registers, which stands first in a cell, or one breaks something."""
    texts = [one.text if one else "-" for one in cells]
    shown = {text.partition(" regs, ")[2] or text for text in texts}
    return len(shown) > 1 or any(one is not None and one.breaks for one in cells)


def sentences(versions: Versions) -> list[str]:
    """Every break in one sentence: which upgrade, which configuration, what."""
    return [
        f"{step.old} → {step.new}: {d.name} on {d.arch} ({few(d.cases)}): {d.alarms[0].sentence}"
        for step, d in _breaks(versions)
    ]


def _breaks(versions: Versions) -> Iterator[tuple[VersionStep, Difference]]:
    for step in versions.steps:
        for difference in step.breaks:
            yield step, difference


def as_json(versions: Versions) -> dict[str, Any]:
    """Table and breaks as JSON values."""
    return {
        "versions": list(versions.trees),
        "missing": dict(versions.missing),
        "rows": [
            {
                **dataclasses.asdict(row),
                "cells": {name: one.as_json() if one else {} for name, one in row.cells.items()},
            }
            for row in rows(versions)
        ],
        "breaks": [_break_as_json(step, difference) for step, difference in _breaks(versions)],
    }


def _break_as_json(step: VersionStep, difference: Difference) -> dict[str, Any]:
    found = [dataclasses.asdict(finding) for finding in difference.alarms]
    return {"from": step.old, "to": step.new, **difference.place, "findings": found}


def warnings(versions: Versions) -> list[str]:
    """What the reader must know beside the table."""
    failures = [f"{version}: {why}" for version, tree in versions.trees.items() for why in tree.failures.values()]
    return [*versions.missing.values(), *failures]
