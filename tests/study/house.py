"""The picture of ARCHITECTURE.md: every room of the house with its size, its subject and what it is built on.

    python -m tests.study.house .github/pictures/house.svg

Read off the files, so that it is never out of date: a room is a folder of a package, its subject the first sentence of
its docstring.  Within a package a room stands above those that it imports.  Arrows are the path of a sample.
"""

from __future__ import annotations

import ast
import dataclasses
import io
import textwrap
from pathlib import Path

import click
import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from tests.modules import PACKAGES, files, imports

COLUMNS = {"kernels": 2, "benchmarks": 2, "ci": 3, "dashboards": 1}
"""Columns of boxes that a package takes."""

SUBJECTS = {
    "kernels": "what is measured",
    "benchmarks": "how it is measured",
    "ci": "how it is decided",
    "dashboards": "how it is shown",
}
PATH = {("kernels", "benchmarks"): "launches", ("benchmarks", "ci"): "trial file", ("ci", "dashboards"): "records"}
COLOURS = {"kernels": "#dbe9f6", "benchmarks": "#e3f1df", "ci": "#fdf0d5", "dashboards": "#f3e1ee"}
BOX, GAP, SIZE = (2.05, 0.82), (0.14, 0.12), 7.0
"""Width and height of a box and the space between two, in inches; points of the text."""


@dataclasses.dataclass(frozen=True)
class Room:
    """A folder of a package; stands_on: how many others of its package it imports, and they do."""

    name: str
    lines: int
    subject: str
    stands_on: int


def rooms(package: str) -> list[Room]:
    """The rooms of a package, those that stand on others first."""
    of = {module: ".".join(module.split(".")[:2]) for module in files() if module.startswith(f"{package}.")}
    folders = {name for module, name in of.items() if module != name or files()[module].name == "__init__.py"}
    below: dict[str, set[str]] = {name: set() for name in folders}
    for module, name in of.items():
        if name in folders:
            below[name] |= {of[one] for one in imports(module) if of.get(one) in folders} - {name}
    found = [Room(name, _lines(name, of), _subject(name), len(_all_below(name, below))) for name in folders]
    return [*sorted(found, key=lambda room: (-room.stands_on, room.name)), _single(package, set(of.values()) - folders)]


def _single(package: str, modules: set[str]) -> Room:
    """What is a module and no folder, together."""
    names = sorted(name.partition(".")[2] for name in modules)
    lines = sum(files()[module].read_text().count("\n") for module in modules)
    return Room(f"{package}.{len(names)} modules", lines, ", ".join(n for n in names if not n.startswith("__")), 0)


def _all_below(name: str, below: dict[str, set[str]]) -> set[str]:
    """The rooms that a room imports, and those that they do."""
    reached, ahead = set(), {name}
    while ahead:
        reached |= ahead
        ahead = set().union(*(below[one] for one in ahead)) - reached
    return reached - {name}


def _lines(name: str, of: dict[str, str]) -> int:
    return sum(files()[module].read_text().count("\n") for module, room in of.items() if room == name)


def _subject(name: str) -> str:
    """The first sentence of a room's docstring, without its full stop."""
    said = ast.get_docstring(ast.parse(files()[name].read_text())) or ""
    return " ".join(said.split("\n\n")[0].split()).split(". ")[0].rstrip(".")


def drawn() -> str:
    """The picture as an SVG."""
    held = {package: rooms(package) for package in PACKAGES}
    wide = sum(COLUMNS.values()) * (BOX[0] + GAP[0]) + 0.6 * len(COLUMNS)
    tall = max(-(-len(held[name]) // count) for name, count in COLUMNS.items()) * (BOX[1] + GAP[1]) + 0.75
    with mpl.rc_context(
        {"svg.hashsalt": "house", "svg.fonttype": "none", "font.family": "sans-serif", "font.size": SIZE}
    ):
        figure = Figure((wide, tall))
        axes = figure.add_axes((0, 0, 1, 1), xlim=(0, wide), ylim=(tall, 0))
        axes.axis("off")
        left, middles = 0.15, {}
        for package, count in COLUMNS.items():
            width = count * (BOX[0] + GAP[0])
            axes.text(left, 0.3, package, fontsize=13, fontweight="bold")
            axes.text(left, 0.52, SUBJECTS[package], fontsize=9, color="#555555")
            for index, room in enumerate(held[package]):
                row, column = divmod(index, count)
                at = left + column * (BOX[0] + GAP[0]), 0.65 + row * (BOX[1] + GAP[1])
                _box(axes, at, room, COLOURS[package])
            middles[package] = (left - 0.1, left + width)
            left += width + 0.6
        for (start, end), what in PATH.items():
            x = (middles[start][1] - 0.08, middles[end][0] + 0.02)
            axes.annotate("", (x[1], 0.32), (x[0], 0.32), arrowprops={"arrowstyle": "-|>", "color": "#333333"})
            axes.text(sum(x) / 2, 0.22, what, ha="center", fontsize=8)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _box(axes: Axes, at: tuple[float, float], room: Room, colour: str) -> None:
    """A room: its name, its lines, its subject."""
    axes.add_patch(FancyBboxPatch(at, *BOX, "round,pad=0,rounding_size=0.06", facecolor=colour, edgecolor="#999999"))
    name = room.name.partition(".")[2]
    axes.text(at[0] + 0.08, at[1] + 0.17, name, fontsize=8.5, fontweight="bold")
    axes.text(at[0] + BOX[0] - 0.08, at[1] + 0.17, f"{room.lines:,} lines", ha="right", color="#555555")
    text = textwrap.shorten(room.subject, 104, placeholder=" ...")
    for index, line in enumerate(textwrap.wrap(text, 36, break_on_hyphens=False)):
        axes.text(at[0] + 0.08, at[1] + 0.35 + 0.14 * index, line)


@click.command(help=__doc__)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
def main(file: Path) -> None:
    file.write_text(drawn(), encoding="utf-8")


if __name__ == "__main__":
    main()
