"""The code of the operators of a checkout on this disk: its digests, and whether what ran is what they cover."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.reach import operators
from benchmarks.reach.tree import SourceTree, of_folder
from kernels.project import FILES

HARNESS = Path(__file__).resolve().parents[2]

BY_HARNESS = ("kernels/registry.py", "kernels/project.py", "kernels/_shared/__init__.py", *FILES)
"""Files of a checkout that the measuring process reads for itself: settings, and modules of one of Ridgeline."""

BY_PYTHON = ("sitecustomize", "usercustomize")
"""Modules that Python imports before all else (https://docs.python.org/3/library/site.html): the machine's, whatever
file of that name a checkout has."""

DIGITS = 12
"""Of the digest of a file that ran, in a trial file."""


@dataclasses.dataclass(frozen=True)
class Ran:
    """What a process ran of a checkout.  files: digest by path.  fault: what it must not have run; "" if nothing."""

    files: dict[str, str] = dataclasses.field(default_factory=dict)
    fault: str = ""


def of_harness() -> str:
    """A digest of what measures, checks and compiles: a kept result holds for one state of it."""
    files = [*(HARNESS / "benchmarks").rglob("*.py"), *(HARNESS / "kernels").glob("*.py")]
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(path.read_bytes())
    return digest.hexdigest()[: operators.DIGITS]


class CheckoutCode:
    """The source of a checkout as it was when it was first asked.  Raises kernels.project.ProjectError."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @functools.cached_property
    def tree(self) -> SourceTree:
        """All of its files."""
        return of_folder(self._root)

    @functools.lru_cache(maxsize=256)  # noqa: B019 - lives as long as a command
    def files(self, module: str = "") -> frozenset[str]:
        """The files that the operators of a module can come from; "": those of all operators."""
        if module:
            return frozenset(operators.reached(self.tree, [operators.part_of_module(self.tree, module)]))
        listed = {path for path in self.tree.files if self.tree.listed(path)}  # all of them are imported to list them
        return frozenset(operators.reached_by_all(self.tree) | listed)

    def digest(self, module: str = "") -> str:
        """Equal digests, equal code: 16 hexadecimal digits over these files."""
        return operators.digest(self.tree, self.files(module))

    def environment(self, module: str = "") -> dict[str, str]:
        """The environment variables that this code may look at, as far as they are set."""
        return operators.environment(self.tree, self.files(module))

    @functools.cached_property
    def tops(self) -> list[str]:
        """First names that modules among these files can have, from whatever folder they are imported."""
        parts = {part for path in self.files() if path.endswith(".py") for part in path.removesuffix(".py").split("/")}
        return sorted(part for part in parts if part.isidentifier() and not part.startswith("__"))

    def ran(self, module: str, files: Iterable[str], foreign: Iterable[Sequence[str]]) -> Ran:
        """What a process that ran operators of a module ran, by what benchmarks.worker.ran saw there."""
        known, own, fault = self.files(module), {}, ""
        for name, file in foreign:
            fault = fault or self._foreign(name, file)
        for file in files:
            path = self._inside(file)
            if path is None:
                fault = fault or self._elsewhere(file)
            elif path in known:
                own[path] = self.tree.digest(path)[:DIGITS]
            elif path not in BY_HARNESS:
                fault = fault or self._unseen(path)
        return Ran(own, fault)

    def _inside(self, file: str) -> str | None:
        """The path of a file from the root of the checkout, None where it lies elsewhere."""
        for root in {self._root.absolute(), self._root.resolve()}:
            path = Path(file)
            if path.is_relative_to(root):
                inside = path.relative_to(root).as_posix()
                return None if inside.startswith(".ridgeline/trees/") else inside
        return None

    def _foreign(self, name: str, file: str) -> str:
        own = next((path for path in operators.files_of_module(self.tree, name) if path in self.files()), "")
        if name in BY_PYTHON or not own or not self._is_copy(name, Path(file), own):
            return ""
        return (
            f"it ran module {name} of {file}, not that of this side's checkout ({own} in {self._root}): an installed "
            "copy comes first; say where the package lies in the repository (ridgeline.toml: sources = [...]), "
            "or uninstall it"
        )

    def _is_copy(self, name: str, file: Path, own: str) -> bool:
        """Whether a module from elsewhere is taken in place of one of this checkout, and has not only its name.

        Where the checkout's lies in a folder that nothing is imported from, most modules of the other one's package
        must be the checkout's as well: it may have stand-ins for the libraries that it uses.
        """
        if any(own.startswith(f"{source}/{name.partition('.')[0]}") for source in self.tree.layout.sources if source):
            return True
        depth = len(name.split(".")) - (file.stem != "__init__")
        if depth == 0 or own.startswith(name.partition(".")[0]):
            return True
        there, here = file.parents[depth - 1], "/".join(own.split("/")[:-depth]) + "/"
        names = {path.relative_to(there).as_posix() for path in there.rglob("*.py")}
        return 2 * sum(f"{here}{one}" in self.tree.files for one in names) >= len(names)

    def _elsewhere(self, file: str) -> str:
        return (
            f"it ran {file}, which is not in this side's checkout ({self._root}): the commit has no such file and an "
            "installation in place (pip install -e, a .pth file), PYTHONPATH or a path in the code leads to the other "
            "one; commit the file, say where packages lie (ridgeline.toml: sources = [...]), or uninstall it"
        )

    def _unseen(self, path: str) -> str:
        if path not in self.tree.files:
            return (
                f"it ran {path}, which is no file of the commit (git ignores it, or it was made meanwhile): commit it, "
                "or keep it outside of the repository"
            )
        return (
            f"it ran {path}, though nothing in the source of the operator says so: import it by its name, or write its "
            "name as a string where it is opened; else a change of it would go unseen"
        )
