"""What every figure shares: paper, colours, axes with units, and a file that is the same for the same records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Okabe and Ito, Color Universal Design (2008): distinct with every common colour vision."""

MARKERS = ("o", "s", "^", "D", "v", "P")
"""A second way to tell what the colours tell."""

BASELINE = {"color": "#6b7280", "linestyle": (0, (5, 3)), "linewidth": 1.2}
MARK = "#5b636d"

FOOT_LINE, FOOT_MARGIN, LEGEND_LINE = 0.125, 0.12, 0.19
"""Inches: a line of 6.5 points, the room around all of them, and a line of a legend of 8 points."""

BINARY = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))

_STYLE: dict[str, Any] = {
    "svg.hashsalt": "ridgeline",
    "text.parse_math": False,
    "font.size": 9,
    "axes.spines.top": False,
    "axes.grid": True,
    "grid.color": "#e8eaee",
    "axes.axisbelow": True,
    "legend.frameon": False,
}


def style() -> Any:
    """The context in which a figure is drawn and saved."""
    return mpl.rc_context(_STYLE)


def plain(text: str) -> str:
    """A name as text: what cannot be printed is written out."""
    shown = "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)
    return shown.encode("utf-8", "backslashreplace").decode()


def elided(text: str, most: int) -> str:
    """A name in at most so many letters, its middle left out: names of cases differ at both ends."""
    shown = plain(text)
    return shown if len(shown) <= most else f"{shown[: most // 2]}…{shown[len(shown) - (most - most // 2 - 1) :]}"


def foot(figure: Figure, lines: Sequence[str], legend_rows: int = 0) -> float:
    """Lines below everything else, and room above them for rows of a legend, which the layout keeps free.

    Returns where the legend begins, as a part of the figure's height.
    """
    inches, height = FOOT_LINE * len(lines) + FOOT_MARGIN, figure.get_figheight()
    share = (inches + LEGEND_LINE * legend_rows) / height
    figure.get_layout_engine().set(rect=(0, share, 1, 1 - share))  # type: ignore[union-attr]
    looks: dict[str, Any] = {"fontsize": 6.5, "color": MARK, "va": "bottom", "linespacing": 1.35}
    figure.text(0.012, FOOT_MARGIN / 2 / height, "\n".join(map(plain, lines)), **looks)
    return inches / height


def binary(size: float) -> str:
    scale, unit = next((pair for pair in BINARY if size >= pair[0]), BINARY[-1])
    return f"{size / scale:g} {unit}"


def save(figure: Figure, path: Path | str) -> Path:
    """Write a figure; its suffix chooses the format."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    dateless: dict[str, dict[str, Any]] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    figure.savefig(path, dpi=160, metadata=dateless.get(path.suffix.lower()))
    return path
