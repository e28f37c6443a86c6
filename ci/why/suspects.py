"""What differs between base and head in a case and can be put back: knobs, files and parts of them, the environment;
and trees between the two sides, head with some of it as it is in base."""

from __future__ import annotations

import ast
import dataclasses
import difflib
import functools
import hashlib
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.reach import compared, declared, differing_files
from benchmarks.sources import SourceTree, is_of_part, of_folder, syntax
from ci.git.command import git
from ci.git.repository import LocalCheckout, records
from ci.trials.trial import Arm, Environment, Scalar, Trial
from ci.why.search import Suspect, SuspectKind
from kernels import project

# The places in which two texts of a file differ, and the text of one with some places as they are in the other.


@dataclasses.dataclass(frozen=True)
class Hunk:
    """Lines that differ: [start, end) in either text, counted from 0.  where: the function or class around them."""

    number: int
    base: tuple[int, int]
    head: tuple[int, int]
    where: str = ""


def hunks(base: str, head: str) -> tuple[Hunk, ...]:
    """Every place in which head differs from base, in order."""
    old, new = base.splitlines(), head.splitlines()
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    around = _definitions(head)
    places = [(a, b, c, d) for tag, a, b, c, d in matcher.get_opcodes() if tag != "equal"]
    return tuple(Hunk(n, (a, b), (c, d), _name(around, c)) for n, (a, b, c, d) in enumerate(places))


def put_back(base: str, head: str, numbers: Collection[int]) -> str:
    """Head's text with the hunks of these numbers as they are in base."""
    old, new = base.splitlines(keepends=True), head.splitlines(keepends=True)
    lines: list[str] = []
    at = 0
    for hunk in hunks(base, head):
        lines += new[at : hunk.head[0]]
        lines += old[slice(*hunk.base)] if hunk.number in numbers else new[slice(*hunk.head)]
        at = hunk.head[1]
    return "".join(_ended(lines + new[at:]))


def same_program(base: str, head: str) -> bool:
    """Whether two texts of Python differ in comments and blank space only; False if one of them is no Python."""
    return (code := syntax(base)) is not None and code == syntax(head)


def changed_lines(base: str, head: str, hunk: Hunk) -> tuple[str, str]:
    """(base's, head's) first line of a hunk that says something, "" where a side has none."""
    return _first(base.splitlines()[slice(*hunk.base)]), _first(head.splitlines()[slice(*hunk.head)])


def _first(lines: Sequence[str]) -> str:
    return next((line.strip() for line in lines if line.strip() and not line.strip().startswith("#")), "")


def _ended(lines: list[str]) -> Iterator[str]:
    """Lines that all end, but perhaps the last."""
    yield from (line if line.endswith("\n") else f"{line}\n" for line in lines[:-1])
    yield from lines[-1:]


Definition = tuple[int, int, str]
"""[start, end) of a function or class, counted from 0, and its name."""


