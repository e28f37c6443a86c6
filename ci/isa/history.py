"""The history of the machine code: the commits of a range compiled and recorded, and the steps in what is recorded."""

from __future__ import annotations

import contextlib
import dataclasses
import fnmatch
import itertools
import json
import math
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from ci.git.command import GitError as TreeError
from ci.git.repository import Commit, Repository, history_order, listed_packages
from ci.isa import series as isa_series
from ci.isa.compile import CompileError, Wanted

Compile = Callable[[Path, str], dict[str, Any]]
"""(source tree, what to call it in the progress bar) -> result file; raises CompileError."""


@dataclasses.dataclass
class Filled:
    """What became of a range: files written, commits that had one already, and problems in a sentence each."""

    recorded: list[Path] = dataclasses.field(default_factory=list)
    known: list[str] = dataclasses.field(default_factory=list)
    problems: list[str] = dataclasses.field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0 if the range has records now, 2 if nothing in it could be recorded."""
        return 0 if self.recorded or self.known else 2


def commits_of(repository: Repository, span: str, every: bool = False) -> list[Commit]:
    """The commits after A up to B of "A..B" ("..B": from the first one), oldest first, along first parents.

    Those that leave all packages with kernels as they are compile to what their parent does and are left out, unless
    `every`.  ValueError for another form, TreeError for ends that do not exist.
    """
    start, dots, end = span.partition("..")
    if not dots or end.startswith("."):
        raise ValueError(f"--range {span!r} is no range; give for instance v1.0..HEAD, or ..HEAD for all commits")
    ends = [repository.resolve(end or "HEAD").hash, *([f"^{repository.resolve(start).hash}"] if start else [])]
    paths = [] if every else ["--", *(name.replace(".", "/") for name in listed_packages(repository.root))]
    listed = subprocess.run(
        ["git", "-C", str(repository.root), "rev-list", "--reverse", "--first-parent", *ends, *paths],
        capture_output=True,
        text=True,
        check=True,
    )
    return [repository.resolve(line) for line in listed.stdout.split()]


def backfill(
    repository: Repository,
    commits: Sequence[Commit],
    results: Path,
    asked: Mapping[str, Any],
    compiled: Compile,
    tell: Callable[[str], None],
    again: bool = False,
) -> Filled:
    """Compile and record commits; one that cannot be compiled is told, and the others go on.

    Unless `again`, a commit that is recorded as `asked` (see isa_series.record) is left as it is, so that a range that
    broke off goes on where it was.  asked["triton"] is the version compiled with.
    """
    filled = Filled()
    for number, commit in enumerate(commits, 1):
        what = f"{number}/{len(commits)} {commit.short} {commit.subject}"
        path = isa_series.path_of(results, commit, asked["triton"])
        if not again and isa_series.recorded_as(path, commit) == asked:
            filled.known.append(commit.short)
            tell(f"{what}: recorded already")
            continue
        try:
            with borrowed(repository, commit) as tree:
                document = compiled(tree, f"{number}/{len(commits)} {commit.short}")
        except (CompileError, TreeError) as error:
            filled.problems.append(f"{commit.short}: {error}")
            tell(f"{what}: {error}")
            continue
        tell(f"{what}: {_keep(document, commit, results, asked, filled)}")
    return filled


def _keep(document: Mapping[str, Any], commit: Commit, results: Path, asked: Mapping[str, Any], filled: Filled) -> str:
    """Record one result file; returns what to tell of it.  A commit without kernels is recorded too, as nothing."""
    entries, failures = document["entries"], [f"{commit.short}: {failure['why']}" for failure in document["failures"]]
    broken = [f"{commit.short}: module {b['module']} cannot be imported: {b['why']}" for b in document["broken"]]
    filled.problems += failures + broken
    if failures and not entries:
        return failures[0]
    filled.recorded.append(isa_series.record(document, commit, results, None if failures else asked))
    if not entries:
        return "declares nothing to compile"
    failed = sum(entry["status"] in ("failed", "refused") for entry in entries)
    return f"{len(entries)} configurations" + (f", {failed} do not compile" if failed else "")


@contextlib.contextmanager
def borrowed(repository: Repository, commit: Commit) -> Iterator[Path]:
    """A commit's worktree, taken away again if it was not there: a long range must not fill the disk."""
    folder = repository.root / ".ridgeline" / "trees"
    before = set(folder.iterdir()) if folder.is_dir() else set()
    tree = repository.checkout(commit.hash, "head").path
    try:
        yield tree
    finally:
        if tree not in before:
            subprocess.run(
                ["git", "-C", str(repository.root), "worktree", "remove", "--force", str(tree)],
                capture_output=True,
                check=False,
            )  # left behind it is only reused


# ---- reading -------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Step:
    """A series that has another value at a commit than at the recorded commit before.  Values: None for a failure.

    configurations: all that make the same step.
    """

    kernel: str
    backend: str
    arch: str
    series: str
    before: float | None
    after: float | None
    configurations: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Stop:
    """A recorded commit and what changed at it; `new` kernels had no series before."""

    commit: str
    date_ms: int
    env: str
    steps: tuple[Step, ...]
    new: tuple[str, ...]


