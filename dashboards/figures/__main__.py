"""python -m dashboards.figures: one figure from the records (`ridgeline plot`)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from ci.history import kept, reading, readings
from ci.history.health import machines as machine_health
from ci.history.types import Moved
from ci.records import store
from ci.records.derived import derive
from dashboards.figures import cases
from dashboards.figures.studies.picture import FigureError, exit_code
from dashboards.views import studies as recorded_sweeps

EXAMPLE = "example:\n  python -m dashboards.figures shapes --kernel gemm --machine h200x1-537ca5d2 --out gemm.png"


def _history(wanted: argparse.Namespace) -> Path:
    kernel, case = _named(wanted, "kernel"), _named(wanted, "case")
    frame = _frame(wanted)
    machine = _machine(frame, wanted, kernel, case)
    moved = () if wanted.plain else _moved(frame, wanted.results)
    return cases.history(frame, machine, kernel, case, wanted.out, wanted.rate, moved)


def _moved(frame: pd.DataFrame, results: Path) -> list[Moved]:
    """All steps of the history."""
    return [one for steps in reading.of_frame(frame, results).steps.values() for one in steps]


def _bytes(wanted: argparse.Namespace) -> Path:
    frame, kernel = _frame(wanted), _named(wanted, "kernel")
    return cases.curve(frame, _machine(frame, wanted, kernel), kernel, wanted.out, wanted.rate or "busbw")


def _backends(wanted: argparse.Namespace) -> Path:
    return cases.backends(_frame(wanted), wanted.machine, _named(wanted, "kernel"), wanted.out)


def _shapes(wanted: argparse.Namespace) -> Path:
    return cases.shapes(_frame(wanted), wanted.machine, _named(wanted, "kernel"), wanted.out, wanted.rate)


def _roofline(wanted: argparse.Namespace) -> Path:
    return cases.roofline(_frame(wanted), wanted.machine, wanted.kernel, wanted.out)


def _scaling(wanted: argparse.Namespace) -> Path:
    return cases.scaling(_frame(wanted), _named(wanted, "kernel"), wanted.case, wanted.out, wanted.rate)


def _programs(wanted: argparse.Namespace) -> Path:
    points = [one for one in kept.curve_points(wanted.results)[0] if wanted.machine in (None, one.machine)]
    return cases.programs(points, wanted.kernel, wanted.case, wanted.out)


def _health(wanted: argparse.Namespace) -> Path:
    return cases.health(machine_health(readings.load(wanted.results)), wanted.machine, wanted.out)


def _sweep(wanted: argparse.Namespace) -> Path:
    found = recorded_sweeps.the_sweep(wanted.results, _named(wanted, "kernel"), wanted.machine)
    told, data = recorded_sweeps.sweep_figure(found, wanted.case)
    if not len(data):
        raise FigureError(f"the sweep has no case {wanted.case!r}; it has {', '.join(found.cases)}")
    return cases.drawn(told, data, wanted.out)


FIGURES: dict[str, Callable[[argparse.Namespace], Path]] = {
    "history": _history,
    "bytes": _bytes,
    "backends": _backends,
    "shapes": _shapes,
    "roofline": _roofline,
    "scaling": _scaling,
    "cus": _programs,
    "machine": _health,
    "sweep": _sweep,
}


def _frame(wanted: argparse.Namespace) -> pd.DataFrame:
    return derive(store.load(wanted.results))


def _named(wanted: argparse.Namespace, option: str) -> str:
    """An option that this figure needs."""
    value = getattr(wanted, option)
    if value is None:
        raise FigureError(f"a figure {wanted.what!r} needs --{option}")
    return str(value)


def _machine(frame: pd.DataFrame, wanted: argparse.Namespace, kernel: str, case: str | None = None) -> str:
    """The machine that was named, else the only one that has the case."""
    if wanted.machine:
        return str(wanted.machine)
    return cases.the_machine(cases.chosen(frame, kernel=kernel, case=case))


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
    return exit_code(lambda: [FIGURES[wanted.what](wanted)])


if __name__ == "__main__":
    sys.exit(main())
