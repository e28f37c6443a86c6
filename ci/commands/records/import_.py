"""`ridgeline records import`: what other tools measured, into the history."""

from __future__ import annotations

from pathlib import Path

import click
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from ci.bars import Bars
from ci.options import ANY, DRY_RUN, JSON, PASS, RESULTS, USAGE, err_console, option, out_console, print_json, verb
from ci.records.foreign import reading, series_csv
from ci.records.imported import FOLDER
from ci.report.words import plural


@verb("ridgeline records import ../their-project/results --machine ci-node-3", name="import")
@click.argument("paths", nargs=-1, required=True, type=ANY)
@option("--as -> kind", "Format (default: told from each file).", click.Choice(reading.FORMATS))
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
    given = series_csv.ImportOptions(machine, kernel, commit, _date(date), unit)
    files = reading.sources(paths)
    with _bar() as bar:
        task = bar.add_task("importing", total=sum(map(reading.size, files)))
        done = reading.bring(files, results, given, kind, dry_run, lambda more: bar.advance(task, more))
    if as_json:
        print_json(_document(done))
    else:
        _print(done, results, dry_run)
    return USAGE if done.refused else PASS


def _date(text: str) -> int | None:
    try:
        return series_csv.moment(text) if text else None
    except series_csv.ForeignError as error:
        raise click.BadParameter(str(error), param_hint="--date") from None


def _bar() -> Progress:
    """A progress bar over bytes, where somebody looks at it."""
    columns = TextColumn("importing"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    return Bars(err_console(), *columns)


def _document(done: reading.Brought) -> dict[str, object]:
    return {
        "added": done.added,
        "known": done.known,
        "refused": done.refused,
        "points": done.points,
        "machines": sorted(done.machines),
        "problems": [{"where": problem.where, "why": problem.why} for problem in done.problems],
    }


def _print(done: reading.Brought, results: Path, dry_run: bool) -> None:
    said = f"{plural(done.points, 'point')} of {plural(done.added, 'file')}, {plural(done.known, 'file')} known already"
    verb, where = ("would import", f"into {results / FOLDER}") if dry_run else ("imported", f"in {results / FOLDER}")
    machines = ", ".join(sorted(done.machines)) or "no machine"
    out_console().print(f"{verb} {said}; {machines}; {where}", markup=False, soft_wrap=True)
    for problem in done.problems:
        out_console().print(f"  {problem}", markup=False, soft_wrap=True)
