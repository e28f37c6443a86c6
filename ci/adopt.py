"""A benchmark script of any repository under paired A/B: what is asked for, and what came of it; and its launches on an
emulated GPU, compared by their exact counts, never by a time."""

from __future__ import annotations

import dataclasses
import json
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.emulation.device.program import Emulated, emulated
from benchmarks.emulation.installed import missing
from benchmarks.shapes import built
from ci import inherited_paths
from ci.git.repository import LocalCheckout, Repository
from ci.harness import (
    INTERRUPTED,
    NOTHING,
    USAGE,
    ChildExit,
    MeasureError,
    MeasurePlan,
    follow,
    of_checkout,
    options,
    program,
)
from ci.isa.compiled import Bound, CompileStatus, Executed, ExecutedLaunch
from ci.isa.judge import CodeVerdict, Difference, IsaJudgement, why_of
from ci.isa.rules import CodeFinding, IsaPolicy, Rule, executed_findings
from ci.judging.live import NextOrders
from ci.report.words import plain

# What a script times, as the measuring program tells it before anything is timed.


@dataclasses.dataclass(frozen=True)
class ScriptCase:
    """A closure of the script.  expected_s: seconds of a call.  why: it failed."""

    backend: str
    case: str
    timer: str
    expected_s: float
    why: str = ""

    @property
    def key(self) -> str:
        """Its name in the trial file."""
        return f"{self.backend}/{self.case}"


@dataclasses.dataclass(frozen=True)
class SeenScript:
    """What `python -m benchmarks.adopted --told FILE` writes.

    timed: keys of what would be timed.  left_out: by key, why another would not be.  trial_s: seconds of a trial.
    """

    operator: str
    timed: tuple[str, ...]
    left_out: Mapping[str, str]
    trial_s: float
    warnings: tuple[str, ...]
    closures: tuple[ScriptCase, ...]


# What is asked of a script, as the argument list of `python -m benchmarks.adopted`; and measuring by it.


PRINTED = "{out}.{role}.txt"
"""What the measuring program keeps beside a trial file: the end of what the script printed."""


class NothingToCompare(Exception):
    """The script ran and timed nothing that both sides have; the text says why."""


@dataclasses.dataclass(frozen=True)
class ScriptRequest:
    """path: of the script below the top of the repository.  source: the file whose text runs on both sides.

    arguments: of the script.  folder: below the top, in which it runs.  paths: folders for imports, below the top of
    each checkout or absolute.  device: "cpu" or "".  ranks: that run it together; 0: as many as it starts itself.
    budget_min: minutes for survey and trials, which are divided over budget_trials.  all_cases: time what runs the same
    code on both sides, too.  own: a side that has the script runs its own text.  warning: what the verdict says first.
    """

    path: Path
    source: Path
    arguments: tuple[str, ...] = ()
    folder: Path = Path()
    paths: tuple[str, ...] = ()
    device: str = ""
    ranks: int = 0
    budget_min: float | None = None
    budget_trials: int = 7
    all_cases: bool = False
    own: bool = False
    warning: str = ""

    def options(self, checkouts: Sequence[LocalCheckout], plan: MeasurePlan, out: Path) -> list[str]:
        """The options of the measuring program, apart from progress."""
        names = ("path", "arguments", "folder", "paths", "device", "ranks", "budget_trials", "all_cases")
        script = {name: getattr(self, name) for name in names}
        budget_s = self.budget_min * 60 if self.budget_min else None
        script |= {"source": self.source.resolve(), "seed": plan.seed, "budget_s": budget_s}
        argv = [word for side in checkouts for word in of_checkout(side, plan.pythons)]
        argv += options(
            script=json.dumps(script, default=str), out=out.resolve(), rounds=plan.rounds, trials=plan.trials or 1
        )
        return [*argv, *options(cache=plan.cache or None, deadline=plan.deadline_s)]

    def measure(
        self, checkouts: Sequence[LocalCheckout], plan: MeasurePlan, out: Path, console: Console, told: NextOrders
    ) -> int:
        """Trials of the script into a file (a ci.judging.live.Measure); its exit code."""
        try:
            ended = self._followed(["--orders", *self.options(checkouts, plan, out)], out, console, told)
        except KeyboardInterrupt:
            return INTERRUPTED
        if ended.code == NOTHING and not out.exists():
            raise NothingToCompare(ended.last)
        if ended.code == USAGE or ended.code < 0:
            raise MeasureError(ended.reason)
        return ended.code

    def seen(self, checkouts: Sequence[LocalCheckout], plan: MeasurePlan, out: Path, console: Console) -> SeenScript:
        """What both sides time; nothing is timed."""
        told = Path(f"{out.resolve()}.told")
        ended = self._followed(["--told", str(told), *self.options(checkouts, plan, out)], out, console)
        if ended.code == NOTHING:
            raise NothingToCompare(ended.last)
        if not told.exists():
            raise MeasureError(ended.reason)
        try:
            return built(SeenScript, json.loads(told.read_bytes()))
        finally:
            told.unlink(missing_ok=True)

    def _followed(self, words: Sequence[str], out: Path, console: Console, told: NextOrders | None = None) -> ChildExit:
        out.parent.mkdir(parents=True, exist_ok=True)
        argv = program("benchmarks.adopted", "--progress", "json", *words)
        return follow(argv, console, f"looking at {self.path.stem}", echo=False, told=told)


