"""`ridgeline records`: trial files and what others measured, in; the records out for any engine, or to a branch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import click

from benchmarks.programs.reader import RATES, TIMES, Reader, ReaderError, Row, readers
from benchmarks.trial_file import REGIMES
from ci.commands.outcome import print_recorded
from ci.git.command import pushed
from ci.options import (
    ANY,
    DRY_RUN,
    FOLDER_THERE,
    JSON,
    NO_VERDICT,
    PASS,
    RESULTS,
    USAGE,
    Given,
    Parsed,
    option,
    out_console,
    print_json,
    several,
    verb,
)
from ci.records import derived as exported
from ci.records import importing, store
from ci.records.importing import IMPORTED
from ci.records.ledger import folder_of
from ci.report.words import plain, plural
from ci.trials.file import Problem, read
from kernels import project

PUSH = option("--push BRANCH -> push_to", "Commit the records and push them to this branch.")


@verb("ridgeline records add trials.jsonl")
@click.argument("files", nargs=-1, required=True, type=ANY)
@PUSH
@RESULTS
@JSON
@DRY_RUN
def add(given: Given) -> int:
    """Turn trial files, measured anywhere, into asv records and notes; recording again changes nothing."""
    files = list(map(read, given.files))
    done = store.record(files, given.results, dry_run=given.dry_run)
    if given.as_json:
        paths, problems = list(map(str, done.paths)), list(map(dataclasses.asdict, done.problems))
        print_json({"added": done.added, "known": done.known, "paths": paths, "problems": problems})
    else:
        print_recorded(done, given.dry_run)
    if given.push_to and not given.dry_run:
        click.echo(pushed(given.results, given.push_to, "Record measurements"))
    return USAGE if done.problems else PASS


# ---- import ----------------------------------------------------------------------------------------------------------


IMPORT_EXAMPLES = """ridgeline records import all_reduce.log --machine node-3 --commit 1a2b3c4d
  ridgeline records import bench.json --reads google-benchmark --dry-run --json"""


@verb(IMPORT_EXAMPLES, name="import")
@click.argument("paths", nargs=-1, required=True, type=ANY)
@option("--reads NAME", "Reader of the files: ours, or a [[reader]] of ridgeline.toml (default: told from each file).")
@option("--machine NAME", "Machine they were measured on.", default="")
@option("--kernel NAME", "What was measured (default: the reader's name).", default="")
@option("--commit HASH", "Commit that was measured.", default="")
@several("--baseline NAME -> baselines", "Backend that is the library of the others, such as rccl (repeatable).")
@option("--unit UNIT", "Unit of numbers whose unit the file does not say, such as us or GB/s.", default="")
@RESULTS
@JSON
@DRY_RUN
def import_(given: Given) -> int:
    """Read files that benchmark programs wrote, or folders of them, into the history of a commit.

    Importing again changes nothing; what cannot be used is named, the rest is imported.
    """
    known = _readers(given.reads)
    if given.unit and given.unit not in {**TIMES, **RATES}:
        raise click.BadParameter(f"{given.unit!r}; there are: {', '.join({**TIMES, **RATES})}", param_hint="--unit")
    texts = (given.reads or "", given.machine, given.kernel, given.commit, given.unit, given.baselines)
    files = importing.files_in(given.paths)
    done = importing.bring(files, given.results, known, importing.ImportOptions(*texts), given.dry_run)
    if given.as_json:
        print_json({"rows": list(map(_row_json, done.rows)), "said": list(map(str, done.problems))})
        return USAGE if done.refused else PASS
    counts = f"{plural(done.added, 'file')}, {plural(done.known, 'file')} known already"
    verb, place = "would import" if given.dry_run else "imported", given.results / IMPORTED
    machines = ", ".join(sorted(done.machines)) or "no machine"
    bad = [row for row in done.rows if row.status != "ok"]
    lines = [f"{verb} {plural(len(done.rows), 'row')} of {counts}; {machines}; in {place}"]
    lines += [f"  {row.status}: {row.backend}/{row.case}: {row.note}" for row in bad]
    for line in (*lines, *(f"  {problem}" for problem in done.problems)):
        out_console().print(line, markup=False, soft_wrap=True)
    return USAGE if done.refused else PASS


def _readers(reads: str) -> Mapping[str, Reader]:
    """The readers by name; UsageError for one that there is not, or one that is declared wrongly."""
    try:
        known = readers(project.around(Path.cwd()).readers)
    except ReaderError as error:
        raise click.UsageError(str(error)) from None
    if reads and reads not in known:
        raise click.BadParameter(f"{reads!r}; there are: {', '.join(known)}", param_hint="--reads")
    return known


def _row_json(row: Row) -> dict[str, object]:
    """A row for machines: what is wrong has failed, the note says so."""
    status = "failed" if row.status == "wrong" else row.status
    fields = {"case": row.case, "backend": row.backend, "status": status, "value": row.value, "unit": row.unit}
    return {**fields, "ranks": row.ranks, "note": row.note}


# ---- export ----------------------------------------------------------------------------------------------------------


EXAMPLES = "ridgeline records export --out history --kernel gemm"


def _path(said: str) -> Path:
    """An empty text, as an unset variable of a shell gives it, is none."""
    if not said:
        raise ValueError("'' names no path")
    return Path(said)


@verb(EXAMPLES)
@option(
    "--out",
    "Folder of Parquet files, one folder a machine.",
    Parsed("path", _path),
    default=lambda: project.place("export"),
    show_default="export",
)
@several("--machine NAME", "Only this machine (repeatable).")
@several("--kernel NAME", "Only this kernel (repeatable).")
@RESULTS
@JSON
@DRY_RUN
def export(given: Given) -> int:
    """Write the long frame: one row per machine, commit, environment, kernel, backend and case.

    Times are seconds; TFLOPS, GB/s, share of the peak and ratio to the baseline stand beside them.
    """
    out = given.out
    count, paths, unread = exported.export(given.results, out, given.machine, given.kernel, given.dry_run)
    problems = [problem.removesuffix("; left out") for problem in unread]
    if given.as_json:
        print_json({"rows": count, "paths": list(map(str, paths)), "problems": problems})
    else:
        verb = "would be " if given.dry_run else ""
        click.echo(f"{count:,} rows {verb}in {out}" if count else f"no record matches; nothing in {out}")
    for problem in problems:
        click.echo(f"left out: {plain(problem, 2000)}", err=True)
    return NO_VERDICT if problems else PASS


# ---- push ------------------------------------------------------------------------------------------------------------


WHAT = {"results_isa": "Record machine code"}
"""Messages of the commits, by the name of the folder."""


@verb("ridgeline records push results main --dry-run")
@click.argument("folder", type=FOLDER_THERE)
@click.argument("branch")
@DRY_RUN
def push(given: Given) -> int:
    """Commit what is new in a folder of records, and nothing else, and push it to a branch.

    GITHUB_TOKEN is shown to GITHUB_SERVER_URL only.
    """
    folder, branch = given.folder, given.branch
    if given.dry_run:
        click.echo(f"would commit what is new in {folder} and push it to {branch}")
    else:
        click.echo(pushed(folder, branch, WHAT.get(folder.name, "Record measurements")))
    return PASS


# ---- rewrite ---------------------------------------------------------------------------------------------------------


@verb("ridgeline records rewrite --dry-run")
@RESULTS
@JSON
@DRY_RUN
def rewrite(given: Given) -> int:
    """Write all records in the form of today: one compressed file of notes a record, what asv reads anew.

    Twice is the same as once; the long frame of all records is the same before and after.  Records of other regimes
    (results_sustained) are rewritten too.  What asv reads is made of the notes and need not be in git: `git rm
    --cached` takes the files of older versions out of it.
    """
    folders = [folder for regime in REGIMES if (folder := folder_of(given.results, regime)).is_dir()]
    written, problems = dict[str, int](), list[Problem]()
    for folder in folders:
        written[str(folder)], unread = store.rewrite(folder, given.dry_run)
        problems += unread
    if given.as_json:
        print_json({"written": written, "problems": list(map(dataclasses.asdict, problems))})
    else:
        for name, count in written.items():
            click.echo(f"{name}: {plural(count, 'record')} {'would be ' if given.dry_run else ''}rewritten")
        for problem in problems:
            click.echo(f"left as it is: {plain(problem, 2000)}", err=True)
    return USAGE if problems else PASS
