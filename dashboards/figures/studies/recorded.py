"""python -m dashboards.figures.studies.recorded: the newest recorded sweep of an operator (`ridgeline plot sweep`)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from dashboards import recorded_sweeps
from dashboards.figures import canvas
from dashboards.figures.error import FigureError, exit_code
from dashboards.figures.studies import paper
from dashboards.figures.studies.kinds import KEYS, picture
from dashboards.figures.studies.spec import parse
from dashboards.recorded_sweeps import RecordedSweep

EXAMPLE = "example:\n  python -m dashboards.figures.studies.recorded --kernel gemm --out sweep.svg"


def the_sweep(results: Path, kernel: str, machine: str | None) -> RecordedSweep:
    """The newest sweep of an operator; FigureError where there is none, or of several machines."""
    every = map(recorded_sweeps.read, recorded_sweeps.newest(results))
    found = [one for one in every if one.facts["operator"] == kernel and machine in (None, one.facts["machine"])]
    if len(found) == 1:
        return found[0]
    there = ", ".join(one.facts["machine"] for one in found)
    where = f" on {machine}" if machine else ""
    said = f"several machines have a sweep of {kernel}; name one with --machine: {there}"
    raise FigureError(said if found else f"no sweep of {kernel}{where} is recorded; `ridgeline record` takes its lines")


def draw(wanted: argparse.Namespace) -> Path:
    """Draw all cases of the sweep, or one."""
    if wanted.kernel is None:
        raise FigureError("a figure 'sweep' needs --kernel")
    found = the_sweep(wanted.results, wanted.kernel, wanted.machine)
    told, data = recorded_sweeps.figure(found, wanted.case)
    if not len(data):
        raise FigureError(f"the sweep has no case {wanted.case!r}; it has {', '.join(found.cases)}")
    spec = parse(told, KEYS)
    with canvas.style():
        return canvas.save(paper.draw(spec, picture(spec, data)), wanted.out)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0: drawn, its path on stdout; 3: there is nothing to draw, or it cannot be written."""
    parser = argparse.ArgumentParser(
        prog="python -m dashboards.figures.studies.recorded",
        description=(__doc__ or "").strip(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=EXAMPLE,
    )
    parser.add_argument("--results", type=Path, default=Path("results"), metavar="DIR")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    for name in ("machine", "kernel", "case"):
        parser.add_argument(f"--{name}", metavar="NAME")
    wanted = parser.parse_args(arguments)
    return exit_code(lambda: [draw(wanted)])


if __name__ == "__main__":
    sys.exit(main())
