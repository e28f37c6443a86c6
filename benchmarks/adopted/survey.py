"""What is asked of a script, what a survey of it came to on both sides, what of it is timed, and what is said of it."""

from __future__ import annotations

import ast
import dataclasses
import functools
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from pathlib import Path

from benchmarks.shapes import digest_of, some_of
from benchmarks.trial_file import Status

NO_MEMORY = "out of memory"
"""In what torch, Triton and the runtimes of CUDA and HIP say."""


@dataclasses.dataclass(frozen=True)
class SeenClosure:
    """A closure that a side timed.

    at_s: when in the script; took_s: to look at it; expected_s: of one call.
    inputs, outputs: tensors as "float32[64, 64]".  changed: inputs that each call changes further.  why: the reason if
    it failed, with its status.  repeats: equal calls gave equal outputs.  ran: digests of the code that a call runs, by
    its name; unseen: what else runs that cannot be seen.  untuned: configurations of its kernels that were not tried,
    and that trials will measure.  held: digest of what its inputs hold.  calls: of functions of the script in which it
    was timed, outermost first.  line: FILE:LINE of the timer.  names: keys on every rank, where they are not one.
    """

    backend: str
    case: str
    timer: str = ""
    at_s: float = 0.0
    took_s: float = 0.0
    first_call_s: float = 0.0
    expected_s: float = 0.0
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    repeats: bool = True
    on_gpu: bool = False
    status: str = "ok"
    why: str = ""
    detail: str = ""
    ran: Mapping[str, str] = dataclasses.field(default_factory=dict)
    unseen: str = ""
    untuned: int = 0
    held: str = ""
    calls: tuple[str, ...] = ()
    line: str = ""
    names: tuple[str, ...] = ()

    @property
    def code(self) -> str:
        """Digest of the code that a call runs, "" if some of it cannot be seen."""
        return digest_of(self.ran) if self.ran else ""

    @property
    def key(self) -> str:
        """Its name in a trial file: backend and case."""
        return f"{self.backend}/{self.case}"

    @property
    def dtype(self) -> str:
        """Type of the first output, else of the first input."""
        return next(iter((*self.outputs, *self.inputs)), "").partition("[")[0] or "unknown"

    @property
    def definition(self) -> str:
        """Digest of what is computed: the outputs' types and shapes, or the inputs' where there are none to see."""
        seen = [self.timer, *(self.outputs or self.inputs)]
        return digest_of(seen)


@dataclasses.dataclass(frozen=True)
class ScriptEnd:
    """How a script ended.  code: its exit code.  kind: "" (ran through), exit, import, raised, several, late, or of
    lost processes: hang, crash, error.

    inside, elsewhere: packages of the repository by where they were imported from.  programs: Python that it started.
    untaken: lines that time by a clock of their own and are not compared, with the reason.  printed: the last lines of
    its output.  ranks: that it starts itself, where it is `several`; 0 where that is not known.  ended_at: seconds of
    time.time().
    """

    code: int = 0
    kind: str = ""
    why: str = ""
    detail: str = ""
    took_s: float = 0.0
    inside: tuple[str, ...] = ()
    elsewhere: Mapping[str, str] = dataclasses.field(default_factory=dict)
    programs: tuple[str, ...] = ()
    untaken: tuple[str, ...] = ()
    printed: str = ""
    ranks: int = 0
    ended_at: float = 0.0

    @property
    def early(self) -> bool:
        """Whether it may have had more to time."""
        return bool(self.kind) and not (self.kind == "exit" and self.code == 0)

    @property
    def status(self) -> Status:
        """Of what it did not come to."""
        return Status(self.kind) if self.kind in (Status.HANG, Status.CRASH) else Status.ERROR

    @property
    def reason(self) -> str:
        """Why it ended early."""
        return self.why or f"exit code {self.code}"


@dataclasses.dataclass(frozen=True)
class SideSurvey:
    """One side: its closures in the order of the script, and how the script ended."""

    closures: tuple[SeenClosure, ...]
    end: ScriptEnd

    @functools.cached_property
    def by_key(self) -> dict[str, SeenClosure]:
        """The closures by name."""
        return {one.key: one for one in self.closures}

    @property
    def short_of_memory(self) -> bool:
        """Whether the script, or a closure of it, found no memory on the GPU."""
        return any(NO_MEMORY in why for why in (self.end.why, *(one.why for one in self.closures)))


