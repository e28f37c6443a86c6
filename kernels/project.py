"""What a project says about itself: `[tool.ridgeline]` in pyproject.toml, or the same keys in ridgeline.toml.

    kernels = ["perf"]             packages whose modules declare kernels
    sources = ["lib"]              folders that packages are imported from, beside the root, src and python
    results = "results"            folder of the records; beside it lie results_isa and results_sustained
    policy = "perf/policy.toml"    what counts as a regression
    events = "perf/events.toml"    what people decided about changes of the history
    runners = "perf/runners.toml"  the machines behind runner labels and Slurm partitions
    checkout.prepare = "COMMAND"   what makes the files that git ignores and kernels import, run in every checkout of a
                                   commit: a generated version, a build
    [[program]]                    a benchmark program of any language (benchmarks/programs/session.py has its keys)
    [[reader]]                     how the output of one is read (benchmarks/programs/reader.py has its keys)
    renamed = {"OLD" = "NEW"}      names of kernels (K), cases (K/CASE) and backends (K/BACKEND) that a commit gave up,
                                   and what they are called now; "" for what was deleted

Every key has a default.  Standard library only: `ci` reads it from here too.
"""

from __future__ import annotations

import dataclasses
import os
import tomllib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from .spec import DeclarationError

DEFAULT = ["kernels"]
"""The packages with kernels of a project that lists none."""

SOURCES = ("", "src", "python")
"""Folders of a checkout that its packages are looked up in; `src` by the packaging guide of PyPA."""

FILES = ("ridgeline.toml", "pyproject.toml")
EVENTS = "ci/events.toml"


class ProjectError(DeclarationError):
    """A project's settings cannot be used; the text names file, value, what is allowed and the next step."""


@dataclasses.dataclass(frozen=True)
class Project:
    """Settings of a project, with absolute paths.  policy, runners: None for those that Ridgeline comes with.

    file: what says so; None if nothing does.  prepare: the command for every checkout, "" for none.
    programs, readers: their tables, as they are written.
    """

    root: Path
    file: Path | None
    kernels: tuple[str, ...]
    results: Path
    events: Path
    policy: Path | None = None
    runners: Path | None = None
    prepare: str = ""
    renamed: Mapping[str, str] = dataclasses.field(default_factory=dict)
    programs: tuple[Mapping[str, Any], ...] = ()
    readers: tuple[Mapping[str, Any], ...] = ()

    @property
    def code(self) -> Path:
        """The folder of recorded machine code."""
        return self.results.with_name("results_isa")


def around(folder: Path) -> Project:
    """The project that a folder is in: the nearest one at or above it with settings, up to the root of its clone.

    Without any, that root is a project with defaults, or the folder where there is no clone.  Raises ProjectError.
    """
    folder = folder.resolve()
    for root in (folder, *folder.parents):
        found = _settings(root)
        if found is not None:
            return _project(root, *found)
        if (root / ".git").exists():
            return _project(root, None, {})
    return _project(folder, None, {})


