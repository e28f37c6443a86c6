"""What is known of the samples of a case, while it is measured.

The facts of an attempt, the entries of a trial line, what only the run itself can tell of samples, the least time that
a call can take, the samples that are not kept, and bursts of calls back to back.
"""

from __future__ import annotations

import dataclasses
import json
import math
import random
import statistics
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeVar

from benchmarks.plan import PlannedArm, PlannedCase, known_hardware
from benchmarks.shapes import Json, JsonObject, text_digest
from benchmarks.trial_file import Status
from kernels import hardware
from kernels.spec import Cost

STARVED_PARTS = 0.1
"""Share of the parts of a burst that the device may begin before the host has enqueued them (2026-11-22)."""


@dataclasses.dataclass
class ArmFacts:
    """What an attempt found out about one arm.  seconds, by_rank: by round, of the slowest and of every rank.

    whole_s: of calls from the host's side, of the slowest rank.
    """

    knobs: JsonObject = dataclasses.field(default_factory=dict)
    error: dict[str, float] = dataclasses.field(default_factory=dict)
    code_hash: str | None = None
    first_call_s: float = 0.0
    compile_s: float = 0.0
    expected_s: float = 0.0
    starved: int = 0
    seconds: list[float] = dataclasses.field(default_factory=list)
    by_rank: list[Sequence[float]] = dataclasses.field(default_factory=list)
    whole_s: list[float] = dataclasses.field(default_factory=list)

    def add_sample(self, by_rank: Sequence[float], starved: int) -> None:
        """One sample: the slowest rank counts."""
        self.seconds.append(max(by_rank))
        self.by_rank.append(by_rank)
        self.starved = starved

    def add_burst(self, burst: ArmBurst) -> None:
        """One burst; it counts as starved if more than STARVED_PARTS of its parts were."""
        self.add_sample(burst.by_rank, self.starved + (burst.starved > STARVED_PARTS))

    def ranks(self) -> dict[str, list[float]]:
        """Seconds between the ranks by round, and the median of each rank: one that is always slower is its GPU."""
        skew_s = [max(one) - min(one) for one in self.by_rank]
        return {"skew_s": skew_s, "rank_s": [statistics.median(rank) for rank in zip(*self.by_rank, strict=True)]}

    def proven(self) -> JsonObject:
        """The part of its entry that needs no timing."""
        return {key: getattr(self, key) for key in ("knobs", "error", "code_hash", "first_call_s", "compile_s")}


def joint(hashes: Sequence[str | None]) -> str | None:
    """One digest for all ranks, None if any is unknown."""
    if any(one is None for one in hashes):
        return None
    return hashes[0] if len(set(hashes)) == 1 else text_digest("".join(map(str, hashes)))


def shuffled(arms: Sequence[PlannedArm], rounds: int, order: random.Random) -> Iterator[PlannedArm]:
    """Every arm once per round, each round in an order of its own."""
    for _ in range(rounds):
        yield from order.sample(list(arms), len(arms))


# Entries of the cases of a trial line, by name: what can be read off them, and that of a case that is not measured.


def failed_entry(status: Status, why: str, detail: str = "") -> JsonObject:
    """The entry of an arm that has no samples."""
    return {"status": status, "why": why, "detail": detail}


def skipped_entry(case: PlannedCase) -> JsonObject:
    """The entry of a case that cannot be measured here."""
    arms = {arm.key: failed_entry(Status.SKIPPED, case.skip) for arm in case.arms}
    return {"method": case.method, "warnings": [], "arms": arms}


def compiling_s(cases: Json) -> float:
    """Seconds in which first calls compiled, or loaded what was compiled before."""
    return float(sum(arm.get("compile_s", 0.0) for arm in _arms(cases)))


def is_sound(cases: Json) -> bool:
    """Whether no arm failed; one that is skipped or not supported did not."""
    return not any(Status(arm["status"]).failed for arm in _arms(cases))