@dataclasses.dataclass(frozen=True)
class Survey:
    """Both sides."""

    sides: Mapping[str, SideSurvey]

    def on_rank(self, role: str, keys: Iterable[str], rank: int) -> list[str]:
        """Names that closures have on a rank."""
        known = self.sides[role].by_key
        return [known[key].names[rank] if key in known and known[key].names else key for key in keys]

    @functools.cached_property
    def paired(self) -> tuple[str, ...]:
        """Names of the closures that both sides time, in an order that both keep (longest common subsequence).

        A closure that fails on either side is among them: which side fails is what is to be told.
        """
        base, head = ([one.key for one in self.sides[role].closures] for role in ("base", "head"))
        blocks = SequenceMatcher(None, base, head, autojunk=False).get_matching_blocks()
        return tuple(key for block in blocks for key in base[block.a : block.a + block.size])

    def unwanted_calls(self, role: str, wanted: Collection[str]) -> list[tuple[str, int, list[str]]]:
        """Calls of the script's functions in which a side times nothing that is wanted, as a trial may leave them out:
        (FILE:FUNCTION, how many closures come before, closures inside).
        """
        keys, inside = [one.key for one in self.sides[role].closures], dict[str, list[int]]()
        for index, one in enumerate(self.sides[role].closures):
            for name in one.calls:
                inside.setdefault(name, []).append(index)
        rows = [(name.partition(":")[2], found[0], [keys[at] for at in found]) for name, found in inside.items()]
        return [row for row in rows if not set(row[2]) & set(wanted)]

    def definition(self, role: str, case: str) -> str:
        """Digest of what a side computes in a case, over the backends that both sides time in it without a failure."""
        own = self.sides[role].by_key
        shared = [key for key in self.paired if key.partition("/")[2] == case and self.good(key)]
        return digest_of([[key, own[key].definition] for key in shared])

    def good(self, key: str) -> bool:
        """Whether a closure fails on neither side; one that fails computes nothing that could be told."""
        return all(side.by_key[key].status == "ok" for side in self.sides.values())

    @property
    def same(self) -> frozenset[str]:
        """Names of the closures that run the same code on both sides (of one Python), and so need no times."""
        if any(side.end.elsewhere for side in self.sides.values()):  # a package there whose code nobody looked at
            return frozenset()
        return frozenset(key for key in self.paired if not self.differing[key])

    @functools.cached_property
    def differing(self) -> dict[str, str]:
        """By name of a closure, why its code is not the same on both sides, "" where it is."""
        base, head = (self.sides[role].by_key for role in ("base", "head"))
        return {key: differing(base[key], head[key]) for key in self.paired}

    def cut_short(self) -> dict[str, str]:
        """By role, why not all that a side times is looked at: a clock of its own that cannot be taken over, a program
        that it starts, or it did not come to the end of the script, where the other did or nobody knows.

        Two sides that raise alike end alike: what is behind that place is timed on neither.
        """
        ends = {role: side.end for role, side in self.sides.items() if side.closures}
        early = {role: end.reason for role, end in ends.items() if end.early and not self.lost(role)}
        kinds = {end.kind for end in ends.values()}
        known = len(early) == 2 and len(kinds) == 1 and "late" not in kinds
        clocks = {
            role: f"its own clock is not compared at {end.untaken[0]}" for role, end in ends.items() if end.untaken
        }
        programs = {role: f"{STARTS}{end.programs[0]}" for role, end in ends.items() if end.programs}
        return programs | clocks | ({} if known else early)

    def lost(self, role: str) -> tuple[SeenClosure, ...]:
        """What only the other side times, as the script of this one ended before it."""
        own, other = self.sides[role], self._other(role)
        if not own.end.early or own.end.kind in ("late", "several") or other.end.early:
            return ()
        return tuple(one for one in other.closures if one.key not in own.by_key)

    def _other(self, role: str) -> SideSurvey:
        return next(side for name, side in self.sides.items() if name != role)

    def unpaired(self) -> dict[str, str]:
        """By name, why a closure is on no side's list of pairs."""
        known, found = set(self.paired), {}
        for role, side in self.sides.items():
            for one in side.closures:
                if one.key not in known:
                    both = one.key in self._other(role).by_key
                    found[one.key] = "the two sides time it in another order" if both else f"only {role} times it"
        return found


STARTS = "the script starts another program, whose timers are not seen: "

MOST_DIFFERING = 3
"""Items that a sentence on what differs names."""