Point = tuple[str, str, str, str, str]
"""kernel, series, backend, configuration, arch."""


def chosen(wanted: Wanted) -> Callable[[Point], bool]:
    """Whether a series is of the kernels, backends, cases and architectures that a person named."""

    def fits(point: Point) -> bool:
        kernel, _, backend, configuration, arch = point
        return (
            kernel in (wanted.kernels or (kernel,))
            and backend in (wanted.backends or (backend,))
            and arch in (wanted.arches or (arch,))
            and any(fnmatch.fnmatchcase(configuration, glob) for glob in wanted.cases or ("*",))
        )

    return fits


def read(
    results: Path, keep: Callable[[Point], bool] = lambda point: True, repository: Path | None = None
) -> list[Stop]:
    """The recorded commits, oldest first, each environment (version of Triton) for itself; torn files are no records.

    Only configurations that both commits have are compared.  keep: which series to look at.  repository: a folder in
    the repository whose history puts commits of the same second in order; without it, the one around `results`.
    """
    files = [one for path in sorted((results / isa_series.MACHINE).glob("*-triton*.json")) if (one := _loaded(path))]
    place = history_order(repository or results, (one["commit_hash"] for one in files))
    files.sort(key=lambda one: (one["env_name"], one["date"], place.get(one["commit_hash"], -1)))
    stops: list[Stop] = []
    for _, group in itertools.groupby(files, key=lambda one: str(one["env_name"])):
        before: dict[Point, float | None] = {}
        for one in group:
            now = {point: value for point, value in points(one["results"]).items() if keep(point)}
            new = sorted({p[0] for p in now} - {p[0] for p in before})
            stops.append(Stop(one["commit_hash"], one["date"], one["env_name"], tuple(steps(before, now)), tuple(new)))
            before = now
    return stops


def _loaded(path: Path) -> dict[str, Any] | None:
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    good = isinstance(data, dict) and {"commit_hash", "env_name", "date", "results"} <= data.keys()
    return data if good else None


def points(rows: Mapping[str, Any]) -> dict[Point, float | None]:
    """Values of asv rows by kernel, series, backend, configuration and arch; what does not exist is left out."""
    found: dict[Point, float | None] = {}
    for name, (values, params, *_) in rows.items():
        kernel, _, series = name.partition(".track_isa_")
        for keys, value in zip(itertools.product(*params), values, strict=True):
            if value is None or not math.isnan(value):
                backend, configuration, arch = (key[1:-1] for key in keys)
                found[kernel, series, backend, configuration, arch] = value
    return found


def steps(before: Mapping[Point, float | None], now: Mapping[Point, float | None]) -> list[Step]:
    """What differs, configurations with the same step together, in the order of the series."""
    grouped: dict[tuple[str, str, str, str, float | None, float | None], list[str]] = {}
    for (kernel, series, backend, configuration, arch), value in now.items():
        old = before.get((kernel, series, backend, configuration, arch), math.nan)
        if value != old and not (old is not None and math.isnan(old)):
            grouped.setdefault((kernel, backend, arch, series, old, value), []).append(configuration)
    found = [Step(*key, tuple(names)) for key, names in grouped.items()]
    return sorted(found, key=lambda step: (*_place(step), _series(step), step.configurations))


def told(stops: Sequence[Stop], subject_of: Callable[[str], str]) -> Text:
    """The history for a terminal: commits with a step or a new kernel, and how many had none."""
    out = Text()
    quiet = 0
    for stop in stops:
        if not (stop.steps or stop.new):
            quiet += 1
            continue
        out.append(f"{stop.commit[:8]} {subject_of(stop.commit)}\n", "bold")
        if stop.new:
            out.append(f"    first code of {', '.join(stop.new)}\n", "green")
        for place, of_place in itertools.groupby(stop.steps, key=_place):
            found = list(of_place)
            names = dict.fromkeys(name for step in found for name in step.configurations)
            several = f"{len(names)} configurations" if len(names) > 1 else next(iter(names))
            series = itertools.groupby(found, key=_series)
            out.append(f"    {place[0]}/{place[1]} on {place[2]}, {several}: ")
            out.append(", ".join(_words(list(of_series)) for _, of_series in series) + "\n")
    out.append(f"{len(stops)} commits are recorded, {quiet} of them with the counts of the commit before.\n")
    return out


def _place(step: Step) -> tuple[str, str, str]:
    return step.kernel, step.backend, step.arch


def _series(step: Step) -> int:
    return list(isa_series.SERIES).index(step.series)


def _words(same_series: Sequence[Step]) -> str:
    """spills 12 to 23 → 0: the values of all configurations on both sides."""
    sides = [[step.before for step in same_series], [step.after for step in same_series]]
    return f"{same_series[0].series.replace('_', ' ')} {_range(sides[0])} → {_range(sides[1])}"


def _range(values: Sequence[float | None]) -> str:
    known = sorted({value for value in values if value is not None})
    parts = [" to ".join(_number(value) for value in dict.fromkeys([known[0], known[-1]]))] if known else []
    return " or ".join(parts + ["failed"] * (None in values))


def _number(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else f"{value:g}"
