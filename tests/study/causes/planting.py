"""A planted regression, and the two source trees that differ by it and by edits that change nothing."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

from ci.git.repository import Commit, LocalCheckout
from ci.harness import HARNESS
from ci.trials.trial import Json
from ci.why.experiments import content, decoded

TABLE = Path(__file__).with_name("plants.toml")

INNOCENT = "\n\ndef spare():\n    return 1\n"
"""Added to files beside the planted edit, and to the planted file itself: another suspect that explains nothing."""

BYSTANDERS = ("kernels/_shared/units.py", "kernels/{home}/__init__.py")
"""Other files that are edited, with no effect."""


@dataclasses.dataclass(frozen=True)
class Plant:
    """A regression.  kind: of ten.  file: that is edited, "" for another compiler.  knob: whose value that changes.

    edits: (old, new) texts.  coupled: one edit without the other does not run.  words: one of them must stand in what
    is said of the machine code.  triton: versions that compiled base and head.
    """

    kind: str
    operator: str
    backend: str
    case: str
    arch: str
    file: str = ""
    knob: str = ""
    edits: tuple[tuple[str, str], ...] = ()
    coupled: bool = False
    words: tuple[str, ...] = ()
    triton: tuple[str, ...] = ()

    @property
    def home(self) -> str:
        """The folder of the operator below kernels/."""
        return "grouped_gemm" if self.operator.startswith("grouped_gemm") else self.operator

    def planted(self, text: str) -> str:
        """A file's text with the edits; ValueError if one does not apply."""
        for old, new in self.edits:
            if old not in text:
                raise ValueError(f"{self.file} has no {old!r}: mend the plant in {TABLE.name}")
            text = text.replace(old, new)
        return text

    def present(self, text: str) -> tuple[bool, ...]:
        """Which of the edits a file's text has."""
        return tuple(new in text if old in new else old not in text for old, new in self.edits)


def plants(table: Path = TABLE) -> list[Plant]:
    """Every planted regression."""
    found = tomllib.loads(table.read_text(encoding="utf-8"))["plant"]
    return [_plant(one) for one in found]


def _plant(table: Json) -> Plant:
    return Plant(**{name: _tuples(value) for name, value in table.items()})


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def trees(plant: Plant, folder: Path) -> tuple[LocalCheckout, LocalCheckout]:
    """Base and head in a folder that is not there yet, each a git repository of its own."""
    for role in ("base", "head"):
        where = folder / role
        shutil.copytree(HARNESS / "kernels", where / "kernels", ignore=shutil.ignore_patterns("__pycache__"))
        (where / "pyproject.toml").write_text('[tool.ridgeline]\nkernels = ["kernels"]\n')
        (where / ".gitignore").write_text("__pycache__/\n")
        subprocess.run(["git", "init", "--quiet", str(where)], check=True)
    head = folder / "head"
    if plant.file:
        path = head / plant.file
        innocent = INNOCENT if plant.file.endswith(".py") else "\n# spare\n"
        path.write_text(plant.planted(path.read_text()) + innocent)
    for name in (name.format(home=plant.home) for name in BYSTANDERS):
        if name != plant.file and (head / name).exists():
            (head / name).write_text((head / name).read_text() + INNOCENT)
    commits = {"base": Commit("b" * 40, 0, ""), "head": Commit("a" * 40, 0, "")}
    base, other = (LocalCheckout(role, folder / role, commit) for role, commit in commits.items())
    return base, other


def has(plant: Plant, tree: Path) -> tuple[bool, ...]:
    """Which of the edits a tree has."""
    return plant.present(decoded(content(tree / plant.file) or b""))
