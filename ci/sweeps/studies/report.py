"""What `ridgeline study` prints: a plan, and what came of a study."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

import click
from rich.table import Table

from benchmarks.studies.types import Study
from ci.options import out_console
from ci.sweeps.studies.folder import Rendered
from ci.sweeps.studies.points import ranks_named
from ci.sweeps.studies.ready import ReadyPart
from ci.sweeps.studies.run import Left


def planned(parts: Sequence[ReadyPart]) -> list[dict[str, object]]:
    """A dry run as JSON values, part by part."""
    return [
        {
            "operator": one.part.operator,
            "arch": one.catalogue.arch,
            "ranks": list(one.part.ranks),
            "cases": len(one.asked),
            "points": one.count,
            "measured": 0 if one.part.check else one.pruned.count,
            "checked": one.count if one.part.check else 0,
            "left_out": one.pruned.reasons(),
            "why": dict(Counter(each.why for each in one.pruned.dropped)),
            "gpu_minutes": 0.0 if one.part.check else round(one.expected.minutes, 2),
        }
        for one in parts
    ]


def plan_table(name: str, parts: Sequence[ReadyPart]) -> Table:
    """A dry run as a table."""
    arch = parts[0].catalogue.arch
    table = Table("operator", "ranks", "cases", "points", "measured", "left out", "GPU min", title=f"{name} on {arch}")
    for one in parts:
        reasons = "; ".join(f"{count} {why}" for why, count in one.pruned.reasons().items())
        minutes = "checked only" if one.part.check else f"{one.expected.minutes:.1f}"
        number = "0" if one.part.check else str(one.pruned.count)
        ranks = ranks_named(one.part.ranks)
        table.add_row(one.part.operator, ranks, str(len(one.asked)), str(one.count), number, reasons, minutes)
    return table


def why_nothing(parts: Sequence[ReadyPart], left: Sequence[Left]) -> str:
    """Why a study has no line."""
    said = [one.why for one in left] + [each.why for part in parts for each in part.pruned.dropped]
    return "; ".join(list(dict.fromkeys(said))[:3]) or "no point is left"


def show(study: Study, made: Rendered, as_json: bool) -> None:
    """Where everything is, the rules and what is missing; the table is in table.md and table.csv."""
    if as_json:
        click.echo(json.dumps(told(study, made), indent=1))
        return
    console = out_console()
    console.print(f"[bold]{study.title}[/bold]")
    console.print(f"{len(made.table)} rows in {made.folder / 'table.md'}, figures: {', '.join(made.figures) or 'none'}")
    for line in [one.said for one in made.guided] + [f"not there: {one}" for one in made.waits]:
        console.print(f"- {line}", markup=False)


def told(study: Study, made: Rendered) -> dict[str, object]:
    """What came of a study as JSON values."""
    rules = [{"rule": one.rule, "said": one.said} for one in made.guided]
    rows = json.loads(made.table.to_json(orient="records", double_precision=12))
    where = {"study": study.name, "folder": str(made.folder), "figures": list(made.figures)}
    return {**where, "waits": list(made.waits), "guidance": rules, "rows": rows}
