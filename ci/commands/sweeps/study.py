"""`ridgeline study`: a declared experiment, from its points to its figures."""

from __future__ import annotations

import dataclasses
import json

import click
from rich.table import Table

from benchmarks.studies import studies
from ci.options import JSON, PASS, example, out_console

EXAMPLE = example("ridgeline study --list")


@click.command(epilog=EXAMPLE)
@click.argument("name", required=False)
@click.option("--list", "listing", is_flag=True, help="The studies that are declared.")
@JSON
def study(name: str | None, listing: bool, as_json: bool) -> int:
    """Run a declared experiment: its points, its record, its table and its figures."""
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(one) for one in studies().values()], indent=1))
        return PASS
    table = Table("study", "question", "operators", "ranks", box=None)
    for one in studies().values():
        table.add_row(one.name, one.question, ", ".join(one.operators), ", ".join(map(str, one.ranks)))
    out_console().print(table)
    return PASS
