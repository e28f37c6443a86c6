"""What a comparison measures: the operators that a changed file can reach, by the source of both sides alone."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import re
import tempfile
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from benchmarks import sources
from benchmarks.reach import COMPILED, DIGITS, Reach, compared, declared, digest, reached, reached_by_all
from benchmarks.shapes import some_of
from benchmarks.sources import SourceTree, Unreadable
from ci.git.command import GitError, git, git_or_none, succeeds
from ci.git.repository import Commit, LocalCheckout, Repository
from ci.harness import MeasureError, MeasurePlan
from ci.judging.types import Judgement, Verdict
from ci.trials.trial import Trial
from kernels.project import FILES, Layout, current_name, layout, unknown_new_name


@functools.lru_cache(maxsize=4)
def of_checkouts(base: LocalCheckout, head: LocalCheckout) -> Reach:
    """What differs between two checkouts on this disk, as they were when this command first asked."""
    return compared(*(sources.of_folder(side.path) for side in (base, head)))


def of_commits(root: Path, base: str, head: str) -> Reach:
    """The same of two commits that git has; nothing of them is checked out.  Raises GitError."""
    return compared(*trees_of(root, (base, head)))


def refuse_unknown(plan: MeasurePlan, reach: Reach, renamed: Mapping[str, str]) -> None:
    """MeasureError for the name of an operator that neither side declares, or that head's settings give and head does
    not declare, before anything is compiled or imported."""
    known = sorted({*reach.same, *reach.differing})
    of_head = {name: () for name in known if name not in reach.gone}
    kernels = {old: new for old, new in renamed.items() if "/" not in old}
    if of_head and not reach.unknown and (why := unknown_new_name(kernels, of_head)):
        raise MeasureError(why)
    for name in plan.kernels if known and not reach.unknown else ():
        if name not in known:
            raise MeasureError(f"no kernel {name!r}; known: {', '.join(known)}")


def narrowed(plan: MeasurePlan, reach: Reach) -> MeasurePlan:
    """The plan without the operators that cannot differ.  Its kernels are () where there is nothing left."""
    return dataclasses.replace(plan, kernels=tuple(k for k in (plan.kernels or reach.differing) if k not in reach.same))


def left_out(plan: MeasurePlan, reach: Reach) -> tuple[str, ...]:
    """The operators of a plan that are not measured, because nothing that changed can reach them."""
    return tuple(sorted(name for name in reach.same if not plan.kernels or name in plan.kernels))


def sentence(plan: MeasurePlan, reach: Reach) -> str:
    """What is measured, and why."""
    if reach.unknown:
        return f"{reach.unknown}: everything is measured"
    out, measured = left_out(plan, reach), narrowed(plan, reach).kernels
    files = sorted({path for name in measured for path in reach.differing.get(name, ())})
    because = f", which {_few(tuple(files), 'changed files')} can reach" if files else ""
    not_measured = f"; not measured, because no changed file can reach them: {', '.join(out)}" if out else ""
    return f"measuring {', '.join(measured) or 'nothing'}{because}{not_measured}{' (--all-cases does)' if out else ''}"


def with_left_out(judgement: Judgement, names: tuple[str, ...]) -> Judgement:
    """A judgement that says what was not measured."""
    if not names:
        return judgement
    if judgement.verdict is Verdict.SAME and not judgement.cases and not judgement.warnings:
        return Judgement(Verdict.SAME, f"no changed file can reach {_few(names, 'operators')}", unreached=names)
    count = f"{len(names)} operator{'s' * (len(names) != 1)} that no changed file can reach not measured"
    return dataclasses.replace(judgement, why=f"{judgement.why}; {count}", unreached=names)


def doubts(plan: MeasurePlan, reach: Reach, checkouts: Sequence[LocalCheckout], trials: Sequence[Trial]) -> list[str]:
    """Sentences on what differs and was not run, or only by one side: none of it may pass for the same.

    plan: of the operators that differ; none where that is not known.
    """
    return [*_not_run(plan, reach, trials), *_not_measured(plan, trials), *_one_sided(reach, checkouts, trials)]


def _not_run(plan: MeasurePlan, reach: Reach, trials: Sequence[Trial]) -> Iterator[str]:
    """Code that somebody else compiles and that differs: a build of another state was run, if any.

    Of a submodule it is enough that a file of it was run.
    """
    for operator in _imported_in(trials).intersection(plan.kernels):
        differing = tuple(path for path in reach.differing.get(operator, ()) if path.endswith((*COMPILED, "/")))
        ran = {
            path for trial in trials if trial.operator == operator for c in trial.checkouts.values() for path in c.ran
        }
        inside = tuple(path for path in differing if path.endswith("/"))
        left = tuple(path for path in differing if not any(file.startswith(path) for file in ran if path in inside))
        if left and not any(path.endswith(COMPILED) for path in ran):
            yield (
                f"{operator}: {_few(left, 'files that a compiler reads')} differ, and nothing compiled from "
                "this checkout ran: build it there, or at set-up (torch.utils.cpp_extension.load)"
            )


def _imported_in(trials: Sequence[Trial]) -> set[str]:
    """The operators of which a side of some trial could be imported."""
    return {trial.operator for trial in trials if trial.declaration()}


def _not_measured(plan: MeasurePlan, trials: Sequence[Trial]) -> Iterator[str]:
    """Operators that differ and of which there is no trial: neither side could import them."""
    imported = _imported_in(trials)
    sides = [side for trial in trials for side in trial.checkouts.values()]
    broken = {module.module: module.reason for side in sides for module in side.broken}
    why = "; ".join(f"{module} does not import: {reason}" for module, reason in broken.items())
    for operator in plan.kernels:
        if operator not in imported:
            yield f"{operator} differs and was not measured{f' ({why})' if why else ''}"
    yield from _broken_beside(trials)


def _broken_beside(trials: Sequence[Trial]) -> Iterator[str]:
    """Modules that base can import, or lacks, and head cannot, and of which no operator went missing with them."""
    newest = trials[-1].checkouts if trials else {}
    of_base = {module.module for module in newest["base"].broken} if "base" in newest else set()
    missing = {trial.operator for trial in trials if "head" in newest and trial.checkouts["head"].declaration is None}
    for module in newest["head"].broken if "head" in newest else ():
        if module.module not in of_base and not any(map(module.may_declare, missing)):
            yield f"{module.module} of head does not import: {module.reason}"


def _one_sided(reach: Reach, checkouts: Sequence[LocalCheckout], trials: Sequence[Trial]) -> Iterator[str]:
    """Files that one side lacked, or both where they differ: of a submodule, of Git LFS, or ignored by git and run by
    head."""
    reaching = {path for files in reach.differing.values() for path in files}
    base, head = checkouts
    for side, other in ((base, head), (head, base)):
        for path, why in side.missing.items():
            changed = any(file.startswith(path) or path.startswith(file) for file in reaching)
            if path not in other.missing and (changed or reach.unknown):
                yield f"{side.role} lacks what {other.role} has: {why}"
            elif changed and side is head and path in other.missing:
                yield f"what changed in {path} was not run, for both sides lack it: {why}"
    head_sides = [trial.checkouts["head"] for trial in trials if "head" in trial.checkouts]
    ran = {path for side in head_sides for path in side.ran}
    lacking = sorted(path for path in ran if not (base.path / path).exists())
    if ignored := tuple(path for path in lacking if succeeds(head.path, "check-ignore", "--quiet", "--", path)):
        yield (
            f"head ran {', '.join(ignored[:3])}{' and more' if len(ignored) > 3 else ''}, which git ignores and the "
            'checkout of base lacks: say what makes it in ridgeline.toml, checkout = {prepare = "COMMAND"}'
        )


PINNED = (
    "requirements*.txt",
    "requirements*.lock",
    "requirements/*.txt",
    "constraints*.txt",
    "pyproject.toml",
    "*.lock",
)
"""Files at the root of a repository that pin distributions: of pip, uv, poetry and pdm (their manuals, 2026-11)."""

PINS = (
    re.compile(r"^\s*([A-Za-z].*?)(?=\s+--|\s*#|\s*\\|$)", re.MULTILINE),
    re.compile(r"""(?<=["'])([A-Za-z][^"'\n]*)(?=["'])"""),
    re.compile(r'^name = "(.*)"\nversion = "(.*)"', re.MULTILINE),
)
"""A line of a requirements file without options, hashes and comments; a text of TOML; a package of a lock file."""

MAX_NAMED = 3
"""Pins that a sentence names."""


def pins_not_installed(base: Path, head: Path) -> list[str]:
    """At most one sentence: on pins that one side alone has, and that what is installed does not fit.

    Both sides run in one environment, which cannot show what such a pin does.
    """
    pins = {"base": _pins(base), "head": _pins(head)}
    unfit = []
    for role, other in (("base", "head"), ("head", "base")):
        for pin in sorted(pins[role] - pins[other], key=str):
            installed = next((there.version for there in metadata.distributions(name=pin.name)), None)
            if installed and not pin.specifier.contains(installed, True):
                unfit.append(f"{role} asks for {pin.name}{pin.specifier} ({installed} is installed)")
    return [
        f"pins changed that the environment of both sides does not follow: {some_of(unfit, MAX_NAMED)}; "
        "--env-base and --env-head of `ridgeline ab --help` compare two environments"
    ] * bool(unfit)


def _pins(root: Path) -> set[Requirement]:
    """What the files at the root of a checkout ask for, in this environment; of files that git ignores, nothing."""
    pins = set[Requirement]()
    for path in {path for pattern in PINNED for path in root.glob(pattern) if path.is_file()}:
        if not succeeds(root, "check-ignore", "--quiet", "--", path.relative_to(root).as_posix()):
            text = path.read_text(encoding="utf-8", errors="replace")
            for found in (found for form in PINS for found in form.finditer(text)):
                with contextlib.suppress(InvalidRequirement):  # any other line or text
                    pins.add(Requirement("==".join(found.groups())))
    return {pin for pin in pins if pin.marker is None or pin.marker.evaluate()}


def not_recorded(
    reach: Reach, judgement: Judgement, recorded: Container[str], renamed: Mapping[str, str]
) -> Iterator[str]:
    """A sentence on each operator that differs between two recorded commits, and of which nothing was compared.

    recorded: those that head has records of.  renamed: what head's settings say; a deletion that they name is meant.
    """
    compared = {case.kernel for case in judgement.cases}
    for name in reach.differing:
        if name in compared or (name in reach.new and name in recorded):
            continue
        if name not in reach.gone:
            yield f"{name} differs and is not recorded of both commits: `ridgeline ab` measures both"
        elif current_name(f"{name}/-/-", renamed):
            line = f'renamed = {{"{name}" = "NEW NAME"}}'
            yield f"head does not declare {name}; if it is meant, say so in ridgeline.toml: {line}"


def doubted(judgement: Judgement, doubts: Sequence[str]) -> Judgement:
    """A judgement with doubts is no pass."""
    if not doubts:
        return judgement
    verdict, why = judgement.verdict, judgement.why
    if verdict.exit_code == 0:
        verdict, why = Verdict.CANNOT_TELL, f"{doubts[0]}; of the trials that count: {why}"
    elif not judgement.cases:
        why = f"{why}: {doubts[0]}"
    return dataclasses.replace(judgement, verdict=verdict, why=why, warnings=(*judgement.warnings, *doubts))


def _few(names: tuple[str, ...], what: str) -> str:
    return ", ".join(names) if len(names) <= 3 else f"{len(names)} {what}"


# ---- commits ---------------------------------------------------------------------------------------------------------

LAST = "no such object"


def trees_of(root: Path, commits: Sequence[str]) -> list[SourceTree]:
    """The files of each commit, each file read once however many commits have it; nothing is checked out.

    Raises GitError, and kernels.project.ProjectError.
    """
    blobs = [_blobs(root, commit) for commit in commits]
    python = dict.fromkeys(digest for digests in blobs for path, digest in digests.items() if path.endswith(".py"))
    contents = dict(texts(root, list(python)))
    return [
        SourceTree(dict(sorted(digests.items())), layout_of(root, commit), _reader(digests, contents))
        for commit, digests in zip(commits, blobs, strict=True)
    ]


def _reader(digests: Mapping[str, str], contents: Mapping[str, bytes]) -> Callable[[str], bytes]:
    return lambda path: contents.get(digests[path], b"")


NO_FILES = hashlib.sha256().hexdigest()[:DIGITS]
"""The label of a commit without code."""


def file_labels(repository: Repository, commits: Sequence[Commit], kernels: Sequence[str] = ()) -> list[str]:
    """Of each commit a digest of the files that operators' code can come from: equal digests, equal code.

    Of no kernels it is that of all.  Where it is not certain which files those are, every file counts.
    """
    return [
        digest(tree, reached_by_all(tree, kernels))
        for tree in trees_of(repository.root, [commit.hash for commit in commits])
    ]


def _blobs(root: Path, commit: str) -> dict[str, str]:
    """Digest of every file of a commit by its path, and the commit of every submodule (see sources.SUBMODULE)."""
    entries = git(root, "ls-tree", "-r", "-z", "--full-tree", commit).split("\0")
    blobs = [match.groups() for entry in entries if (match := sources.ENTRY.fullmatch(entry))]
    named = ((f"{path}/" if mode == sources.SUBMODULE else path, digest) for mode, digest, path in blobs)
    return {path: digest for path, digest in named if not any(map(sources.is_hidden, path.split("/")))}


def renamed_in(root: Path, commit: str) -> Mapping[str, str]:
    """What the settings of a commit say of names that were given up (kernels.project).  GitError, ProjectError."""
    return layout_of(root, commit).renamed


def layout_of(root: Path, commit: str) -> Layout:
    """The layout of a commit; nothing of it is checked out."""
    with tempfile.TemporaryDirectory() as folder:
        for name in FILES:
            if (text := git_or_none(root, "show", f"{commit}:{name}")) is not None:
                Path(folder, name).write_text(text)
        return layout(Path(folder))


def texts(root: Path, digests: list[str]) -> Iterator[tuple[str, bytes]]:
    """(digest, content) of files, all in one call of git.  GitError if one is not UTF-8, which Python files are."""
    asked = "".join(f"{digest}\n" for digest in [*digests, LAST])  # its answer ends the output, which is stripped
    output = git(root, "cat-file", "--batch", stdin=asked).encode()
    place = 0
    for wanted in digests:
        begin = output.find(b"\n", place) + 1
        words = output[place:begin].split()
        if len(words) != 3 or words[0].decode() != wanted:
            raise GitError(f"a file of the commit before blob {wanted} is not UTF-8; what differs in it cannot be read")
        place = begin + int(words[2]) + 1
        yield wanted, output[begin : place - 1]


EVERY = ""
"""Stands for all operators of a commit whose names cannot be read from its source."""


def operator_labels(repository: Repository, commits: Sequence[Commit]) -> list[dict[str, str]]:
    """Of each commit the digest of the files of each operator: equal digests, equal code.

    Where its source does not say which operators it declares (a name is computed), one label stands under EVERY.
    """
    return [_labels(tree) for tree in trees_of(repository.root, [commit.hash for commit in commits])]


def _labels(tree: SourceTree) -> dict[str, str]:
    try:
        homes = declared(tree)
    except Unreadable:
        return {EVERY: digest(tree, reached_by_all(tree))}
    return {name: digest(tree, reached(tree, parts)) for name, parts in homes.items()}
