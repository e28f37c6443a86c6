"""`ridgeline verify`: is every backend right in every case, here or in an emulator; `ridgeline bringup`: first contact
with a node.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from ci.commands.doctor import Diagnosis, Finding, Level, show
from ci.commands.measuring import one_checkout
from ci.harness import INTERRUPTED, again, follow, measure, options, program
from ci.options import (
    CHOICE,
    DRY_RUN,
    FOLDER_THERE,
    JSON,
    PASS,
    REGRESSION,
    SOURCE,
    USAGE,
    Given,
    NewFile,
    err_console,
    flag,
    option,
    out_console,
    plan,
    print_json,
    several,
    verb,
    wait_for_turn,
)
from ci.report.words import plain
from kernels import project

KEPT = ".ridgeline/checks.jsonl"


@verb("ridgeline verify --tier nightly --kernel gemm\n  ridgeline verify --arch gfx942 --arch gfx950 --kernel gemm")
@CHOICE
@SOURCE
@several(
    "--arch ARCH -> arches",
    "Execute what compiles for gfx942 or gfx950 on this CPU, in small cases, in place of the cases of this machine; "
    "an emulator: no times (repeatable).",
    click.Choice(["gfx942", "gfx950"]),
)
@flag(
    "--no-hazards",
    "With --arch: leave out whether waves of a workgroup race, and registers are used before their wait.",
)
@option(
    "--out",
    "File of checks to append to; what it knows of the same kernels on this machine is not tried again "
    f"(default: {KEPT}).",
    NewFile(),
)
@JSON
@DRY_RUN
def verify(given: Given) -> int:
    """Is every backend right in every case on this machine?  Calls each and compares; times nothing.

    With --arch: on MI300X (gfx942) and MI355X (gfx950), in an emulator, without a GPU.
    """
    if not given.dry_run and not given.arches:
        wait_for_turn()
    if given.no_hazards:
        os.environ["RIDGELINE_NO_HAZARDS"] = "1"  # as benchmarks.emulation.hazards reads it, in whatever process
    head, file, planned = one_checkout(given), given.out or project.place(KEPT), plan(given)
    if given.dry_run:
        what = f"small cases for {', '.join(given.arches)}" if given.arches else f"{planned.tier} tier"
        click.echo(f"would check {head.label} ({what}) and append what comes of it to {file}")
        return 0
    flags = [*options(arch=given.arches), *(["--json"] if given.as_json else [])]
    return measure([head], planned, file, err_console(), "verify", *flags)


# ---- bringup ---------------------------------------------------------------------------------------------------------


REPORT = ".ridgeline/bringup.json"

BRINGUP_STEPS = ("heap", "fences", "rccl", "backend")
"""Those of benchmarks.bringup, so that a wrong name is refused before this verb waits for its turn."""

EXAMPLE = "ridgeline bringup\n  ridgeline bringup --only heap --only fences"


@verb(EXAMPLE)
@several("--only", "Only this step (repeatable).", click.Choice(BRINGUP_STEPS))
@option("--out", f"The report, a JSON file (default: {REPORT}).", NewFile())
@option("--tree", "This source tree.", FOLDER_THERE)
@JSON
@DRY_RUN
def bringup(given: Given) -> int:
    """First contact with a node: does everything work that Ridgeline relies on, and what is the next step if not?

    Symmetric heap, fences, RCCL, each backend in one case.  Takes minutes and survives a crash or a hang of any step;
    `ridgeline doctor` says what the machine itself is.
    """
    file = given.out or project.place(REPORT)
    where = given.tree or project.around(Path.cwd()).root
    if given.dry_run:
        click.echo(f"would try {', '.join(given.only or BRINGUP_STEPS)} with the kernels of {where} into {file}")
        return PASS
    argv = [*program("benchmarks.bringup"), *options(only=given.only)]
    argv += options(out=file.resolve(), tree=where.resolve(), progress="json")
    wait_for_turn()
    try:
        ended = follow(argv, err_console(), "bringup")
    except KeyboardInterrupt:
        click.echo(f"interrupted: {file} has what is finished; `{again()}` begins anew", err=True)
        return INTERRUPTED
    if ended.code not in (PASS, REGRESSION):
        if ended.code != USAGE:
            err_console().print(f"the measuring program broke off: {ended.how}", style="bold red")
        return USAGE
    document = json.loads(file.read_text(encoding="utf-8"))
    if given.as_json:
        print_json(document)
    else:
        show(bringup_diagnosis(document), out_console())
        counts = Counter(row["status"] for step in document["steps"] for row in step["rows"])
        click.echo(f"{', '.join(f'{counts[status]} {status}' for status in LEVELS)}; {document['seconds']:.0f} s")
        click.echo(f"report: {file}; what failed may show paths of this machine: read it before you send it to us")
    return ended.code


LEVELS: Mapping[str, Level] = {"pass": "ok", "not here": "note", "fail": "error"}
"""Of what becomes of a row, in the order in which rows are shown: what failed is last, where a person looks first."""

LONGEST = 600
"""Characters of a sentence that are shown."""


def bringup_diagnosis(document: Mapping[str, Any]) -> Diagnosis:
    """The report of a bring-up: the machine with its versions, then every row."""
    machine, versions = document["machine"], document["environment"]
    device = f"{machine['count']} x {machine['market_name'] or machine['device']} ({machine['arch']})"
    parts = [device if machine["kind"] == "gpu" else f"no GPU seen, CPU {machine['device']}"]
    parts += [f"{name} {versions[name]}" for name in ("torch", "triton", "hip", "cuda") if versions.get(name)]
    rows = [(step["step"], row) for step in document["steps"] for row in step["rows"]]
    findings = [Finding("ok", plain(", ".join(parts)))]
    for step, row in sorted(rows, key=lambda pair: list(LEVELS).index(pair[1]["status"])):
        label = step if step.endswith(row["name"]) else f"{step}: {row['name']}"
        texts = (plain(f"{label}: {row['text']}", LONGEST), "", plain(row["next_step"], LONGEST))
        findings.append(Finding(LEVELS[row["status"]], *texts))
    return Diagnosis(tuple(findings), machine)