def differing(base: SeenClosure, head: SeenClosure) -> str:
    """Why the two do not run the same code for all that is known, "" if they do."""
    sides = {"base": base, "head": head}
    if failing := next((role for role, one in sides.items() if one.status != "ok"), ""):
        return f"{failing} fails"
    if unseen := next((one.unseen for one in sides.values() if one.unseen or not one.ran), None):
        return f"{unseen or 'something'} runs, whose code cannot be seen"
    names = [name for name in {**base.ran, **head.ran} if base.ran.get(name) != head.ran.get(name)]
    return f"{some_of(names, MOST_DIFFERING)} not the same" if names else ""


# Which closures are timed within a budget, and what that takes.  Pure.


CALLS_BESIDE = 6
"""Calls of a closure in a trial beside its samples: the first ones, two that warm up, one that is checked after."""

SAMPLE_S = 5e-4
"""Seconds of a sample of a short call on a host's clock, which is called as often as that takes."""

TURN_S = 2e-3
"""Seconds that a sample costs beside its calls: asking, flushing the caches (2026-11)."""

START_S = 1.5
"""Seconds that a trial takes beside its script: two processes, their contexts on the device (2026-11)."""

TUNE_S = 0.5
"""Seconds that a side needs, once, to compile a configuration and measure it: a small kernel takes 0.3 to 1 s."""


@dataclasses.dataclass(frozen=True)
class Chosen:
    """timed: names of closures, in order.  left_out: by name, why another is not timed.  trial_s: of one trial."""

    timed: tuple[str, ...]
    left_out: Mapping[str, str]
    trial_s: float


def choose(
    survey: Survey, rounds: int, trials: int, budget_s: float | None, same: Collection[str] = (), starts: int = 1
) -> Chosen:
    """All pairs but those of the same code, or a sample of them that fits the budget, which may be none.

    A script's own work (imports, inputs, its checks) is in every trial, as far as the last closure that is timed.
    The sample is spread evenly: of every backend it keeps some, over the whole range of its cases.
    """
    sides = [side.by_key for side in survey.sides.values()]
    good = [key for key in survey.paired if key not in same and survey.good(key)]
    tuning_s = TUNE_S / max(trials, 1)
    cost = {key: sum(case_s(side[key], rounds) + tuning_s * side[key].untuned for side in sides) for key in good}

    def trial_s(timed: Sequence[str]) -> float:
        return starts * (START_S + own_s(survey, timed)) + sum(cost[key] for key in timed)

    if not good or budget_s is None or trial_s(good) * trials <= budget_s:
        return Chosen(tuple(good), {}, trial_s(good))
    groups: dict[str, list[str]] = {}
    for key in good:
        groups.setdefault(key.partition("/")[0], []).append(key)
    share, by_cost = budget_s / max(trials, 1), sorted(good, key=lambda one: cost[one])
    for most in range(max(map(len, groups.values())), 0, -1):
        kept = {key for group in groups.values() for key in spread(group, most)}
        timed = [key for key in good if key in kept]
        if trial_s(timed) <= share:
            break
    else:
        timed = []
        for key in by_cost:
            if trial_s(more := [one for one in good if one in (*timed, key)]) <= share:
                timed = more
    why = (
        f"not timed: {len(timed)} of {len(good)} closures whose code can differ fit what is left of the budget, "
        f"{budget_s / 60:.2g} min for {trials} trials of {trial_s(timed or by_cost[:1]):.0f} s at least; "
        f"--budget {math.ceil(2 * trial_s(good) * trials / 60)} times them all"
    )
    return Chosen(tuple(timed), {key: why for key in good if key not in timed}, trial_s(timed))


def case_s(one: SeenClosure, rounds: int) -> float:
    """Seconds that one side of a case takes in a trial."""
    return CALLS_BESIDE * one.expected_s + one.first_call_s + rounds * (max(one.expected_s, SAMPLE_S) + TURN_S)


def own_s(survey: Survey, timed: Sequence[str]) -> float:
    """Seconds of the script itself up to the last of these closures, without the calls that are left out, on the
    slower side.
    """
    found = [0.0]
    for role, side in survey.sides.items():
        rows = survey.unwanted_calls(role, timed)
        made = {place for place, *_ in rows}  # of every function one call is made: it shows what the others give
        left_out = set[str]()
        for place, _, keys in rows:
            if place not in made:
                left_out.update(keys)
            made.discard(place)
        spent, end = 0.0, 0.0
        for one in side.closures:
            spent += one.at_s - end if one.key not in left_out else 0.0
            end = one.at_s + one.took_s
            if one.key in timed:
                found.append(spent)
    return max(found)


