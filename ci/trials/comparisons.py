"""The trials of an A/B, as `benchmarks` writes them, into comparisons: one per kernel, backend and case."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ci.stats.types import Clocks, FloatArray, PairedRounds, Role
from ci.trials.compared import Comparison, Status

ROLES: tuple[Role, Role] = ("base", "head")

NO_TIME = (Status.UNSUPPORTED, Status.SKIPPED, Status.MISSING)

WORST = (Status.WRONG, Status.CRASH, Status.HANG, Status.ERROR, Status.UNSUPPORTED, Status.SKIPPED)
"""If the trials of an arm ended differently, the worst is what is said."""

Arm = Mapping[str, Any]


def comparisons(trials: Sequence[Mapping[str, Any]], warnings: Iterable[str] = ()) -> list[Comparison]:
    """Compare base with head in every case that at least one of them can run.

    A vendor baseline is the control of its kernel, not a comparison of its own, except where the environments differ
    (then
    it is what changed) or nothing else is declared.  A file with one tree only has nothing to compare.
    """
    shared = tuple(warnings)
    found: dict[tuple[str, str, str], None] = {}
    by_kernel: dict[str, list[Mapping[str, Any]]] = {}
    for trial in trials:
        if not set(ROLES) <= set(trial["trees"]):
            continue
        by_kernel.setdefault(trial["kernel"], []).append(trial)
        for name, case in trial["cases"].items():
            for arm in case.get("arms", {}):
                found.setdefault((trial["kernel"], arm.partition("/")[2], name))
    made = (_comparison(by_kernel[kernel], kernel, backend, name, shared) for kernel, backend, name in found)
    return [comparison for comparison in made if comparison is not None]


def _comparison(
    trials: Sequence[Mapping[str, Any]], kernel: str, backend: str, name: str, shared: tuple[str, ...]
) -> Comparison | None:
    last = trials[-1]
    changed = _environment_changed(last)
    baselines = _baselines(last)
    if backend in baselines and not changed and set(_backends(last)) - set(baselines):
        return None
    having = [(i, t["cases"][name]["arms"]) for i, t in enumerate(trials) if t["cases"].get(name, {}).get("arms")]
    arms = {role: [a[f"{role}/{backend}"] for _, a in having if f"{role}/{backend}" in a] for role in ROLES}
    status = {role: _status(arms[role]) for role in ROLES}
    if all(s in NO_TIME for s in status.values()):
        return None
    control = None if changed else next((b for b in baselines if b != backend and _timed(having, b)), None)
    timed, problems = _trials(having, trials, backend, control)
    yardsticks = [_yardstick(last, role, name) for role in ROLES]
    return Comparison(
        f"{kernel}/{backend}/{name}",
        kernel,
        backend,
        timed,
        last["machine"].get("kind") or "gpu",
        last["machine"].get("name", ""),
        _same_code(having, backend, last),
        status["base"],
        status["head"],
        _why(last, "base", arms["base"], status["base"]),
        _why(last, "head", arms["head"], status["head"]),
        yardsticks[0],
        yardsticks[1],
        control,
        problems,
        shared + _missing(timed, trials, having),
    )


def _declared(trial: Mapping[str, Any], role: str) -> Mapping[str, Any]:
    return trial["trees"][role].get("declaration") or {}


def _backends(trial: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys(b for role in ROLES for b in _declared(trial, role).get("backends", [])))


def _baselines(trial: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys(b for role in ROLES for b in _declared(trial, role).get("baselines", [])))


def _yardstick(trial: Mapping[str, Any], role: str, name: str) -> str | None:
    return (_declared(trial, role).get("case_yardsticks") or {}).get(name)


def _environment_changed(trial: Mapping[str, Any]) -> bool:
    base, head = (
        {k: v for k, v in (trial["trees"][role].get("environment") or {}).items() if k != "executable"}
        for role in ROLES
    )
    return base != head


def _status(arms: Sequence[Arm]) -> Status:
    """How the arm ended over all trials: the worst that happened, missing if no trial has it."""
    ended = {Status(arm["status"]) for arm in arms}
    return next((s for s in WORST if s in ended), Status.OK if ended else Status.MISSING)


def _why(trial: Mapping[str, Any], role: Role, arms: Sequence[Arm], status: Status) -> str:
    if status is Status.MISSING:
        broken = trial["trees"][role].get("broken") or []
        return "; ".join(f"its module {b['module']} does not import: {b['reason']}" for b in broken)
    return next((str(arm.get("why", "")) for arm in arms if arm["status"] == status and status is not Status.OK), "")


def _ok(arms: Mapping[str, Arm], key: str) -> bool:
    return key in arms and arms[key]["status"] == "ok"


def _timed(having: Sequence[tuple[int, Mapping[str, Arm]]], backend: str) -> bool:
    return any(all(_ok(arms, f"{role}/{backend}") for role in ROLES) for _, arms in having)


def _trials(
    having: Sequence[tuple[int, Mapping[str, Arm]]],
    trials: Sequence[Mapping[str, Any]],
    backend: str,
    control: str | None,
) -> tuple[tuple[PairedRounds, ...], tuple[str, ...]]:
    """The trials in which both arms ran, and what makes one of them unusable."""
    timed, problems = [], []
    for number, arms in having:
        if not all(_ok(arms, f"{role}/{backend}") for role in ROLES):
            continue
        base, head = (_seconds(arms[f"{role}/{backend}"]) for role in ROLES)
        if len(base) != len(head):
            problems.append(
                f"trial {number}: base has {len(base)} rounds and head {len(head)}; a trial has equally many"
            )
            continue
        vendor: list[FloatArray | None] = [None, None]
        if control and all(_ok(arms, f"{role}/{control}") for role in ROLES):
            pair = [_seconds(arms[f"{role}/{control}"]) for role in ROLES]
            if all(len(p) == len(base) for p in pair):
                vendor = [*pair]
        timed.append(PairedRounds(number, base, head, vendor[0], vendor[1], _clocks(trials[number])))
    return tuple(timed), tuple(problems)


def _seconds(arm: Arm) -> FloatArray:
    return np.array(arm["seconds"], dtype=np.float64)


def _clocks(trial: Mapping[str, Any]) -> dict[Role, Clocks] | None:
    """Clocks per tree, where the readings say which tree was at work."""
    readings = [r for r in (trial.get("state") or {}).get("during") or [] if r.get("role") in ROLES]
    clocks: dict[Role, Clocks] = {}
    for role in ROLES:
        mine = [r for r in readings if r["role"] == role]
        if not mine:
            return None
        throttle = {str(r["throttle"]) for r in mine if r.get("throttle") not in (None, "", "none")}
        clocks[role] = Clocks(
            _middle(mine, "sm_clock_mhz"),
            _middle(mine, "power_w"),
            _middle(mine, "temperature_c"),
            ", ".join(sorted(throttle)),
        )
    return clocks


def _middle(readings: Sequence[Mapping[str, Any]], key: str) -> float | None:
    known = [float(r[key]) for r in readings if r.get(key) is not None]
    return float(np.median(known)) if known else None


def _same_code(having: Sequence[tuple[int, Mapping[str, Arm]]], backend: str, last: Mapping[str, Any]) -> bool | None:
    """Whether both trees launched the same code objects with the same knobs in every trial; None if not known.

    Where no code objects are known (on a CPU), equal files of the kernel in equal environments are the same code.
    """
    pairs = [tuple(arms.get(f"{role}/{backend}") for role in ROLES) for _, arms in having]
    facts = [(base, head) for base, head in pairs if base and head]
    if not facts:
        return None
    if not all(base.get("code_hash") and head.get("code_hash") for base, head in facts):
        same_knobs = all(base.get("knobs") == head.get("knobs") for base, head in facts)
        return True if same_knobs and _same_files(last) and not _environment_changed(last) else None
    return all((base["code_hash"], base.get("knobs")) == (head["code_hash"], head.get("knobs")) for base, head in facts)


def _same_files(trial: Mapping[str, Any]) -> bool:
    """Whether the kernel's code comes from equal files on both sides."""
    base, head = (trial["trees"][role].get("kernel_digest") for role in ROLES)
    return base is not None and base == head


def _missing(
    timed: Sequence[PairedRounds], trials: Sequence[Mapping[str, Any]], having: Sequence[Any]
) -> tuple[str, ...]:
    """A trial without a line for this case is no loss (only open cases are measured further); a lost arm is."""
    lost = len(having) - len(timed)
    return (f"{lost} of {len(having)} trials have no time on one side; the others are used",) if timed and lost else ()