def _arms(cases: Json) -> Iterator[Json]:
    return (arm for case in cases.values() for arm in case["arms"].values())


# What only the run itself can tell about the samples of an arm: one sentence per finding.
#
# Whether samples have two modes or collapse is decided where they are read (ci.stats), with one set of limits.


FIRST_CALL_RATIO, FIRST_CALL_S = 20.0, 0.5
"""A first call this many times longer than the median, and this long, did work that belongs to set-up.

Loading a process's first module or making a library handle takes up to 0.16 s (H200, 2026-11); searching takes more.
"""

FIRST_SAMPLE_RATIO = 3.0
"""A first timed sample this many times longer than the median: the warm-up did not cover it (2026-11)."""


def symptoms_of(seconds: Sequence[float], first_call_s: float = 0.0) -> list[str]:
    """All findings about the samples of one arm.  first_call_s: 0 where nobody timed it."""
    median = statistics.median(seconds)
    if not median > 0:
        return ["the median sample is 0 s: the clock cannot resolve this call"]
    found, first, sample = [], first_call_s / median, seconds[0] / median
    if first_call_s >= FIRST_CALL_S and first >= FIRST_CALL_RATIO:
        found.append(f"first call ran {first:.0f} times longer than the median: work that belongs to set-up")
    if len(seconds) >= 4 and sample >= FIRST_SAMPLE_RATIO:
        found.append(f"the first timed sample ran {sample:.1f} times longer than the median: first-call work is timed")
    return found


# Whether an arm runs the same machine code in every trial of a session.
#
# It comes out of a compiler's cache, which every process of a user can write: a kernel, a compiler that was killed,
# or a disk that was full could change what the next trial loads. Or the arm picks its code anew in every process, as
# an autotuner does by timing; then its trials time different code.


CHANGED = (
    "its machine code differs from that of an earlier trial of this run: either it picks its code anew in every "
    "process, as an autotuner does by timing, or something wrote to the compiler's cache in between"
)


class CodesSeen:
    """The digest of the code of every arm, as it was in the first trial that launched it."""

    def __init__(self) -> None:
        self._first: dict[tuple[str, str, str, str], str] = {}

    def look(self, kernel: str, entries: Json) -> None:
        """Add a warning for each arm whose code differs from its first trial.  entries: by case, of one trial."""
        for case, entry in entries.items():
            for key, arm in entry["arms"].items():
                launch = (kernel, case, key, json.dumps(arm.get("knobs"), sort_keys=True, default=str))
                if (code := arm.get("code_hash")) and self._first.setdefault(launch, code) != code:
                    entry["warnings"].append(f"{key}: {CHANGED}")


# The least time that a call can take on a device: below it the clock has not seen the whole call.


MARGIN = 0.9
"""A time below this share of the floor cannot be.  Data sheets give the matrix peak of H100 and H200 at 1830 MHz, and
the clock goes to 1980 MHz, 8 % above; other peaks are upper bounds.  Of 10,411 arms recorded on H200 the fastest took
1.21 times its floor (2026-11-22)."""

CACHE_FACTOR = 10
"""Caches move at most so many times what the memory does: MI300X 17.2 TB/s of Infinity Cache to 5.3 TB/s (AMD CDNA 3
white paper, 2023); its L2 in all 2 KB per clock and XCD at 2.1 GHz, 34 TB/s, 6.5 times."""

SWITCH_FACTOR = 2
"""A switch that adds or copies (NVLink SHARP) lets a rank send half of what the nccl-tests convention counts."""


@dataclasses.dataclass(frozen=True)
class PhysicalFloor:
    """seconds: no call takes less.  because: by what, in words; "" where nothing is known."""

    seconds: float = 0.0
    because: str = ""

    def broken_by(self, samples_s: Sequence[float]) -> str:
        """What is said of samples whose median cannot be; "" if it can."""
        median_s = statistics.median(samples_s) if samples_s else self.seconds
        if median_s >= MARGIN * self.seconds:
            return ""
        return (
            f"impossible time: {_micro(median_s)} per call, but {self.because} take at least {_micro(self.seconds)}: "
            "the timed span does not hold the whole work"
        )