def spread(items: Sequence[str], most: int) -> list[str]:
    """At most so many, evenly over the whole sequence, both ends among them."""
    if len(items) <= most:
        return list(items)
    if most == 1:
        return [items[len(items) // 2]]
    return [items[round(index * (len(items) - 1) / (most - 1))] for index in range(most)]


# What a survey says of a script before it is timed: why it cannot be, or what a reader of the verdict must know.


TIMERS = (
    "triton.testing.do_bench and do_bench_cudagraph, torch.utils.benchmark.Timer, "
    "run_perftest and @perftest of aiter.test_common, flashinfer.testing.bench_gpu_time, "
    "timeit, iris.do_bench, "
    "a loop of its own between two readings of a clock or in a profiler"
)

NOTHING = ": it times nothing, or in a way that is not known here"

STARTED_BY_TORCHRUN = ("LOCAL_RANK", "'RANK'", "WORLD_SIZE", "MASTER_ADDR", "variable RANK")
"""In what a script says that misses torchrun's variables."""

ARGUMENTS_CODE = 2
"""Exit code of argparse and click for arguments that do not fit."""


class CannotRun(Exception):
    """The script does not come to a timer on some side; the text says why, and the next step."""


class NothingTimed(Exception):
    """The script ran, and there is nothing to compare; the text says why."""


def refuse(survey: Survey, script: str) -> None:
    """Raises CannotRun or NothingTimed where no closure of both sides can be compared."""
    for role, side in survey.sides.items():
        if not side.closures and not (role == "head" and survey.lost(role)):
            _refuse_side(f"{script} ({role})", side.end)
    if same := _same_packages(survey):
        name, folder = same[0]
        raise CannotRun(
            f"both sides imported {name} from {folder}, not from their checkouts: it would be compared with itself; "
            "name the folder of a checkout that holds the package with --path, or uninstall it in this Python"
        )
    if not survey.paired and not survey.lost("head"):
        counts = ", ".join(f"{role} times {len(side.closures)}" for role, side in survey.sides.items())
        raise NothingTimed(f"{script}: the sides have no closure in common ({counts})")


def _own_loop(end: ScriptEnd) -> str:
    """Where a script reads a clock of its own, and why that is not compared."""
    return f"; it reads a clock at {'; at '.join(end.untaken)}" if end.untaken else ""


WITHOUT_GPU = ("active drivers", "No CUDA GPUs", "No HIP GPUs", "no NVIDIA driver", "not compiled with CUDA", "libcuda")
"""What torch and Triton say where a script asks for a GPU and there is none."""


def _refuse_side(where: str, end: ScriptEnd) -> None:
    if end.kind == "several" or any(name in end.why for name in STARTED_BY_TORCHRUN):
        raise CannotRun(f"{where} wants several ranks ({end.why}); say how many: --ranks {end.ranks or 2}")
    if any(words in end.why for words in WITHOUT_GPU):
        raise CannotRun(f"{where} wants a GPU, and none is here ({end.why}); --device cpu sends it to the CPU")
    if end.kind == "import":
        raise CannotRun(
            f"{where} cannot be imported: {end.why}; install what is missing, or name its folder with --path"
        )
    if end.kind == "exit" and end.code == ARGUMENTS_CODE:
        raise CannotRun(f"{where} needs other arguments: {_said(end)}; give them after --, as in `-- --size 1024`")
    if end.programs:
        step = "adopt what it runs, or start its ranks by torchrun or torch.multiprocessing.spawn"
        raise CannotRun(f"{where} starts what is not seen: {end.programs[0]}; {step}")
    if end.kind:
        raise CannotRun(f"{where} came to no timer: {end.reason}{_own_loop(end)}; last it said: {_said(end)}")
    several = "; where it wants several GPUs, say how many ranks: --ranks 2" if "GPUs" in _said(end) else ""
    raise NothingTimed(
        f"{where} ended without a timer that is known here ({TIMERS}){_own_loop(end) or NOTHING}; "
        f"last it said: {_said(end)}{several}"
    )


def warnings(survey: Survey) -> list[str]:
    """Sentences on what was not as it should be."""
    return [one for role, side in survey.sides.items() for one in _of_side(role, side)]


def _of_side(role: str, side: SideSurvey) -> Iterator[str]:
    end, count = side.end, len(side.closures)
    if end.early:
        told = f"the script ended early, after {count} closures: {end.reason}; what it times later is not compared"
        yield f"{role}: {end.reason if end.kind == 'late' else told}"
    for name, folder in end.elsewhere.items():
        if name not in end.inside:
            yield f"{role}: {name} was imported from {folder}, not from the checkout"
    if end.programs:
        yield f"{role}: {STARTS}{end.programs[0]}"
    for line in end.untaken:
        yield f"{role}: its own clock is not compared at {line}"


def _same_packages(survey: Survey) -> list[tuple[str, str]]:
    """Packages of the repository that both sides took from one folder outside of their checkouts."""
    base, head = (survey.sides[role].end for role in ("base", "head"))
    shared = [name for name, folder in base.elsewhere.items() if head.elsewhere.get(name) == folder]
    return [(name, base.elsewhere[name]) for name in shared if name not in (*base.inside, *head.inside)]


def _said(end: ScriptEnd) -> str:
    lines = [line.strip() for line in end.printed.splitlines() if line.strip()]
    return (lines or ["it printed nothing"])[-1][:300]


# What is asked of a script: which file, how it is started, and how it is measured.


SOURCES = ("src", "python", "lib")
"""Folders of a checkout, beside its top, in which a repository keeps the packages that its scripts import."""

READ_LATE = ("MASTER_ADDR", "MASTER_PORT", "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
"""Variables that torch reads when a process group is made, and not when it is imported."""

IMPORTS_TORCH = re.compile(r"^(?:import|from) +(?:torch|triton)\b", re.MULTILINE)

SETS = re.compile(
    r"environ\[([^\]]*)\] *=(?!=)|\bdel .*environ\[()|environ\.(?:update|setdefault|pop)\(([^,)]*)"
    r"|\b(?:un)?(?:put|set)env\(()"
)
"""What sets a variable of the environment; a group is its name, where that is a text."""


def sets_variables(text: str) -> bool:
    """Whether a script sets a variable before it imports torch, which may read it then, as may a library below it."""
    before = IMPORTS_TORCH.split(text, 1)[0]
    return any("".join(filter(None, one.groups())).strip("\"' ") not in READ_LATE for one in SETS.finditer(before))


@dataclasses.dataclass(frozen=True)
class ScriptRun:
    """path: of the script below the top of a checkout.  source: the file whose text runs on both sides.

    arguments: of the script.  paths: folders of a checkout that imports search, beside the usual ones.
    device: "cpu" sends what the script wants on a GPU to the CPU; "": as it is.
    folder: of a checkout, in which it runs.  ranks: that run it together, as torchrun starts them; 0: as many as it
    starts itself.  budget_s: for survey and trials; what does not fit is left out.  budget_trials: over which it is
    divided.  all_cases: what runs the same code on both sides is timed, too.
    """

    path: str
    source: str
    arguments: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    device: str = ""
    seed: int = 0
    folder: str = "."
    ranks: int = 0
    budget_s: float | None = None
    budget_trials: int = 7
    all_cases: bool = False

    @property
    def operator(self) -> str:
        """Its name in the trial file."""
        return Path(self.path).stem

    @property
    def text(self) -> str:
        """What runs."""
        return Path(self.source).read_text(encoding="utf-8", errors="replace")

    @property
    def by_pytest(self) -> bool:
        """Whether pytest has to run it: a file of tests, and nothing at its top that starts them."""
        try:
            top = ast.parse(self.text).body
        except (SyntaxError, ValueError):
            return False
        calls = any(isinstance(one, ast.Expr) and isinstance(one.value, ast.Call) for one in top)
        starts = calls or any(isinstance(one, (ast.For, ast.While, ast.If)) for one in top)
        tests = any(isinstance(one, ast.FunctionDef) and one.name.startswith("test_") for one in top)
        return tests and not starts and Path(self.path).name.startswith("test_")

    @property
    def needs_fresh_python(self) -> bool:
        """Whether what it sets must be set before torch is imported."""
        return sets_variables(self.text)

    @property
    def definition(self) -> str:
        """Digest of what runs and of how: times of equal digests can be compared."""
        return digest_of([self.path, self.text, self.arguments, self.paths, self.device, self.seed, self.folder])

    def roots(self, checkout: Path) -> list[str]:
        """Folders from which a side imports: those that were named, the usual ones, the top; last those of others."""
        wanted = [checkout / one for one in (*self.paths, *SOURCES, ".")]
        found = [one.resolve() for one in wanted if one.is_dir()]
        return list(map(str, sorted(found, key=lambda one: not one.is_relative_to(checkout.resolve()))))

    def packages(self, checkout: Path) -> list[str]:
        """Names that the repository itself has, which a side must import from its checkout.

        What lies outside of it, in a folder of PYTHONPATH, is a dependency of both sides.
        """
        inside = [Path(root) for root in self.roots(checkout) if Path(root).is_relative_to(checkout.resolve())]
        found = (one for root in inside for one in root.iterdir())
        return sorted({one.name for one in found if one.is_dir() and (one / "__init__.py").is_file()})