def _definitions(text: str) -> list[Definition]:
    """The functions and classes of the top level, with their decorators; none if it is no Python."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError):
        return []
    named = [node for node in body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))]
    return [(_start(node), node.end_lineno or node.lineno, node.name) for node in named]


def _start(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]) - 1


def _name(around: Sequence[Definition], start: int) -> str:
    """The definition in which a place begins, "" outside of all."""
    return next((name for first, last, name in around if first <= start < last), "")


# Source trees of head with some files as they are in base: copies, which leave git's index, refs and objects alone.


@dataclasses.dataclass(frozen=True)
class Sides:
    """Both sides of a comparison as they lie on the disk; folder: where trees between the two are put."""

    base: LocalCheckout
    head: LocalCheckout
    folder: Path

    @functools.cached_property
    def sources(self) -> tuple[SourceTree, SourceTree]:
        """The files that an operator can come from, of base and of head."""
        base, head = (of_folder(side.path) for side in (self.base, self.head))
        return base, head

    def texts(self, name: str) -> tuple[str, str]:
        """A file on both sides, "" where a side lacks it."""
        base, head = (content(side.path / name) or b"" for side in (self.base, self.head))
        return decoded(base), decoded(head)

    def between(self, put: Iterable[Suspect]) -> LocalCheckout:
        """Head with the files, and parts of files, that are put back; head itself where there are none."""
        suspects = list(put)
        files = {s.path: content(self.base.path / s.path) for s in suspects if s.kind is SuspectKind.FILE}
        parts = {s.path for s in suspects if s.kind is SuspectKind.PART} - files.keys()
        for name in parts:
            numbers = {number for s in suspects if s.path == name for number in s.hunks}
            files[name] = put_back(*self.texts(name), numbers).encode()
        return self._head_with(files) if files else self.head

    def _head_with(self, files: dict[str, bytes | None]) -> LocalCheckout:
        """A copy of head with these contents; one that is there already is used as it is."""
        uncommitted = [content(self.head.path / name) for name in self.head.changed]
        key = digest(self.head.commit.hash, uncommitted, sorted(files.items()))
        where = self.folder / f"tree-{key}"
        if not where.exists():
            draft = where.with_name(f"{where.name}.draft")
            shutil.rmtree(draft, ignore_errors=True)
            _copied(self.head.path, draft, set(listed(self.head.path)) - files.keys())
            for name, data in files.items():
                _written(draft / name, data)
            draft.rename(where)
        return dataclasses.replace(self.head, path=where, changed=(*self.head.changed, *files))


def listed(folder: Path) -> list[str]:
    """The files of a checkout, committed or not, those of submodules too, without records.

    Ignored files are left out, but in a checkout that a project prepares, which is made of nothing else.
    """
    own, ignored = ("--cached", "--others", "--exclude-standard"), ("--others", "--ignored", "--exclude-standard")
    prepared = (folder / ".git").is_file() and project.around(folder).prepare
    kinds = [own, ignored] if prepared else [own]
    names = [git(folder, "ls-files", "-z", *how, "--", ".", *records(folder)).split("\0") for how in kinds]
    paths = []
    for name in filter(None, (name for some in names for name in some)):
        below = (folder / name).rglob("*") if (folder / name).is_dir() else [folder / name]
        files = [path for path in below if not path.is_dir() and not {".git", "__pycache__"} & {*path.parts}]
        paths += [path.relative_to(folder).as_posix() for path in files]
    return paths


def content(path: Path) -> bytes | None:
    """The bytes of a file, of a link its target; None if there is none."""
    if path.is_symlink():
        return str(path.readlink()).encode()
    return path.read_bytes() if path.is_file() else None


def decoded(data: bytes) -> str:
    """Text as it can be compared."""
    return data.decode("utf-8", "surrogateescape")


def _copied(source: Path, target: Path, names: Collection[str]) -> None:
    target.mkdir(parents=True)
    for name in names:
        if (source / name).exists() or (source / name).is_symlink():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source / name, target / name, follow_symlinks=False)


def _written(path: Path, data: bytes | None) -> None:
    if data is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def digest(*parts: object) -> str:
    """12 hex digits of values."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


# What differs, and how likely it is the cause.


KNOBS, ENVIRONMENT = 9.0, 9.0
"""Weights: a knob of this very case that differs, and another compiler or library, are there for their effect; a file
can differ for any reason.  Only the order of all weights counts (2026-11)."""

OWN, USED, UNSEEN = 3.0, 1.0, 0.1
"""Weights: a file of the operator's own folder; one that it imports, directly or not; any other file of the packages
with kernels, where it is not known what imports what."""

MOST_PARTS = 8
"""Parts of a file that are told apart; where more lines differ, all of one function are one part."""

LONGEST = 60
"""Characters of a line of source that a report shows."""