def floor_of(declared: Sequence[Json], case: str, machine: Json) -> PhysicalFloor:
    """Of a case on a machine, by what checkouts declare it to cost; where they disagree, the least.

    Nothing is known of a CPU, and of a device that is not in kernels/hardware.py.
    """
    device = known_hardware(machine)
    found = []
    for one in declared:
        about = next((known for known in one["cases"] if known["name"] == case), None)
        if device and about and case in one["costs"]:
            found.append(physical_floor(Cost(**one["costs"][case]), about["dtype"], about["world"], device))
    return min(found, key=lambda floor: floor.seconds, default=PhysicalFloor())


def physical_floor(cost: Cost, dtype: str, world: int, device: hardware.Hardware) -> PhysicalFloor:
    """The largest of FLOP over peak, bytes over the bandwidth of memory and caches, link bytes over the links.

    What fits in L2 and the last-level cache need not pass through memory, whatever the caches held before.
    """
    cached = device.l2_bytes + device.llc_bytes
    beyond = max(0, cost.hbm_bytes - cached)
    floors = {
        f"{beyond / 1e6:.4g} MB beyond the caches": beyond / device.hbm_bandwidth,
        f"{cost.hbm_bytes / 1e6:.4g} MB through the caches": cost.hbm_bytes / (CACHE_FACTOR * device.hbm_bandwidth),
        f"{cost.flops:.3g} FLOP in {dtype}": cost.flops / _peak(dtype, device),
    }
    if world > 1:
        link = SWITCH_FACTOR * device.link_to(world - 1)
        floors[f"{cost.link_bytes / 1e6:.4g} MB over the links"] = cost.link_bytes / link
    what = max(floors, key=floors.__getitem__)
    return PhysicalFloor(floors[what], f"{what} of an {device.market_name}")


def _peak(dtype: str, device: hardware.Hardware) -> float:
    """FLOP/s that no kernel of a dtype exceeds: infinite where the table has no peak; of packed formats the largest."""
    if dtype not in ("fp32", "fp16", "bf16", "fp8"):
        return max(device.peak_flops.values())
    return device.peak_flops.get(dtype, float("inf"))


def _micro(seconds: float) -> str:
    return f"{1e6 * seconds:.3g} us"


# Samples that are not kept, at random among the timed ones: what the call did in them is compared afterwards.


OF_AN_ARM = ("outputs", "inputs")
"""The spot checks of an arm in a trial, by what is changed before the call (worker.guards.SpotCheck).  A call
that skips its work in a share p of the timed rounds passes them in (1 - p)^2 of the trials, of which there are three or
more."""

OF_A_POINT = ("inputs",)
"""Of a point of a sweep; where a kernel has no live inputs the worker changes the outputs."""

LATE = (
    "in a spot check during timing its output was not complete when the timed span ended: it works in a stream, thread "
    "or process that the span does not wait for, or when its output is read"
)
LEFT = "in a spot check during timing it left its output as it was: work is skipped while it is timed"
STALE = "in a spot check during timing its inputs had new values, and it gave the result of the old ones"
WRONG = "in a spot check during timing its output was wrong"

SECRETS = random.SystemRandom()
"""Where and when must not follow from the trial's number, as the order of the arms does."""


@dataclasses.dataclass(frozen=True)
class PlannedSample:
    """One sample of an arm.  spot: the kind of a spot check, "" for a sample that counts."""

    arm: PlannedArm
    spot: str = ""

    def request(self) -> JsonObject | None:
        """What a measuring process is told of it, equal for all ranks; None for a sample that counts."""
        return {"kind": self.spot, "secret": secret()} if self.spot else None


