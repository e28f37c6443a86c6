"""Options of `ridgeline sweep`: which points, how they are measured, and where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ci import harness
from ci.commands.sweeps.device_options import ARCH, BUDGET, COMPUTE_UNITS, NO_COMPILE
from ci.options import CASE, Seconds, together
from ci.sweeps import grid
from ci.sweeps.plan import BATCH
from ci.sweeps.rungs import CPU_ROUNDS, GPU_ROUNDS

TIERS = harness.TIERS


class ShardOption(click.ParamType[tuple[int, int]]):
    """K/N: one of N parts of the points."""

    name = "k/n"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        """The two numbers; a usage error says what is allowed."""
        if isinstance(value, tuple):
            return value
        number, _, count = str(value).partition("/")
        if not (number.isdigit() and count.isdigit() and 1 <= int(number) <= int(count) <= 1000):
            self.fail(f"{value!r}: expected K/N such as 3/8, with K from 1 to N", param, ctx)
        return int(number), int(count)


class RoundsOption(click.ParamType[tuple[int, ...]]):
    """R,R,...: rounds of each rung."""

    name = "r,r"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """The numbers; a usage error says what is allowed."""
        if isinstance(value, tuple):
            return value
        parts = str(value).split(",")
        if not all(part.isdigit() and 2 <= int(part) <= 10_000 for part in parts):
            self.fail(
                f"{value!r}: expected rounds of each rung such as 8,20,40,40,40, each from 2 to 10000", param, ctx
            )
        return tuple(map(int, parts))


def _said(rounds: tuple[int, ...]) -> str:
    return ",".join(map(str, rounds))


POINTS = together(
    click.option(
        "--grid",
        "files",
        multiple=True,
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="TOML or JSON: values by knob, or points (repeatable).",
    ),
    click.option(
        "--knob", "knobs", multiple=True, metavar="NAME=V,V", help="Values of a knob; several give every combination."
    ),
    click.option("--candidates", is_flag=True, help="The points that the operator itself proposes."),
    CASE,
    click.option(
        "--tier", type=click.Choice(TIERS), default="pr", show_default=True, help="Without --case: which cases."
    ),
    click.option(
        "--backend",
        "backends",
        multiple=True,
        metavar="NAME",
        help="Only this backend; one without knobs is timed as it is (repeatable).",
    ),
    click.option(
        "--anchor",
        default="",
        metavar="NAME",
        help="The backend at whose default the ratios are 1 (default: the first that is swept).",
    ),
    click.option(
        "--most", type=click.IntRange(1), default=grid.MOST, show_default=True, help="Refuse more points than this."
    ),
    click.option(
        "--sample",
        type=click.IntRange(1),
        metavar="N",
        help="Draw N points of a grid per case; the same ones every time.",
    ),
)
"""Which points."""
RULES = together(
    click.option(
        "--rounds",
        type=RoundsOption(),
        metavar="R,R,...",
        help=f"Rounds of each rung (default: {_said(GPU_ROUNDS)}; on a CPU {_said(CPU_ROUNDS)}).",
    ),
    click.option("--all", "everything", is_flag=True, help="Every point in every rung: nothing is dropped."),
    click.option(
        "--miss",
        type=click.FloatRange(0, 1, min_open=True, max_open=True),
        default=0.05,
        show_default=True,
        help="Accepted chance of dropping the best point.",
    ),
    click.option(
        "--batch",
        type=click.IntRange(1, 500),
        default=BATCH,
        show_default=True,
        help="Points that are timed in turn with one anchor.",
    ),
    click.option(
        "--regime",
        type=click.Choice(("spaced", "sustained")),
        default="spaced",
        show_default=True,
        help="Calls apart, or back to back at settled power.",
    ),
    click.option("--seed", type=click.IntRange(0), default=0, help="Seed of the inputs."),
    click.option(
        "--deadline", type=Seconds(), metavar="SECONDS", help="A step of a point that takes longer is a hang."
    ),
    click.option("--heap", type=click.Choice(harness.HEAPS), help="Home of the symmetric heap on GPUs."),
    click.option(
        "--registers", type=click.IntRange(1), metavar="N", help="Leave out points whose code has more registers."
    ),
    click.option("--spills", type=click.IntRange(0), metavar="N", help="Leave out points whose code spills more."),
    NO_COMPILE,
)
"""How they are measured."""
WHERE = together(
    click.option(
        "--out",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="Trial file; what it has is not measured again (default: one in .ridgeline/sweeps).",
    ),
    click.option("--resume", is_flag=True, help="What every call does anyway: go on with --out."),
    click.option(
        "--from",
        "earlier",
        multiple=True,
        type=click.Path(path_type=Path, exists=True),
        metavar="FILE",
        help="Lines of other shards that count as measured (repeatable).",
    ),
    click.option(
        "--shard",
        type=ShardOption(),
        default=(1, 1),
        metavar="K/N",
        help="Only this part of the points; the final rungs follow with --from.",
    ),
    BUDGET,
    click.option("--show", "only_show", is_flag=True, help="Measure nothing: table and figure of what is there."),
    ARCH,
    COMPUTE_UNITS,
    click.option("--no-figure", is_flag=True, help="Tables only."),
)
"""Where, how much of it, and what comes of it."""
