"""Head with something put back, measured against base in lock-step: how much of the slow-down is left."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import io
import math
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.sources import SourceTree, of_folder
from ci.git.command import git
from ci.git.repository import LocalCheckout, records
from ci.harness import FAULTS, INTERRUPTED, MEASURED, MeasurePlan
from ci.judging.judge import judge
from ci.judging.live import Interrupted, MeasureAlone, of_head
from ci.judging.policy import Policy
from ci.judging.states import OUTCOMES
from ci.trials.comparisons import Status, comparisons
from ci.trials.file import Followed
from ci.trials.trial import Trial
from ci.why import search
from ci.why.search import CauseAnswer, Slowdown, Suspect, SuspectKind, classified
from kernels import project

# Source trees of head with some files as they are in base: copies, which leave git's index, refs and objects alone.


@dataclasses.dataclass(frozen=True)
class Sides:
    """Both sides of a comparison as they lie on the disk; folder: where trees between the two are put."""

    base: LocalCheckout
    head: LocalCheckout
    folder: Path

    @functools.cached_property
    def changed(self) -> tuple[str, ...]:
        """Paths of the files that differ, or that one side lacks; without those that only read differently."""
        names = sorted({*listed(self.base.path), *listed(self.head.path)})
        return tuple(name for name in names if self._differs(name))

    def _differs(self, name: str) -> bool:
        base, head = content(self.base.path / name), content(self.head.path / name)
        if base == head or base is None or head is None:
            return base != head
        return not (name.endswith(".py") and search.same_program(decoded(base), decoded(head)))

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
        files = {one.path: content(self.base.path / one.path) for one in suspects if one.kind is SuspectKind.FILE}
        parts = {one.path for one in suspects if one.kind is SuspectKind.PART} - files.keys()
        for name in parts:
            numbers = {number for one in suspects if one.path == name for number in one.hunks}
            files[name] = search.put_back(*self.texts(name), numbers).encode()
        return self._made(files) if files else self.head

    def _made(self, files: dict[str, bytes | None]) -> LocalCheckout:
        """A copy of head with these contents; one that is there already is used as it is."""
        key = _digest(self.head.commit.hash, self._state, sorted(files.items()))
        where = self.folder / f"tree-{key}"
        if not where.exists():
            draft = where.with_name(f"{where.name}.draft")
            shutil.rmtree(draft, ignore_errors=True)
            _copied(self.head.path, draft, set(listed(self.head.path)) - files.keys())
            for name, data in files.items():
                _written(draft / name, data)
            draft.rename(where)
        return dataclasses.replace(self.head, path=where, changed=(*self.head.changed, *files))

    @functools.cached_property
    def _state(self) -> str:
        """A digest of what is changed in head beside its commit."""
        names = self.changed if self.head.dirty else ()
        return _digest(*(content(self.head.path / name) for name in names))


def listed(folder: Path) -> list[str]:
    """The files of a checkout, committed or not, those of submodules too, without records.

    Ignored files are left out, but in a checkout that a project prepares, which is made of nothing else.
    """
    own, ignored = ("--cached", "--others", "--exclude-standard"), ("--others", "--ignored", "--exclude-standard")
    prepared = (folder / ".git").is_file() and project.around(folder).prepare
    asked = [own, ignored] if prepared else [own]
    names = [git(folder, "ls-files", "-z", *how, "--", ".", *records(folder)).split("\0") for how in asked]
    found = []
    for name in filter(None, (name for some in names for name in some)):
        below = (folder / name).rglob("*") if (folder / name).is_dir() else [folder / name]
        files = [path for path in below if not path.is_dir() and not {".git", "__pycache__"} & {*path.parts}]
        found += [path.relative_to(folder).as_posix() for path in files]
    return found


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


LOOKS = (3, 6, 12)
"""Trials of one experiment: the fewest that the policy judges, and twice as many each time these leave it open, up to
the policy's own budget.  Where the trials say which code is launched, one comes first: base's own code needs no more.
"""


@dataclasses.dataclass(frozen=True)
class Question:
    """What is to be explained: a backend in one case of an operator that is so much slower.

    plan: how it was measured.  known_code: the trials say which code objects are launched.
    """

    operator: str
    backend: str
    case: str
    whole: Slowdown
    plan: MeasurePlan
    known_code: bool = False

    @property
    def name(self) -> str:
        """operator/backend/case."""
        return f"{self.operator}/{self.backend}/{self.case}"


@dataclasses.dataclass
class Experiments:
    """Makes and measures trees between base and head.  until: time.monotonic() at which no experiment begins any more.

    folder: where trees and trials go; what lies there of an interrupted run is used.  say: what is done now, for a bar.
    """

    sides: Sides
    policy: Policy
    folder: Path
    until: float
    measuring: MeasureAlone
    say: Callable[[str], None] = lambda said: None
    trials: int = 0
    experiments: int = 0

    def slowdown(self, question: Question, floor: float, put: Sequence[Suspect]) -> Slowdown | None:
        """How much slower than base head is with these put back; None when the time is over."""
        if time.monotonic() >= self.until:
            return None
        self.experiments += 1
        self.say(" + ".join(one.name for one in put))
        tree = self.sides.between(put)
        plan = planned(question, put)
        out = self.folder / f"{_digest(question.name, tree.path.name, repr(plan))}.jsonl"
        left = Slowdown.failed("it was not measured")
        for target in (1, *LOOKS) if question.known_code else LOOKS:
            left = self._looked(question, tree, plan, out, target)
            unclear = classified(question.whole, question.whole, left, floor) is CauseAnswer.UNCLEAR
            if left.base_code or not unclear or time.monotonic() >= self.until:
                break
        return left

    def _looked(self, question: Question, tree: LocalCheckout, plan: MeasurePlan, out: Path, target: int) -> Slowdown:
        """What is left after so many trials; those that the file has already count."""
        missing = target - len(Followed(out).read().trials)
        said = self._measured(tree, dataclasses.replace(plan, trials=missing), out) if missing > 0 else ""
        trials = Followed(out).read().trials
        return of_trials(trials, question, self.policy) if trials else Slowdown.failed(said)

    def _measured(self, tree: LocalCheckout, plan: MeasurePlan, out: Path) -> str:
        """Measure; the last that the measuring program said, which is why there is no trial if there is none."""
        text = io.StringIO()
        code = self.measuring((self.sides.base, tree), plan, out, Console(file=text, width=400))
        if code == INTERRUPTED:
            raise Interrupted(f"interrupted; what was measured to explain the slow-down is in {self.folder}")
        self.trials += plan.trials if code in (MEASURED, FAULTS) else 0
        return (text.getvalue().strip().splitlines() or [""])[-1]


def planned(question: Question, put: Sequence[Suspect]) -> MeasurePlan:
    """The plan of the comparison, for one backend of one case, with head's knobs and Python as they are put back."""
    pythons = dict(question.plan.pythons)
    if any(one.kind is SuspectKind.ENVIRONMENT for one in put):
        pythons.pop("head", None)
        pythons |= {"head": pythons["base"]} if "base" in pythons else {}
    back = [f"head.{one.setting}" for one in put if one.kind is SuspectKind.KNOB]
    given = map(of_head, question.plan.knobs)
    return dataclasses.replace(
        question.plan,
        tier="sweep",
        kernels=(question.operator,),
        cases=(f"{question.operator}/{question.case}",),
        backends=(question.backend,),
        knobs=tuple({one.partition("=")[0]: one for one in [*given, *back]}.values()),
        pythons=pythons,
        first_trial=0,
    )


def of_trials(trials: Sequence[Trial], question: Question, policy: Policy) -> Slowdown:
    """What a file of an experiment says of its one case."""
    found = [one for one in comparisons(trials) if one.case == question.name]
    if not found:
        return Slowdown.failed("neither side can run it")
    if found[0].head_status is not Status.OK:
        return Slowdown.failed(f"{OUTCOMES[found[0].head_status]}: {found[0].head_why}")
    said, same = judge(found, policy).cases[0], found[0].same_code
    if said.ratio and said.ci_low and said.ci_high:
        left = Slowdown.of_ratio(said.ratio, said.ci_low, said.ci_high, said.trials)
        return dataclasses.replace(left, base_code=same)
    reach = 0.0 if same else math.inf
    return Slowdown(0.0, -reach, reach, len(trials), base_code=same)


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]