def place(name: str | Path, root: Path | None = None) -> Path:
    """Where something lies that nobody named a place for: below the root of the project that the current folder is in.

    root: of another project.  The path is relative to the current folder, as people type it.  Raises ProjectError.
    """
    return Path(os.path.relpath((root or around(Path.cwd()).root) / name))


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where a checkout keeps what: its packages with kernels; the folders that packages are imported from, "" the root;
    and the records and settings of Ridgeline, which are no code of a kernel, as paths from the root.

    renamed: what its kernels, cases and backends were called before.
    """

    packages: tuple[str, ...]
    sources: tuple[str, ...] = SOURCES
    aside: tuple[str, ...] = ()
    renamed: Mapping[str, str] = dataclasses.field(default_factory=dict)


def layout(root: Path) -> Layout:
    """The layout of the checkout in a folder.  Raises ProjectError.

    Keys that are not needed for it are not looked at: an older or newer commit may have others.
    """
    path, table = _settings(root) or (root / "pyproject.toml", {})
    packages, named = _checked("kernels", table, path), _checked("sources", table, path)
    places = {key: table[key] for key in ("results", "policy", "events", "runners") if _place(table.get(key))}
    results = places.pop("results", "results")
    aside = (*(f"{results}{kind}" for kind in ("", "_isa", "_sustained")), FILES[0], EVENTS, *places.values())
    sources = dict.fromkeys([*SOURCES, *(named or ())])
    return Layout(tuple(packages or DEFAULT), tuple(sources), aside, _checked("renamed", table, path) or {})


def listed_packages(root: Path) -> list[str]:
    """The packages with kernels that the project in a folder lists; ["kernels"] without an entry."""
    return list(layout(root).packages)


def current_name(name: str, renamed: Mapping[str, str]) -> str:
    """What "kernel/backend/case" is called now, by the `renamed` of a project's settings, however often it was renamed.

    The name itself where they say nothing of it, "" where it was deleted.
    """
    for _ in renamed:  # more steps than entries would be a circle
        kernel, backend, case = name.split("/", 2)
        if (key := f"{kernel}/{case}") in renamed:
            kernel, _, case = renamed[key].partition("/")
        elif (key := f"{kernel}/{backend}") in renamed:
            kernel, _, backend = renamed[key].partition("/")
        elif (key := kernel) in renamed:
            kernel = renamed[key]
        else:
            return name
        if not renamed[key]:
            return ""
        name = f"{kernel}/{backend}/{case}"
    return name


def current_kernel(name: str, renamed: Mapping[str, str]) -> str:
    """What a kernel is called now; its old name where it was deleted."""
    return current_name(f"{name}/-/-", renamed).partition("/")[0] or name  # no backend and no case has the name -


def unknown_new_name(renamed: Mapping[str, str], declared: Mapping[str, Collection[str]]) -> str:
    """A sentence on the first new name that a checkout does not declare, "" if it declares them all.

    declared: the cases and backends of each of its kernels.
    """
    for new in filter(None, renamed.values()):
        kernel, _, part = new.partition("/")
        now = current_name(f"{kernel}/-/{part or '-'}", renamed)
        kernel, _, part = now.split("/") if now else ("", "", "")
        if not now or (kernel in declared and part in ("-", *declared[kernel])):
            continue
        there = f"{kernel} has" if kernel in declared else "there are"
        names = ", ".join(declared.get(kernel, declared))
        return (
            f'renamed has the new name "{new}", which head does not declare ({there} {names}); "" is for what is gone'
        )
    return ""


def _project(root: Path, file: Path | None, table: Mapping[str, Any]) -> Project:
    for key in table:
        if key not in KEYS:
            raise ProjectError(f"{file}: unknown key {key!r} of Ridgeline's settings; known: {', '.join(KEYS)}")
    said = {key: _checked(key, table, file) for key in KEYS}
    return Project(
        root,
        file,
        tuple(said["kernels"] or DEFAULT),
        root / (said["results"] or "results"),
        root / (said["events"] or EVENTS),
        root / said["policy"] if said["policy"] else None,
        root / said["runners"] if said["runners"] else None,
        (said["checkout"] or {}).get("prepare", ""),
        said["renamed"] or {},
        tuple(said["program"] or ()),
        tuple(said["reader"] or ()),
    )


def _settings(root: Path) -> tuple[Path, dict[str, Any]] | None:
    """File and table of a project's settings, None where neither file has any; ProjectError where both do."""
    own, packaging = (root / name for name in FILES)
    tool = _table(_read(packaging), "tool", packaging)
    table = _table(tool, "tool.ridgeline", packaging) if "ridgeline" in tool else None
    if not own.is_file():
        return (packaging, table) if table is not None else None
    if table is not None:
        raise ProjectError(f"{own} and [tool.ridgeline] in {packaging} both have settings; keep one of them")
    return own, _read(own)


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise ProjectError(f"{path} cannot be read as TOML: {error}; correct the file") from error


def _table(parent: dict[str, Any], name: str, path: Path) -> dict[str, Any]:
    found = parent.get(name.rsplit(".", 1)[-1], {})
    if not isinstance(found, dict):
        raise ProjectError(f"{path}: [{name}] is {found!r}, not a table; write [{name}] and its keys below")
    return found


def _is_package(name: Any) -> bool:
    return isinstance(name, str) and all(part.isidentifier() for part in name.split("."))


def _packages(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_package, value))


def _place(value: Any) -> bool:
    """A relative path within the project."""
    usable = isinstance(value, str) and value.strip() and value.isprintable()
    return bool(usable) and not PurePosixPath(value).is_absolute() and ".." not in PurePosixPath(value).parts


def _places(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_place, value))


def _text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip()) and value.isprintable()


def _checkout(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() <= {"prepare"} and all(map(_text, value.values()))


def _tables(value: Any) -> bool:
    """Tables with names, each name once."""
    if not isinstance(value, list) or not all(isinstance(one, dict) and _text(one.get("name")) for one in value):
        return False
    return len({one["name"] for one in value}) == len(value)


def _renamed(value: Any) -> bool:
    """Names with the same number of parts on both sides, or "" for what is gone."""
    if not isinstance(value, dict) or not all(isinstance(new, str) for new in value.values()):
        return False
    names = [*value, *filter(None, value.values())]
    alike = all(new.count("/") == old.count("/") for old, new in value.items() if new)
    return alike and all(1 <= len(name.split("/")) <= 2 and all(name.split("/")) for name in names)


_FILE = 'a file of the project, such as "perf/{}.toml"'
KEYS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "kernels": (
        _packages,
        'a list of at least one dotted package name; write kernels = ["kernels"], or list the packages that declare '
        "kernels",
    ),
    "sources": (_places, 'a list of folders of the project, such as ["lib"]'),
    "results": (_place, 'a folder of the project, such as "results"'),
    "policy": (_place, _FILE.format("policy")),
    "events": (_place, _FILE.format("events")),
    "runners": (_place, _FILE.format("runners")),
    "checkout": (_checkout, 'a table with a command, such as checkout = {prepare = "python setup.py build_ext -i"}'),
    "program": (_tables, 'tables [[program]], each with a name of its own, such as name = "bench", run = "./bench"'),
    "reader": (_tables, "tables [[reader]], each with a name of its own"),
    "renamed": (_renamed, 'a table such as {"gemm/m64" = "gemm/decode_m64", "old_kernel" = ""}'),
}
"""The known keys: whether a value is right, and what is allowed."""


def _checked(key: str, table: Mapping[str, Any], file: Path | None) -> Any:
    right, allowed = KEYS[key]
    if key in table and not right(table[key]):
        raise ProjectError(f"{file}: [tool.ridgeline] {key} is {table[key]!r}; allowed is {allowed}")
    return table.get(key)
