"""Figures of studies and sweeps: one SPEC, what to draw, and one DATA, a table; the site draws the same two.

    python -m dashboards.figures.studies SPEC.json --data DATA.csv --out PREFIX     writes PREFIX.png and PREFIX.svg

`ci` cannot import this package: it writes SPEC (JSON, one object) and DATA (CSV, head and rows) and starts a process.
The same two files give the same bytes.  Exit code 3 and one sentence if they cannot be drawn.

SPEC, for every kind:

    kind       one of the kinds below
    title      text
    foot       {"machine", "versions", "commit"} must be there (empty: not known); "date", "regime", "note" and others
               may: each is written below the figure as it is
    where      {column: value or [values]}: only these rows (optional)
    published  [{"label"?, "source", "device", "method", "date", "unit", "quantity"?, "x": number or null, "y": number}]
               is drawn as dashed lines with names, points of one label joined; x null: a level over the whole width.
               Only those of the unit (and the column, if "quantity" names one) of the y axis.  Never part of DATA

A QUANTITY (an axis) is the name of a column of texts, or of one that `spec.py` knows (M, us, tflops, gbs, busbw,
ratio, world, cus, ...), or {"column", "label", "unit", "scale"?, "low"?, "high"?}: unit "1" for a pure number; scale
"linear", "log", "log2", "bytes" or "category"; low and high: columns with the ends of an interval (of a "ratio", "low"
and "high" if they are there).  Cells that are empty or not finite are not drawn; the foot says how many.  Names of a
category, of groups and of panels stand in the order of DATA, numbers by size.

Kinds, what their SPEC has, and what they draw:

    curve         x, y: quantities; group: column (optional); baselines: [group] drawn grey and dashed; ticks: "values"
                  for a tick at each x (default where there are 12 or fewer).  Rows of a group are joined in order of x
    panels        the same in several axes.  Either by: column (one panel for each of its values), or
                  panels: [{"title"?, "x"?, "y"?, "where"?, "group"?}], each over the keys above; legend shared
    cus           as curve, x default "cus", y default "busbw"; by: column for panels (size, dtype)
    scaling       as curve, x default "world"; y; group; by: column for panels ("mode": strong, weak); ideal:
                  "proportional", "constant" or "inverse", from the fewest ranks of each group, or {panel: one of them};
                  ceiling: column with the link ceiling in the unit of y (optional)
    heatmap       x, y: category columns (numbers are sorted as numbers); value: quantity; better: "lower" (default) or
                  "higher"; relative: "x" (cell / best of its column), "all" (best of the map) or null (the value);
                  by: column for panels.  Where several rows fall into a cell, the best is drawn, and the foot says so
    roofline      columns flops, hbm_bytes, link_bytes (0 or empty: none), seconds, each per rank; group: column
                  (colour: backend or configuration; of more than 12 values, the others are grey); label: column
                  (default "case"), written beside up to 12 points; ceilings: {"peak_tflops": {dtype: number},
                  "hbm_gbs": number, "link_gbs": number or null}, per rank.  Link ceiling: a second panel over FLOP per
                  byte of links
    before_after  columns change, case, before, after (one quantity: value, default "us"), ratio_low, ratio_high
                  (optional, of after / before); code: [{"label", "before": column, "after": column}], facts of the
                  machine code, as a small table beside
    bars          x: category column (cases); y: quantity; group: column (backends); baselines; by: column for
                  panels; geomean: true (default) adds the geometric mean of each group over the cases that all have.
                  More than 40 cases x groups: dots instead of bars
    sweep         columns point (its name), ratio, low, high (time / anchor time and interval), status ("ok", else why
                  it was pruned or failed, counted in the foot); anchor (the name of the anchor, in the spec); group:
                  column (colour, optional); by: column for panels (case).  Ranked, the winner is named

A study's folder, `results/studies/NAME/MACHINE/`, as the site reads it: for each figure FIGURE.json (the SPEC),
FIGURE.csv (the DATA), FIGURE.png and FIGURE.svg; table.csv and table.md; and study.json:

    {"name", "title", "question", "operators": [...], "machine", "device", "commit", "date" (ISO), "versions", "regime",
     "figures": [FIGURE, in order], "waits": [what a part waits for], "guidance": [{"rule", "loses": number or null}]}

loses: time over that of the best point, minus 1.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from dashboards.figures import paper
from dashboards.figures.kinds import KEYS, picture
from dashboards.figures.picture import exit_code
from dashboards.figures.spec import read_data, read_spec

TOLD = "python -m dashboards.figures.studies: a figure of a study or a sweep, as PNG and SVG (see the package)."
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
        description=TOLD,
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
