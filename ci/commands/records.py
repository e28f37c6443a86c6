"""`ridgeline records`: what others measured, in; the records out for any engine, or to a branch."""

from __future__ import annotations

import datetime
from pathlib import Path

import click
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from ci.bars import Bars
from ci.git import push as pushing
from ci.options import (
    ANY,
    DRY_RUN,
    FOLDER_THERE,
    JSON,
    PASS,
    RESULTS,
    USAGE,
    Parsed,
    err_console,
    flag,
    option,
    out_console,
    print_json,
    several,
    verb,
)
from ci.records import derived as exported
from ci.records import foreign, foreign_csv
from ci.records.cache import IMPORTED
from ci.records.samples import published
from ci.report.words import plural
from kernels import project


@verb("ridgeline records import ../their-project/results --machine ci-node-3", name="import")
@click.argument("paths", nargs=-1, required=True, type=ANY)
@option("--as -> kind", "Format (default: told from each file).", click.Choice(foreign.FORMATS))
@option("--machine NAME", "Machine they were measured on, where the file is wrong.", default="")
@option("--kernel NAME", "What was measured, where the file does not say it.", default="")
@option("--commit NAME", "Commit that was measured, for logs that do not say it.", default="")
@option("--date ISO", "When, for logs that do not say it (default: the file's date).", default="")
@option("--unit UNIT", "Unit of a CSV's values (s, ms, us, ns; default: s).", default="")
@RESULTS
@JSON
@DRY_RUN
def import_(
    paths: tuple[Path, ...],
    kind: str | None,
    machine: str,
    kernel: str,
    commit: str,
    date: str,
    unit: str,
    results: Path,
    as_json: bool,
    dry_run: bool,
) -> int:
    """Read files and folders of asv, nccl-tests, rccl-tests, hyperfine, Google Benchmark, or a CSV with a column value.

    Importing again changes nothing; what cannot be used is named, the rest is imported.  An interrupted import goes on.
    """
    given = foreign_csv.ImportOptions(machine, kernel, commit, _date(date), unit)
    files = foreign.sources(paths)
    with _bar() as bar:
        task = bar.add_task("importing", total=sum(map(foreign.size, files)))
        done = foreign.bring(files, results, given, kind, dry_run, lambda more: bar.advance(task, more))
    if as_json:
        print_json(_document(done))
    else:
        _print(done, results, dry_run)
    return USAGE if done.refused else PASS


def _date(text: str) -> int | None:
    try:
        return foreign_csv.moment(text) if text else None
    except foreign_csv.ForeignError as error:
        raise click.BadParameter(str(error), param_hint="--date") from None


def _bar() -> Progress:
    """A progress bar over bytes, where somebody looks at it."""
    columns = TextColumn("importing"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    return Bars(err_console(), *columns)


def _document(done: foreign.Brought) -> dict[str, object]:
    return {
        "added": done.added,
        "known": done.known,
        "refused": done.refused,
        "points": done.points,
        "machines": sorted(done.machines),
        "problems": [{"where": problem.where, "why": problem.why} for problem in done.problems],
    }


def _print(done: foreign.Brought, results: Path, dry_run: bool) -> None:
    said = f"{plural(done.points, 'point')} of {plural(done.added, 'file')}, {plural(done.known, 'file')} known already"
    verb, where = (
        ("would import", f"into {results / IMPORTED}") if dry_run else ("imported", f"in {results / IMPORTED}")
    )
    machines = ", ".join(sorted(done.machines)) or "no machine"
    out_console().print(f"{verb} {said}; {machines}; {where}", markup=False, soft_wrap=True)
    for problem in done.problems:
        out_console().print(f"  {problem}", markup=False, soft_wrap=True)


# ---- export ----------------------------------------------------------------------------------------------------------


EXAMPLES = (
    "ridgeline records export --out history --kernel gemm --since 2026-01-01\n"
    "  ridgeline records export --samples --out samples"
)


def _path(said: str) -> Path:
    """An empty text, as an unset variable of a shell gives it, is none."""
    if not said:
        raise ValueError("'' names no path")
    return Path(said)


@verb(EXAMPLES)
@option(
    "--out",
    "Folder of Parquet files, one folder a machine; or a file for csv and json.",
    Parsed("path", _path),
    default=lambda: project.place("export"),
    show_default="export",
)
@option(
    "--format -> kind", "parquet, csv, or json (an object a line).", click.Choice(exported.FORMATS), default="parquet"
)
@flag("--samples", "Every sample instead, a row each, from wherever they are (Parquet only).")
@several("--machine NAME", "Only this machine (repeatable).")
@several("--kernel NAME", "Only this kernel (repeatable).")
@option("--since", "Only commits from this day on (UTC).", click.DateTime(["%Y-%m-%d"]))
@RESULTS
@JSON
@DRY_RUN
def export(
    out: Path,
    kind: str,
    samples: bool,
    machine: tuple[str, ...],
    kernel: tuple[str, ...],
    since: datetime.datetime | None,
    results: Path,
    as_json: bool,
    dry_run: bool,
) -> int:
    """Write the long frame: one row per machine, commit, environment, kernel, backend and case.

    Times are seconds; TFLOPS, GB/s, share of the peak and ratio to the baseline stand beside them.
    """
    if samples and kind != "parquet":
        raise click.UsageError(f"--samples writes Parquet only; leave out --format {kind}")
    chosen = machine, kernel, since, dry_run
    done = exported.export_samples(results, out, *chosen) if samples else exported.export(results, out, kind, *chosen)
    if as_json:
        print_json({"rows": done.rows, "paths": [str(path) for path in done.paths]})
    else:
        verb = "would be " if dry_run else ""
        what = "samples" if samples else "rows"
        click.echo(f"{done.rows:,} {what} {verb}in {out}" if done.rows else f"no record matches; nothing in {out}")
    return PASS


# ---- push ------------------------------------------------------------------------------------------------------------


WHAT = {"results_isa": "Record machine code"}


@verb("ridgeline records push results main --dry-run")
@click.argument("folder", type=FOLDER_THERE)
@click.argument("branch")
@DRY_RUN
def push(folder: Path, branch: str, dry_run: bool) -> int:
    """Commit what is new in a folder of records, and nothing else, and push it to a branch.

    Samples that are in a branch of their own (pyproject.toml, [tool.ridgeline] samples) are pushed first.
    GITHUB_TOKEN is shown to GITHUB_SERVER_URL only.
    """
    if dry_run:
        click.echo(f"would commit what is new in {folder} and push it to {branch}")
        return PASS
    if said := published(folder):
        click.echo(said)
    click.echo(pushing.pushed(folder, branch, WHAT.get(folder.name, "Record measurements")))
    return PASS