def secret() -> int:
    """A seed that no kernel knows."""
    return SECRETS.getrandbits(62)


def with_spot_checks(schedule: Sequence[PlannedArm]) -> list[PlannedSample]:
    """The samples of a schedule, in its order, with the spot checks of every arm between them."""
    found = [PlannedSample(arm) for arm in schedule]
    for check in _spot_checks(dict.fromkeys(schedule)):
        found.insert(SECRETS.randrange(len(found) + 1), check)
    return found


def spot_checks_after(arms: Sequence[PlannedArm], rounds: int) -> dict[int, list[PlannedSample]]:
    """The spot checks of every arm by the number of bursts after which they come."""
    found: dict[int, list[PlannedSample]] = {}
    for check in _spot_checks(arms):
        found.setdefault(SECRETS.randint(1, rounds * len(arms)), []).append(check)
    return found


def _spot_checks(arms: Iterable[PlannedArm]) -> list[PlannedSample]:
    return [PlannedSample(arm, kind) for arm in arms for kind in (OF_A_POINT if arm.point else OF_AN_ARM)]


def spot_sentence(report: Json) -> str:
    """What is said of a spot check, "" if all is well.

    late: the outputs changed after the timed span.  left: one holds what was put there.  why: what is wrong in them.
    stale: they are right for the values that the inputs had before.  misshapen: they are no plain tensors.
    """
    if report["misshapen"]:
        return f"in a spot check during timing it {report['misshapen']}"
    if report["late"]:
        return LATE
    if report["left"]:
        return LEFT
    if not report["why"]:
        return ""
    return f"{STALE if report['kind'] == 'inputs' and report['stale'] else WRONG}: {report['why']}"


# In which order bursts follow each other: the clock and the heat that an arm leaves are the next one's beginning.


Arm = TypeVar("Arm", bound=Hashable)

DRAWN = 120
"""Orders of a round that are tried; the one that balances best is taken.  With two arms the balance is exact; with 3 to
8 arms and 8 or 12 rounds the most and the least frequent neighbours differ by 3 at most, those of plain shuffling by 5
or 6 (tests/benchmarks/coordinator/test_sustained.py, 2026-11-22)."""


def balanced(arms: Sequence[Arm], rounds: int, order: random.Random) -> list[list[Arm]]:
    """Every arm once per round, so that each follows each other arm equally often, as far as the rounds allow.

    Each is in each place of a round equally often too: warming up by and by then moves all arms alike.  An arm that
    ends a round may begin the next one; it then follows itself, which is nobody's influence.
    """
    follows: Counter[tuple[Arm, Arm]] = Counter()
    places: Counter[tuple[int, Arm]] = Counter()
    found: list[list[Arm]] = []
    for _ in range(rounds):
        last = found[-1][-1:] if found else []
        drawn = (order.sample(list(arms), len(arms)) for _ in range(DRAWN))
        best = min(drawn, key=lambda one: _cost(pairs([*last, *one]), follows) + _cost(enumerate(one), places))
        follows.update(pairs([*last, *best]))
        places.update(enumerate(best))
        found.append(best)
    return found


def pairs(sequence: Sequence[Arm]) -> list[tuple[Arm, Arm]]:
    """(arm, the one that follows it), without arms that follow themselves."""
    return [(one, other) for one, other in pairwise(sequence) if one != other]


def _cost(events: Iterable[Hashable], counts: Counter[Any]) -> int:
    """By how much the sum of squares of the counts grows: least where the rarest are taken."""
    return sum(2 * counts[one] + 1 for one in events)


# Rounds of bursts: every arm in turn for at least the burst's length, on a device that has come to its power before.
#
# Whether it has come to it is seen in the times themselves, so it needs no counter: the clock that the power allows
# is in every time. The device is settled when two bursts of the same arm, one after the other, take the same time.


Answers = Sequence[Json]
"""What the ranks say of a burst: the fields of benchmarks.worker.clocks.Burst."""

