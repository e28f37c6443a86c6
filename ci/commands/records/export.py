"""`ridgeline records export`: the records, with derived units, for any engine."""

from __future__ import annotations

import datetime
from pathlib import Path

import click

from ci.options import DRY_RUN, JSON, PASS, RESULTS, Parsed, flag, option, print_json, several, verb
from ci.records import exported
from kernels import project

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