def of_case(trial: Trial, case: str, backend: str, sides: Sides, other_python: bool) -> list[Suspect]:
    """Everything that may make a backend slower in a case that the trial has on both sides.

    other_python: base was run by a Python of its own, so that head can be run by it.
    """
    arms = trial.cases[case].arms
    knobs_and_files = [*of_knobs(arms["base", backend], arms["head", backend]), *of_files(trial.operator, sides)]
    environments = (trial.checkouts[role].environment for role in ("base", "head"))
    return [*knobs_and_files, *(of_environment(*environments) if other_python else ())]


def of_knobs(base: Arm, head: Arm) -> Iterator[Suspect]:
    """The knobs that have another value; one that only one side knows cannot be put back by its value."""
    for name, old in base.knobs.items():
        if name in head.knobs and head.knobs[name] != old:
            change = f"{_shown(old)} → {_shown(head.knobs[name])}"
            yield Suspect(SuspectKind.KNOB, name, change, setting=f"{name}={old!r}", weight=KNOBS)


def of_files(operator: str, sides: Sides) -> list[Suspect]:
    """The files that differ and that the operator can come from in base or head."""
    base, head = sides.sources
    reach = compared(base, head)
    if reach.unknown or operator not in {*reach.same, *reach.differing}:
        of_base, of_head = ([path for path in side.files if side.listed(path)] for side in (base, head))
        weights = dict.fromkeys(differing_files(base, of_base, head, of_head), UNSEEN)
    else:
        homes = {part for side in (base, head) for part in declared(side).get(operator, ())}
        differing = reach.differing.get(operator, ())
        weights = {path: OWN if any(is_of_part(path, part) for part in homes) else USED for path in differing}
    files = {path: weight for path, weight in weights.items() if not path.endswith("/")}  # a submodule is no file
    return [Suspect(SuspectKind.FILE, path, path=path, weight=weight) for path, weight in files.items()]


def of_environment(base: Environment, head: Environment) -> tuple[Suspect, ...]:
    """The Python of base, with everything in it that has another version."""
    old, new = base.versions, head.versions
    names = [name for name in dict.fromkeys([*old, *new]) if name != "executable" and old.get(name) != new.get(name)]
    change = ", ".join(f"{name} {_shown(old.get(name))} → {_shown(new.get(name))}" for name in names)
    named = "compiler" if "triton" in names else "environment"
    return (Suspect(SuspectKind.ENVIRONMENT, named, change, weight=ENVIRONMENT),) if names else ()


def parts_of(name: str, sides: Sides) -> list[Suspect]:
    """The parts of a file that can be put back one by one; those that only read differently are left out."""
    base, head = sides.texts(name)
    places = [hunk for hunk in hunks(base, head) if not _idle(name, base, head, hunk)]
    groups: dict[object, list[Hunk]] = {}
    for hunk in places:
        groups.setdefault(hunk.number if len(places) <= MOST_PARTS else hunk.where, []).append(hunk)
    return [_part(name, base, head, group) for group in groups.values()]


def _idle(name: str, base: str, head: str, hunk: Hunk) -> bool:
    """Whether a part differs in comments and blank space only."""
    return name.endswith(".py") and same_program(put_back(base, head, {hunk.number}), head)


def _part(name: str, base: str, head: str, group: Sequence[Hunk]) -> Suspect:
    first, numbers = group[0], tuple(hunk.number for hunk in group)
    old, new = changed_lines(base, head, first)
    where = f"{name}:{first.head[0] + 1}" + (f", {first.where}" if first.where else "")
    more = f" and {len(group) - 1} more" if len(group) > 1 else ""
    return Suspect(
        SuspectKind.PART, where, f"{_source(old)} → {_source(new)}{more}", path=name, hunks=numbers, weight=OWN
    )


def _source(line: str) -> str:
    short = line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"
    return f"`{short}`" if short else "nothing"


def _shown(value: Scalar) -> str:
    return "none" if value is None else str(value)


def signature(arms: Mapping[tuple[str, str], Arm], backend: str) -> tuple[str, ...]:
    """What tells groups of cases with different knobs apart: the settings that would be put back."""
    return tuple(suspect.setting for suspect in of_knobs(arms["base", backend], arms["head", backend]))
