"""python -m dashboards.figures: one figure from the records (`ridgeline plot`)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from ci.history import kept, reading, readings
from ci.history.health import machines as machine_health
from ci.records import store
from ci.records.derived import derive
from dashboards.figures import cases, sweeps
from dashboards.figures.picture import FigureError, exit_code

EXAMPLE = "example:\n  python -m dashboards.figures shapes --kernel gemm --machine h200x1-537ca5d2 --out gemm.png"


NEEDED = {
    "history": ("kernel", "case"),
    **dict.fromkeys(("bytes", "backends", "shapes", "scaling", "sweep"), ("kernel",)),
}
"""Options without which a figure cannot be drawn."""


def _frame(wanted: argparse.Namespace) -> pd.DataFrame:
    return derive(store.load(wanted.results))


def _history(wanted: argparse.Namespace) -> Path:
    frame = _frame(wanted)
    steps = {} if wanted.plain else reading.of_frame(frame, wanted.results).steps
    moved = [one for those in steps.values() for one in those]
    return cases.history(frame, wanted.machine, wanted.kernel, wanted.case, wanted.out, wanted.rate, moved)


def _programs(wanted: argparse.Namespace) -> Path:
    points = [one for one in kept.curve_points(wanted.results)[0] if wanted.machine in (None, one.machine)]
    return cases.programs(points, wanted.kernel, wanted.case, wanted.out)


def _sweep(wanted: argparse.Namespace) -> Path:
    found = sweeps.the_sweep(wanted.results, wanted.kernel, wanted.machine)
    told, data = found.figure(wanted.case)
    if not len(data):
        raise FigureError(f"the sweep has no case {wanted.case!r}; it has {', '.join(found.cases)}")
    return cases.drawn(told, data, wanted.out)


FIGURES: dict[str, Callable[[argparse.Namespace], Path]] = {
    "history": _history,
    "bytes": lambda one: cases.curve(_frame(one), one.machine, one.kernel, one.out, one.rate or "busbw"),
    "backends": lambda one: cases.backends(_frame(one), one.machine, one.kernel, one.out),
    "shapes": lambda one: cases.shapes(_frame(one), one.machine, one.kernel, one.out, one.rate),
    "roofline": lambda one: cases.roofline(_frame(one), one.machine, one.kernel, one.out),
    "scaling": lambda one: cases.scaling(_frame(one), one.kernel, one.case, one.out, one.rate),
    "cus": _programs,
    "machine": lambda one: cases.health(machine_health(readings.load(one.results)), one.machine, one.out),
    "sweep": _sweep,
}


def _draw(wanted: argparse.Namespace) -> list[Path]:
    for option in NEEDED.get(wanted.what, ()):
        if getattr(wanted, option) is None:
            raise FigureError(f"a figure {wanted.what!r} needs --{option}")
    return [FIGURES[wanted.what](wanted)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0: drawn, its path on stdout; 3: there is nothing to draw, or it cannot be written."""
    parser = argparse.ArgumentParser(
        prog="python -m dashboards.figures",
        description=(__doc__ or "").strip(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=EXAMPLE,
    )
    parser.add_argument("what", choices=FIGURES)
    parser.add_argument("--results", type=Path, default=Path("results"), metavar="DIR")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    for name in ("machine", "kernel", "case", "rate"):
        parser.add_argument(f"--{name}", metavar="NAME")
    parser.add_argument("--plain", action="store_true", help="a history without its steps")
    wanted = parser.parse_args(arguments)
    return exit_code(lambda: _draw(wanted))


if __name__ == "__main__":
    sys.exit(main())
