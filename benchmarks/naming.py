"""Whose module a name means in a process that imports other people's code, and which files it has run of theirs.

A project may have packages of its own called kernels, benchmarks, ci or dashboards, and so may its dependencies.  So
in such a process the harness goes by the name `ridgeline.house`, and the plain names are the project's:

    ridgeline.house.benchmarks   our `benchmarks`; modules that are imported here name each other relatively
    ridgeline.spec               the contract of declarations: kernels/spec.py of the checkout if that is one of
                                 Ridgeline (its history is measured by its own contract), else ours
    kernels, benchmarks, ...     what lies in the checkout; `kernels.spec` is the contract where the project has none

Standard library only: this is imported before anything else.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

HARNESS = Path(__file__).resolve().parents[1]
"""The folder with our rooms."""

HOUSE = "ridgeline.house"
ROOMS = ("kernels", "benchmarks", "ci", "dashboards")

_in_force = ["kernels"]
"""The package with the contract; until `open_to`, as where no checkout is measured, it is plain `kernels`."""


def settle() -> None:
    """Take the names of the harness in this process, and give up the plain ones."""
    _package("ridgeline", [])
    _package(HOUSE, [str(HARNESS)])
    for name in [name for name in sys.modules if name.partition(".")[0] in ROOMS]:
        del sys.modules[name]
    sys.path[:] = [entry for entry in sys.path if not entry or Path(entry).resolve() != HARNESS]


def our(name: str) -> ModuleType:
    """A module of ours, such as "benchmarks.worker.requests", by the name that it has here."""
    return importlib.import_module(f"{HOUSE}.{name}" if HOUSE in sys.modules else name)


def open_to(checkout: Path) -> str:
    """Let the plain names be those of a checkout; returns the package with the contract: "kernels", or ours."""
    sources = our("kernels.project").layout(checkout).sources
    sys.path[:0] = [str(folder) for part in sources if (folder := checkout / part).is_dir()]
    own = carries_contract(checkout)
    contract = "kernels" if own else f"{HOUSE}.kernels"
    _in_force.append(contract)
    sys.meta_path.insert(0, ContractFinder(contract, everywhere=not own))
    _leave_path_to_children()
    return contract


def repository(checkout: Path) -> Path:
    """The folder of the repository that a checkout belongs to: of a worktree, that with the folder .git."""
    for folder in (checkout.resolve(), *checkout.resolve().parents):
        link = folder / ".git"
        if link.is_dir():
            return folder
        if link.is_file():  # "gitdir: /repository/.git/worktrees/NAME", gitrepository-layout(5)
            named = Path(link.read_text(encoding="utf-8", errors="replace").partition(":")[2].strip())
            common = (folder / named).parent.parent
            return common.parent if common.name == ".git" else folder
    return checkout


def carries_contract(checkout: Path) -> bool:
    """Whether a checkout is one of Ridgeline, with kernels/spec.py of its own."""
    spec = checkout / "kernels" / "spec.py"
    return spec.is_file() and "SPEC_VERSION" in spec.read_text(encoding="utf-8", errors="replace")


def contract(part: str) -> ModuleType:
    """A module of the contract in force, such as "spec" or "registry"."""
    return importlib.import_module(f"{_in_force[-1]}.{part}")


class ContractFinder(MetaPathFinder):
    """`ridgeline.X` is X of the contract; everywhere: `kernels.X` too, unless somebody else has a module of that name.

    Ours is never found as plain `kernels`, by whatever path: its declarations would be taken for the project's.
    """

    def __init__(self, contract: str, everywhere: bool) -> None:
        self._contract, self._everywhere = contract, everywhere

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        room, _, part = name.partition(".")
        if room == "ridgeline" and part and name != HOUSE and not name.startswith(f"{HOUSE}."):
            return self._alias(name, part)
        if room != "kernels" or not self._everywhere:
            return None
        if found := next((spec for spec in _of_others(self, name, path, target) if not _is_ours(spec)), None):
            return found
        return self._alias(name, part) if part else ModuleSpec(name, None, is_package=True)

    def _alias(self, name: str, part: str) -> ModuleSpec | None:
        real = f"{self._contract}.{part}"
        try:
            there = importlib.util.find_spec(real) is not None
        except ModuleNotFoundError:
            there = False
        return ModuleSpec(name, _Alias(real)) if there else None


def _of_others(finder: MetaPathFinder, *module: Any) -> Iterator[ModuleSpec]:
    """What the other finders find of a module."""
    for other in sys.meta_path:
        if other is not finder and (spec := other.find_spec(*module)) is not None:
            yield spec


class _Alias(Loader):
    """The module of another name, as it is."""

    def __init__(self, real: str) -> None:
        self._real = real

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._real)
        self._own = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._own


def _leave_path_to_children() -> None:
    """PYTHONPATH without our folder, by which the harness started this process: a kernel may start a Python too."""
    left = [one for one in os.environ.pop("PYTHONPATH", "").split(os.pathsep) if one and Path(one).resolve() != HARNESS]
    if left:
        os.environ["PYTHONPATH"] = os.pathsep.join(left)


def _is_ours(spec: ModuleSpec) -> bool:
    places = [*(spec.submodule_search_locations or ()), *([spec.origin] if spec.origin else [])]
    ours = HARNESS / "kernels"
    return any(ours in (Path(place).resolve(), *Path(place).resolve().parents) for place in places)


def _package(name: str, places: list[str]) -> None:
    spec = ModuleSpec(name, None, is_package=True)
    spec.submodule_search_locations = places
    sys.modules[name] = importlib.util.module_from_spec(spec)


# Modules changed as they are imported, in a process that runs other people's code.


Change = Callable[[ModuleType], None]
Choose = Callable[[str], "Change | None"]


class ChangingFinder(MetaPathFinder):
    """Finds what the other finders find, and has some modules changed right after they are executed."""

    def __init__(self, choose: Choose) -> None:
        self._choose = choose

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The spec of a module that is to be changed; None leaves all others to the other finders."""
        change = self._choose(name)
        if change is None:
            return None
        for spec in _of_others(self, name, path, target):
            if spec.loader is not None:
                spec.loader = ChangingLoader(spec.loader, change)  # type: ignore[assignment]
                return spec
        return None