CALIBRATION_S = 0.02
"""A burst of this length tells how many launches a long one has."""

LEAST_LAUNCH_S = 1e-7
"""No launch takes less: bounds the launches of a burst."""

BURST_MARGIN = 1.15
"""A burst is planned to last this many times as long as asked, so that it is not too short.  On a settled H200 the
bursts of one arm differ by 1 to 2 %; the first burst on a cold one is 14 % shorter (618 us a call against 718;
2026-11-22)."""

SETTLED = {"clock": 0.05, "graph": 0.02, "events": 0.02}
"""By method: two bursts differ by less when the device has settled.  A GEMM of 4096 x 4096 x 14336 on an H200 goes
from 618 us to 718 us in the first 0.5 s; from then on, 0.17 s of calls differ by 1 % (standard deviation; 2026-11-22),
which is the power control at work.  A CPU that others share never does better than a few percent (ci/policy.toml)."""

SETTLING_BURSTS = 10
"""Most bursts before the first one that counts: 5 s at 0.5 s.  Power settles within 1 s; heat takes minutes, and arms
take turns because of it."""


@dataclasses.dataclass(frozen=True)
class ArmBurst:
    """One burst of an arm.  by_rank: seconds per call.  starved: share of its parts that found an idle device."""

    arm: Arm
    by_rank: Sequence[float]
    starved: float


class BurstRounds:
    """Takes the bursts of one case.  ask: makes so many launches of an arm in one burst, on all ranks."""

    def __init__(self, ask: Callable[[Arm, int], Answers], burst_s: float, order: random.Random) -> None:
        self._ask, self._burst_s, self._order = ask, burst_s, order
        self._launch_s: dict[Arm, float] = {}

    def calibrate(self, arm: Arm, expected_s: float) -> None:
        """Find out how long a launch takes; `expected_s` may be far too much, the host's overhead is in it."""
        length = min(CALIBRATION_S, self._burst_s)
        self._launch_s[arm] = expected_s
        for _ in range(4):
            launches = self._launches(arm, length)
            self._once(arm, launches)
            if launches * self._launch_s[arm] >= length / 2:
                return

    def settle(self, arm: Arm, tolerance: float) -> str:
        """Bursts of one arm until two agree; a sentence if they never do."""
        last = max(self._long(arm).by_rank)
        changes = []
        for _ in range(SETTLING_BURSTS - 1):
            now = max(self._long(arm).by_rank)
            changes.append(now / last - 1)
            if abs(changes[-1]) <= tolerance:
                return ""
            last = now
        return (
            f"the device did not settle: after {SETTLING_BURSTS} bursts of {self._burst_s:g} s the time of a call "
            f"still changes by {changes[-1]:+.1%} from one to the next"
        )

    def take(self, arms: Sequence[Arm], rounds: int) -> Iterator[ArmBurst]:
        """The bursts of all rounds, in an order that gives every arm the same neighbours."""
        for those in balanced(arms, rounds, self._order):
            yield from map(self._long, those)

    def fewest(self, arm: Arm) -> int:
        """Launches of a short burst of an arm, as of calibrating."""
        return self._launches(arm, min(CALIBRATION_S, self._burst_s))

    def _long(self, arm: Arm) -> ArmBurst:
        return self._once(arm, self._launches(arm, BURST_MARGIN * self._burst_s))

    def _launches(self, arm: Arm, seconds: float) -> int:
        return max(2, math.ceil(seconds / max(self._launch_s[arm], LEAST_LAUNCH_S)))

    def _once(self, arm: Arm, launches: int) -> ArmBurst:
        answers = self._ask(arm, launches)
        self._launch_s[arm] = min(one["busy_s"] for one in answers) / launches
        starved = max(one["starved"] / one["parts"] for one in answers)
        return ArmBurst(arm, [one["seconds"] for one in answers], starved)
