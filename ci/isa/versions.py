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
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
from filelock import FileLock
from rich.table import Table
from rich.text import Text

from ci.isa.judge import IsaJudgement, Verdict, compare, pairs
from ci.isa.rules import IsaPolicy
from ci.isa.text import few

INSTALL_SECONDS = 900
VERSION = re.compile(r"\d+(\.\d+){1,3}((a|b|rc|\.post|\.dev)\d+)?(\+[\w.]+)?")


class InstallError(Exception):
    """A version of Triton cannot be installed; the text says why."""


@dataclasses.dataclass(frozen=True)
class Step:
    """An upgrade from one version to the next, judged as base and head."""

    old: str
    new: str
    judgement: IsaJudgement


@dataclasses.dataclass(frozen=True)
class Versions:
    """Result files by version in the order asked, the steps between neighbours, and versions that are missing."""

    documents: Mapping[str, Mapping[str, Any]]
    steps: tuple[Step, ...]
    missing: Mapping[str, str]

    @property
    def exit_code(self) -> int:
        """1 if an upgrade breaks something, 2 if fewer than two versions could be compiled, else 0."""
        if len(self.documents) < 2:
            return 2
        return max(step.judgement.exit_code == 1 for step in self.steps)


def parse_versions(asked: str) -> list[str]:
    """Versions of a comma-separated list; ValueError names a wrong one."""
    versions = [part.strip() for part in asked.split(",") if part.strip()]
    for version in versions:
        if not VERSION.fullmatch(version):
            raise ValueError(f"{version!r} is no version of Triton; give for instance 3.7.1,3.8.0")
    if not versions:
        raise ValueError("--triton names no version; give for instance 3.7.1,3.8.0")
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
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--only-binary",
        ":all:",
        "--target",
        str(draft),
        f"triton=={version}",
    ]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=INSTALL_SECONDS
        )
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


def judge(documents: Mapping[str, Mapping[str, Any]], missing: Mapping[str, str], policy: IsaPolicy) -> Versions:
    """Judge every version against the one before it."""
    names = list(documents)
    steps = [
        Step(old, new, compare(documents[old], documents[new], policy))
        for old, new in zip(names, names[1:], strict=False)
    ]
    return Versions(documents, tuple(steps), missing)


def rows(versions: Versions) -> list[dict[str, Any]]:
    """One row per configuration: its name, architecture, cases, and a cell per version ({} where it is absent)."""
    broken = {id(d.head) for step in versions.steps for d in step.judgement.of(Verdict.SLOWER, Verdict.BROKEN)}
    table: dict[tuple[str, ...], dict[str, Any]] = {}
    for version, document in versions.documents.items():
        for _, entry, cases in pairs({"entries": []}, document):
            assert entry is not None
            where = (entry["kernel"], entry["backend"], entry["label"], entry["arch"])
            row = table.setdefault(
                (*where, *cases),
                {
                    "name": f"{where[0]}/{where[1]}" + (f" [{where[2]}]" if where[2] else ""),
                    "arch": where[3],
                    "cases": list(cases),
                    "cells": {name: {} for name in versions.documents},
                },
            )
            row["cells"][version] = cell(entry) | {"breaks": id(entry) in broken}
    return list(table.values())


def cell(entry: Mapping[str, Any]) -> dict[str, Any]:
    """What the table shows of one compilation: registers, spills, scratch, LDS, occupancy, widths; or why it failed."""
    if entry["status"] != "ok":
        return {"text": entry["status"], "why": entry["why"]}
    metrics = entry["metrics"]
    width = metrics.get("bytes_per_remote_store") or metrics.get("bytes_per_store")
    spilled = metrics.get("vgpr_spills", 0)
    parts = [
        f"{metrics.get('vgpr', metrics.get('registers'))} regs",
        f"{spilled} spilled" if spilled else "",
        f"{metrics['scratch_bytes']} B scratch" if metrics["scratch_bytes"] else "",
        f"{_size(metrics['lds_bytes'])} LDS" if metrics["lds_bytes"] else "",
        f"occ {metrics['occupancy']}",
        f"st {width:g} B" if width else "",
    ]
    return {"text": ", ".join(part for part in parts if part), "hash": entry["hash"]}


def _size(count: int) -> str:
    return f"{count} B" if count < 1024 else f"{count / 1024:.4g} K"


def table(versions: Versions) -> Table:
    """The table for a terminal: the rows in which more than the number of registers differs; `!` marks a break."""
    every = rows(versions)
    found = [row for row in every if _differs(list(row["cells"].values()))]
    alike = len(every) - len(found)
    told = f"{alike} more configurations differ in the number of registers at most; --page and --json show all."
    out = Table(
        title="What each version of Triton makes of the same kernels", expand=False, caption=told if alike else None
    )
    out.add_column("configuration", overflow="fold")
    out.add_column("arch")
    for version in versions.documents:
        out.add_column(version, overflow="fold")
    for row in found:
        cells = [f"{'! ' if one.get('breaks') else ''}{one.get('text', '-')}" for one in row["cells"].values()]
        out.add_row(Text(f"{row['name']} {few(row['cases'], 1)}"), row["arch"], *map(Text, cells))
    return out


def _differs(cells: Sequence[Mapping[str, Any]]) -> bool:
    """Whether versions differ beyond the count of registers, which stands first in a cell, or one breaks something."""
    shown = {one.get("text", "-").partition(" regs, ")[2] or one.get("text", "-") for one in cells}
    return len(shown) > 1 or any(one.get("breaks") for one in cells)


def sentences(versions: Versions) -> list[str]:
    """Every break in one sentence: which upgrade, which configuration, what."""
    return [
        f"{step.old} → {step.new}: {d.name} on {d.arch} ({few(d.cases)}): {d.alarms[0].sentence}"
        for step in versions.steps
        for d in step.judgement.of(Verdict.BROKEN, Verdict.SLOWER)
    ]


def as_json(versions: Versions) -> dict[str, Any]:
    """Table and breaks as JSON values."""
    return {
        "versions": list(versions.documents),
        "missing": dict(versions.missing),
        "rows": rows(versions),
        "breaks": [
            {
                "from": step.old,
                "to": step.new,
                "kernel": d.kernel,
                "backend": d.backend,
                "label": d.label,
                "arch": d.arch,
                "cases": list(d.cases),
                "findings": [dataclasses.asdict(f) for f in d.alarms],
            }
            for step in versions.steps
            for d in step.judgement.of(Verdict.BROKEN, Verdict.SLOWER)
        ],
    }


def page(versions: Versions) -> str:
    """The table and the breaks as one HTML page without references to anything else."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parents[1] / "report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("isa_triton.html.j2").render(
        versions=list(versions.documents), rows=rows(versions), breaks=sentences(versions), missing=versions.missing
    )


def warnings(versions: Versions) -> Sequence[str]:
    """What the reader must know beside the table."""
    return [
        *versions.missing.values(),
        *(
            f"{version}: {failure['why']}"
            for version, document in versions.documents.items()
            for failure in document["failures"]
        ),
    ]
