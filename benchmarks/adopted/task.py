"""What is asked of a script: which file, how it is started, and how it is measured."""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks.coordinator.checkouts import Checkout

SOURCES = ("src", "python", "lib")
"""Folders of a checkout, beside its top, in which a repository keeps the packages that its scripts import."""

SETS_VARIABLES = ("os.environ", "putenv", "environ[")
"""A script that says one of these may set variables before it imports torch: its process must not have imported it."""


@dataclasses.dataclass(frozen=True)
class ScriptRun:
    """path: of the script below the top of a checkout.  source: the file whose text runs on both sides.

    arguments: of the script.  paths: folders of a checkout that imports search, beside the usual ones.
    device: "cpu" sends what the script wants on a GPU to the CPU; "": as it is.
    folder: of a checkout, in which it runs.
    """

    path: str
    source: Path
    arguments: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    device: str = ""
    seed: int = 0
    folder: str = "."

    @property
    def operator(self) -> str:
        """Its name in the trial file."""
        return Path(self.path).stem

    @property
    def text(self) -> str:
        """What runs."""
        return self.source.read_text(encoding="utf-8", errors="replace")

    @property
    def by_pytest(self) -> bool:
        """Whether pytest has to run it: a file of tests, and nothing at its top that starts them."""
        try:
            top = ast.parse(self.text).body
        except (SyntaxError, ValueError):
            return False
        starts = any(isinstance(one, (ast.For, ast.While, ast.If)) or _is_call(one) for one in top)
        tests = any(isinstance(one, ast.FunctionDef) and one.name.startswith("test_") for one in top)
        return tests and not starts and Path(self.path).name.startswith("test_")

    @property
    def needs_fresh_python(self) -> bool:
        """Whether what it sets must be set before torch is imported."""
        return any(word in self.text for word in SETS_VARIABLES)

    def asked(self, checkouts: Sequence[Checkout]) -> str:
        """Digest of what a survey depends on; a checkout with changes of its own is never the same again."""
        sides = [[one.role, str(one.path), one.commit, one.dirty and _newest(one.path)] for one in checkouts]
        said = [self.path, self.text, self.arguments, self.paths, self.device, self.seed, self.folder, sides]
        return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:16]

    def roots(self, checkout: Path) -> list[str]:
        """Folders from which a side imports: those that were named, the usual ones, and the top."""
        wanted = [*self.paths, *SOURCES, "."]
        return [str((checkout / one).resolve()) for one in wanted if (checkout / one).is_dir()]

    def packages(self, checkout: Path) -> list[str]:
        """Names that the repository itself has, which a side must import from its checkout."""
        found = (one for root in self.roots(checkout) for one in Path(root).iterdir())
        return sorted({one.name for one in found if one.is_dir() and (one / "__init__.py").is_file()})


def _is_call(one: ast.stmt) -> bool:
    """Whether a statement is a call and nothing else."""
    return isinstance(one, ast.Expr) and isinstance(one.value, ast.Call)


def _newest(path: Path) -> float:
    """When a Python file of a checkout was changed last."""
    return max((one.stat().st_mtime for one in path.rglob("*.py") if ".ridgeline" not in one.parts), default=0.0)
