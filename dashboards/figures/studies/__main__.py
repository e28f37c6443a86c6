"""python -m dashboards.figures.studies: a figure of a study or a sweep, as PNG and SVG (see the package)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from dashboards.figures.studies import paper
from dashboards.figures.studies.kinds import KEYS, picture
from dashboards.figures.studies.picture import exit_code
from dashboards.figures.studies.spec import read_data, read_spec

FORMATS = (".png", ".svg")
EXAMPLE = "example:\n  python -m dashboards.figures.studies m_sweep.json --data m_sweep.csv --out out/m_sweep"


def figures(spec_path: Path, data_path: Path, prefix: Path) -> list[Path]:
    """Draw both files; FigureError or OSError if that cannot be done, and neither is then written."""
    spec = read_spec(spec_path, KEYS)
    drawn = picture(spec, read_data(data_path))
    with paper.style():
        figure = paper.draw(spec, drawn)
        return [paper.save(figure, prefix.with_name(prefix.name + suffix)) for suffix in FORMATS]


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0: drawn, the paths on stdout; 3: it cannot be drawn or written."""
    parser = argparse.ArgumentParser(
        prog="python -m dashboards.figures.studies",
        description=(__doc__ or "").strip(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=EXAMPLE,
    )
    parser.add_argument("spec", type=Path, metavar="SPEC.json")
    parser.add_argument("--data", type=Path, required=True, metavar="DATA.csv")
    parser.add_argument(
        "--out", type=Path, required=True, metavar="PREFIX", help="PREFIX.png and PREFIX.svg are written"
    )
    wanted = parser.parse_args(arguments)
    return exit_code(lambda: figures(wanted.spec, wanted.data, wanted.out))


if __name__ == "__main__":
    sys.exit(main())