def import_paths(root: Path, named: Sequence[str]) -> tuple[str, ...]:
    """Folders that a side's imports search: those that were named, and those of PYTHONPATH.

    A folder of the repository is one of the checkout: else both sides would import the working tree.  One inside that
    git knows no file of, such as an environment of installed packages, is of both sides.
    """
    known = Repository(root)
    return tuple(dict.fromkeys(_below(known, root, one) for one in (*map(Path, named), *inherited_paths())))


def _below(known: Repository, root: Path, folder: Path) -> str:
    whole = (folder if folder.is_absolute() else root / folder).resolve()
    if not whole.is_relative_to(root):
        return str(whole)
    below = whole.relative_to(root)
    return str(below) if not whole.is_dir() or known.tracks(below) else str(whole)


# A script on two commits, run on an emulated GPU.

RUN = """\
import sys
source, script, folder, sys.argv = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[2:3] + sys.argv[4:]
sys.path[0] = folder
__file__ = script
exec(compile(open(source).read(), source, "exec"))
"""
"""Runs the text of one file as another: a script whose text both sides share imports what its own side has."""

MOST_LINES = 3
"""Lines of the source that are named of a launch."""

LANES = 64
"""Of a wave of both targets."""

LAST = 5
"""Lines of its output that are shown of a script that fails."""


@dataclasses.dataclass(frozen=True)
class Ran:
    """What a side did: its launches in the order in which each kernel was first given such arguments."""

    run: Emulated
    end: str
    launches: Mapping[tuple[str, int], Mapping[str, Any]]


def compared(
    request: ScriptRequest, checkouts: Sequence[LocalCheckout], arch: str, policy: IsaPolicy, pythons: Mapping[str, str]
) -> IsaJudgement:
    """Judge what the launches of head execute against those of base.  NothingToCompare where a side launches nothing.

    A launch is found again by its kernel and by which one of it it is, counting launches of other arguments.
    """
    if why := missing():
        raise MeasureError(why)
    base, head = (_ran(request, side, arch, pythons.get(side.role, sys.executable)) for side in checkouts)
    warnings = [f"{side}: {failure}" for side, ran in (("base", base), ("head", head)) for failure in _failures(ran)]
    if not base.launches and not head.launches:
        raise NothingToCompare("; ".join(warnings) or f"{request.path} launches no Triton kernel")
    differences = [
        _difference(place, base.launches.get(place), head.launches.get(place), arch, policy)
        for place in dict.fromkeys([*base.launches, *head.launches])
    ]
    sampled = sum(bool(row.get("sampled")) for row in head.launches.values())
    if sampled:
        warnings.append(
            f"{sampled} of the launches have large grids: some workgroups (the first, the last, others by a "
            "seed) stand for all, and what the script computes is not complete"
        )
    order = list(CodeVerdict)
    differences.sort(key=lambda one: order.index(one.verdict))
    verdict, why = differences[0].verdict, why_of(differences[0].verdict, differences, launches=True)
    if not head.run.passed and base.run.passed:
        verdict, why = CodeVerdict.BROKEN, f"{request.path} fails on {arch}: {next(_failures(head), '')}"
    return IsaJudgement(verdict, why, tuple(differences), tuple(warnings))


def _ran(request: ScriptRequest, side: LocalCheckout, arch: str, python: str) -> Ran:
    script = side.path / request.path
    source = script if request.own and script.is_file() else request.source
    words = [python, "-c", RUN, str(source), str(script), str(script.parent), *request.arguments]
    paths = [str(side.path / one) for one in request.paths]
    with tempfile.TemporaryFile() as output:
        run = emulated(words, arch, counting=True, cwd=side.path / request.folder, paths=paths, output=output)
        if run.stopped:
            raise KeyboardInterrupt
        output.seek(0)
        end = "; ".join(output.read().decode(errors="replace").split("\n")[-LAST - 1 :]).strip("; ")
    of_kernels: dict[str, dict[tuple[str, ...], Any]] = defaultdict(dict)
    for row in run.launches:
        if "counts" in row:
            of_kernels[row["kernel"]].setdefault(tuple(row["arguments"]), row)
    launches = {(kernel, n): row for kernel, rows in of_kernels.items() for n, row in enumerate(rows.values())}
    return Ran(run, end, launches)


