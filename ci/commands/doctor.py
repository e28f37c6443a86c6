"""`ridgeline doctor`: what is wrong on this machine, and what to do about it; `ridgeline bringup`: first contact with
a node; `ridgeline verify`: is every backend right in every case, on this machine or in an emulator.

A fact that cannot be had is itself a finding, never an exception.  What torch, the devices, the host and the disks are
good for is judged by `benchmarks.doctor`, with its limits; its problems are findings here as they are.
"""

from __future__ import annotations

import dataclasses
import json
import os
import socket
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

import ci
from ci.bars import printable
from ci.commands.measuring import one_checkout
from ci.git.command import SHOWN_OUTPUT, GitError
from ci.git.repository import Repository
from ci.harness import INTERRUPTED, MeasureError, again, follow, measure, options, program, query
from ci.options import (
    CHOICE,
    DRY_RUN,
    FOLDER_THERE,
    JSON,
    PASS,
    REGRESSION,
    RESULTS,
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
from ci.pools import file
from ci.pools.file import NO_GPU
from ci.report.words import plain, plural
from kernels import project

Level = Literal["ok", "note", "warning", "error"]
STYLE: dict[Level, str] = {"error": "bold red", "warning": "yellow", "note": "cyan", "ok": "green"}
"""How each level looks, worst first."""

EXAMINE_S = 180.0
"""Seconds for the measuring program's examination: importing torch on a cold disk takes a minute, and a hanging driver
for ever."""


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing that was looked at: how bad, what it is, why it matters, what to do (both "" for ok)."""

    level: Level
    what: str
    why: str = ""
    next_step: str = ""


Diagnosis = tuple[list[Finding], Mapping[str, Any]]
"""All findings, worst first, and the machine's fingerprint or facts ({} if they could not be had)."""


def diagnose(root: Path, results: Path) -> Diagnosis:
    """Examine this machine for the repository at `root` with its records in `results`; takes some seconds."""
    answer, findings = _examined("--tree", str(root), "--folder", str(results.absolute()))
    if answer:
        findings += _machine(answer)
    findings += [*_interpreter(), _clone(root), *_records(results)]
    return sorted(findings, key=_rank), answer.get("machine", {})


def _rank(finding: Finding) -> int:
    return list(STYLE).index(finding.level)


def _examined(*words: str) -> tuple[dict[str, Any], list[Finding]]:
    """The answer of `python -m benchmarks doctor`, {} if there is none, and its problems."""
    try:
        answer = query("doctor", *words, limit_s=EXAMINE_S)
        texts = [(row["level"], row["text"], row.get("why", ""), row["next_step"]) for row in answer["problems"]]
    except (MeasureError, KeyError, TypeError) as error:
        started = " ".join(["python", *ci.program("benchmarks"), "doctor", *words[:1]])
        step = f"run `{started}` and correct what it reports"
        return {}, [Finding("error", "the measuring program gives no answer", plain(error, SHOWN_OUTPUT), step)]
    return answer, [Finding(level, *map(printable, rest)) for level, *rest in texts]


def _machine(answer: Mapping[str, Any]) -> Iterator[Finding]:
    yield Finding("ok", machine_text(answer["machine"], answer["environment"]))
    if answer["machine"].get("kind") != "gpu":
        yield Finding(
            "note",
            "no GPU: only CPU backends are timed",
            "Triton kernels are checked in its interpreter at most, never timed",
            "for GPU times `ridgeline run --out trials.jsonl` on a GPU, `ridgeline records add trials.jsonl` here",
        )
    if reasons := [why for cases in answer.get("kernels", {}).values() for why in cases.values()]:
        count = f"{reasons.count('')} of {len(reasons)} cases"
        yield Finding("ok", f"{plural(len(answer['kernels']), 'kernel')}: {count} can be measured here")


def machine_text(machine: Mapping[str, Any], versions: Mapping[str, Any]) -> str:
    """The devices with the versions of what runs on them."""
    device = f"{machine['count']} x {machine['market_name'] or machine['device']} ({machine['arch']})"
    parts = [device if machine["kind"] == "gpu" else f"no GPU seen, CPU {machine['device']}"]
    parts += [f"{name} {versions[name]}" for name in ("python", "torch", "triton", "hip", "cuda") if versions.get(name)]
    return plain(", ".join(parts))


def _interpreter() -> Iterator[Finding]:
    setting = os.environ.get("TRITON_INTERPRET", "")
    if setting not in ("", "0"):
        why = "Triton then interprets kernels on the CPU: no time would mean anything"
        yield Finding("error", f"TRITON_INTERPRET={printable(setting)} is set", why, "unset TRITON_INTERPRET")


def _clone(root: Path) -> Finding:
    try:
        repository = Repository(root)
        head = repository.resolve("HEAD")
    except GitError as error:  # which says the next step
        return Finding("warning", plain(error, SHOWN_OUTPUT), "commits cannot be compared")
    if repository.is_shallow():
        step = "git fetch --unshallow (in a workflow: fetch-depth: 0)"
        return Finding("warning", "the history is cut off (shallow)", "a base to compare with may be missing", step)
    return Finding("ok", f"git: HEAD is {head.short}")


def _records(results: Path) -> Iterator[Finding]:
    """What is in the folder of records; an absent one is not a fault."""
    from ci.records.store import damage_of, notes_files  # scipy, which nodes that verify and bring up may lack

    if results.exists() and not os.access(results, os.R_OK | os.W_OK | os.X_OK):
        next_step = "give this user read and write access, or another folder with --results"
        yield Finding("error", f"{results} cannot be used", "records cannot be read and written there", next_step)
        return
    records = notes_files(results)
    yield Finding("ok", f"{plural(len(records), 'record file')} in {results}")
    for problem in filter(None, map(damage_of, records)):
        next_step = "restore it from git or a copy, or delete it and record its trial files again"
        yield Finding("error", f"{problem.where}: {problem.why}", "the gate and pages lack its trials", next_step)


def show(findings: Sequence[Finding], console: Console) -> None:
    """One line for what is right; what, why and the next step for everything else."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for finding in findings:
        step = finding.next_step and f"-> {finding.next_step}"
        texts = "\n".join(filter(None, (finding.what, finding.why, step)))
        table.add_row(Text(finding.level, STYLE[finding.level]), Text(texts))
    console.print(table, highlight=False)


# Is this node fit to measure for its pool?  The measuring program's preflight, held to what the pool promises.


def diagnose_node(pool_name: str, gpus: int | None, results: Path) -> Diagnosis:
    """What the preflight finds here; a node that gives no answer has a fault.  PoolsError.

    pool_name, gpus: what this node is held to; "": as the pool says that started us, in RIDGELINE_POOL and
    RIDGELINE_GPUS.
    """
    words = ["--node", "--folder", str(results.absolute())]
    if not pool_name:
        pool_name, started = os.environ.get("RIDGELINE_POOL", ""), os.environ.get("RIDGELINE_GPUS", "")
        gpus = int(started) if gpus is None and pool_name and started.isdecimal() else gpus
    pool = file.load().pool(pool_name) if pool_name else None
    if pool and pool.gpu != NO_GPU:
        words += ["--product", pool.gpu]
    if count := pool.size(gpus) if pool else gpus:
        words += ["--gpus", str(count)]
    answer, findings = _examined(*words)
    facts = answer.get("facts", {})
    if not findings:
        node = os.environ.get("RIDGELINE_NODE") or os.environ.get("SLURMD_NODENAME") or socket.gethostname()
        for_pool = f" for pool {pool.name}" if pool else ""
        findings = [Finding("ok", f"{node} is fit to measure{for_pool}: {len(facts['gpus'])} GPUs")]
    return sorted(findings, key=_rank), facts


@verb("ridgeline doctor --json\n  ridgeline doctor --node --pool mi300x --gpus 8")
@flag("--node", "Only the preflight of a run: is this node fit to measure?")
@option("--pool NAME", "With --node: the pool (default: the one that started us).", default="")
@option("--gpus", "With --node: how many GPUs the job has.", click.IntRange(min=0))
@RESULTS
@JSON
def doctor(given: Given) -> int:
    """What this machine is, what can be measured on it, what is broken and what to do about it.

    Exit code 3 if something is broken.
    """
    if not given.node and (given.pool or given.gpus is not None):
        raise click.UsageError("--pool and --gpus belong to --node; add it")
    if given.node:
        findings, machine = diagnose_node(given.pool, given.gpus, given.results)
    else:
        findings, machine = diagnose(Path.cwd(), given.results)
    worst = findings[0].level
    if given.as_json:
        print_json({"worst": worst, "findings": list(map(dataclasses.asdict, findings)), "machine": machine})
    else:
        show(findings, out_console())
    return USAGE if worst == "error" else PASS


# ---- ridgeline verify ------------------------------------------------------------------------------------------------


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
        show(bringup_findings(document), out_console())
        counts = Counter(row["status"] for step in document["steps"] for row in step["rows"])
        click.echo(f"{', '.join(f'{counts[status]} {status}' for status in LEVELS)}; {document['seconds']:.0f} s")
        click.echo(f"report: {file}; what failed may show paths of this machine: read it before you send it to us")
    return ended.code


LEVELS: Mapping[str, Level] = {"pass": "ok", "not here": "note", "fail": "error"}
"""Of what becomes of a row, in the order in which rows are shown: what failed is last, where a person looks first."""

LONGEST = 600
"""Characters of a sentence that are shown."""


def bringup_findings(document: Mapping[str, Any]) -> list[Finding]:
    """The report of a bring-up: the machine with its versions, then every row."""
    rows = [(step["step"], row) for step in document["steps"] for row in step["rows"]]
    findings = [Finding("ok", machine_text(document["machine"], document["environment"]))]
    for step, row in sorted(rows, key=lambda pair: list(LEVELS).index(pair[1]["status"])):
        label = step if step.endswith(row["name"]) else f"{step}: {row['name']}"
        texts = (plain(f"{label}: {row['text']}", LONGEST), "", plain(row["next_step"], LONGEST))
        findings.append(Finding(LEVELS[row["status"]], *texts))
    return findings