class ChangingLoader(Loader):
    """A loader that changes the module when it has been executed; in all else it is the one that it has."""

    def __init__(self, loader: Any, change: Change) -> None:
        self._loader, self._change = loader, change

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """As the loader does it."""
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        """Execute it, then change it."""
        self._loader.exec_module(module)
        self._change(module)


@contextmanager
def changing(choose: Choose) -> Iterator[None]:
    """Change modules that are imported inside, and those that are there already."""
    for name, module in list(sys.modules.items()):
        if isinstance(module, ModuleType) and (change := choose(name)):
            change(module)
    finder = ChangingFinder(choose)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


# What a process has run or read of a repository: files of modules, files that were opened, files that are mapped.
#
# Watching begins before anything of a checkout is imported.  What the process itself wrote does not count.


WRITES = frozenset("wax")
HIDDEN = (".git", "__pycache__", "node_modules", "venv", "site-packages")
TREES = f"{os.sep}.ridgeline{os.sep}trees{os.sep}"
"""Where worktrees of a repository lie, in one of its hidden folders."""


class RanFiles:
    """Watches from its making on; a process has one, since what watches cannot be taken away again."""

    def __init__(self, checkout: Path) -> None:
        places = {checkout, repository(checkout)}
        self._roots = tuple(f"{place}{os.sep}" for one in places for place in {one.absolute(), one.resolve()})
        self._checkout = tuple(f"{place}{os.sep}" for place in {checkout.absolute(), checkout.resolve()})
        self._opened: set[str] = set()
        self._written: set[str] = set()
        self._told: set[str] = set()
        roots, opened, written = self._roots, self._opened, self._written
        absolute, exists = os.path.abspath, os.path.exists

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            if event != "open" and event != "ctypes.dlopen":
                return
            try:
                path = absolute(os.fsdecode(arguments[0]))
                if path.startswith(roots):
                    mode = str(arguments[1] or "") if event == "open" else ""
                    writes = not WRITES.isdisjoint(mode) or (len(arguments) > 2 and not mode and arguments[2] & 3)
                    if writes or exists(path):  # not a name that only stands in sys.path, as those of finders do
                        (written if writes else opened).add(path)
            except (TypeError, ValueError, OSError):  # a descriptor, or no path
                return

        sys.addaudithook(hook)

    def new(self, tops: Iterable[str] = ()) -> dict[str, list[Any]]:
        """What is new since the last time.  files: of the repository; foreign: (module, file) of modules that come from
        somewhere else, though the checkout has one of their first name, which is in `tops`."""
        wanted, foreign, ours = set(tops), [], set()
        found: set[str] = set()
        for name, file in _modules():
            if name.partition(".")[0] == "ridgeline":
                ours.add(file)
            elif file.startswith(self._roots):
                found.add(file)
            if name.partition(".")[0] in wanted and not file.startswith(self._checkout) and name not in self._told:
                self._told.add(name)
                foreign.append([name, file])
        found |= {_source(path) for path in self._opened - self._written} | set(mapped(self._roots))
        house = tuple(f"{HARNESS / room}{os.sep}" for room in ("benchmarks", "ci", "dashboards"))
        files = {path for path in found - ours - self._told if not path.startswith(house) and self._counts(path)}
        self._told |= files
        return {"files": sorted(files), "foreign": foreign}

    def _counts(self, path: str) -> bool:
        """Whether a file is one that a commit could have: not hidden, nor of an environment of installed packages."""
        root = max((root for root in self._roots if path.startswith(root)), key=len)
        inside = path[len(root) :]
        if not os.path.isfile(path):
            return False
        if path.startswith((f"{sys.prefix}{os.sep}", f"{sys.base_prefix}{os.sep}")) or ".egg-info" in inside:
            return False
        if TREES in f"{os.sep}{inside}":
            inside = inside.partition(TREES[1:])[2]
        return not any(part in HIDDEN or part.startswith(".") for part in inside.split(os.sep))


def _modules() -> Iterator[tuple[str, str]]:
    """Name and file of every module; nothing of a module runs for it."""
    for name, module in list(sys.modules.items()):
        try:
            file = object.__getattribute__(module, "__dict__").get("__file__")
        except (AttributeError, TypeError):
            continue
        if isinstance(file, str):
            yield str(name), os.path.abspath(file)


def _source(path: str) -> str:
    """The source that a compiled module was made of."""
    try:
        return importlib.util.source_from_cache(path) if path.endswith(".pyc") else path
    except ValueError:
        return path


def mapped(roots: tuple[str, ...]) -> Iterator[str]:
    """Files below some folders that are mapped into this process: shared libraries, and data.

    Read line by line: a kernel may have set a limit that leaves no memory for the whole.
    """
    wanted = tuple(os.fsencode(root) for root in roots)
    try:
        with open("/proc/self/maps", "rb") as maps:
            for line in maps:
                path = b"/" + line.rstrip(b"\n").partition(b"/")[2]
                if path.startswith(wanted):
                    yield os.fsdecode(path)
    except OSError:
        return