def _failures(ran: Ran) -> Iterator[str]:
    yield from map(plain, ran.run.failures)
    if ran.run.code and not ran.run.failures:
        yield plain(f"the script ended with {ran.run.code}: {ran.end}")


def _difference(place: tuple[str, int], base: Any, head: Any, arch: str, policy: IsaPolicy) -> Difference:
    kernel, number = place
    known = head or base
    case = f"launch {number + 1}: {', '.join(known['arguments'])}"
    label = f"executed, grid {'x'.join(map(str, known['grid']))}"

    found: list[CodeFinding] = []
    if head is None or base is None:
        verdict = CodeVerdict.NEW if head else CodeVerdict.GONE
    elif base["code"] == head["code"] and base["counts"] == head["counts"]:
        verdict = CodeVerdict.SAME
    else:
        found = _findings(base, head, policy)
        verdict = CodeVerdict.SLOWER if any(one.judged for one in found) else CodeVerdict.CHANGED
    return Difference(kernel, "script", label, arch, (case,), verdict, tuple(found))


def _findings(base: Any, head: Any, policy: IsaPolicy) -> list[CodeFinding]:
    """What differs in a launch of other code or counts."""
    bound = Bound(head["busiest"], 100.0)
    sides = [
        ExecutedLaunch("", "", "", "", (), CompileStatus.OK, counts=_counts(row), bound=bound) for row in (base, head)
    ]
    found = [*_narrower(sides[0], sides[1], policy), *executed_findings(sides[0], sides[1], policy)]
    if base["grid"] != head["grid"]:
        found.append(CodeFinding("grid", f"grid {base['grid']} → {head['grid']}", judged=False))
    if base["registers"] != head["registers"]:
        steps = ((name, old, head["registers"].get(name)) for name, old in base["registers"].items())
        changed = ", ".join(f"{name} {old} → {new}" for name, old, new in steps if old != new)
        found.append(CodeFinding("registers", changed, judged=False))
    found += [CodeFinding("line", sentence, judged=False) for sentence in _moved(base["lines"], head["lines"])]
    return found or [CodeFinding("code", "other code, which executes as much of everything", judged=False)]


def _narrower(base: ExecutedLaunch, head: ExecutedLaunch, policy: IsaPolicy) -> Iterator[CodeFinding]:
    """Accesses to memory that take more instructions for as many bytes: a loop or a layout is no longer vectorised."""
    for what, rule, least in (
        ("load", Rule.LOAD_WIDTH, policy.load_width),
        ("store", Rule.STORE_WIDTH, policy.store_width),
    ):
        before, after = (_bytes_per_lane(side.counts, what) for side in (base, head) if side.counts)
        if before and after and after <= before * least:
            sentence = f"{what}s of {before:.3g} → {after:.3g} bytes per lane, on average of what is executed"
            yield CodeFinding(rule, sentence, judged=True)


def _bytes_per_lane(counts: Executed, what: str) -> float:
    times = counts.classes.get(what, 0)
    return counts.bytes.get(what, 0) / (LANES * times) if times else 0.0


def _counts(row: Mapping[str, Any]) -> Executed:
    fields = {field.name for field in dataclasses.fields(Executed)}
    return built(Executed, {name: value for name, value in row["counts"].items() if name in fields}, "a launch")


def _moved(base: Mapping[str, Mapping[str, int]], head: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Lines whose instructions differ most, with what differs; a line is found again by its file and its text."""
    labels: dict[tuple[str, str], str] = {}
    counts: list[dict[tuple[str, str], Counter[str]]] = [defaultdict(Counter), defaultdict(Counter)]
    for of_side, lines in zip(counts, (head, base), strict=True):
        for place, classes in lines.items():
            path, _, text = place.partition(": ")
            name = path.rpartition("/")[2]
            line = name.rpartition(":")[0], text or name
            labels.setdefault(line, f"{name}: {text}" if text else name)
            of_side[line].update(classes)
    differing = []
    for line, label in labels.items():
        after, before = (of_side[line] for of_side in counts)
        steps = [f"{name} {before[name]} → {after[name]}" for name in before | after if before[name] != after[name]]
        if steps and line[0]:
            differing.append(((before - after + (after - before)).total(), f"{label}: {', '.join(steps)}"))
    return [sentence for _, sentence in sorted(differing, reverse=True)[:MOST_LINES]]
