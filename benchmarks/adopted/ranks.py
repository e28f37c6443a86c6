"""The ranks of a side as one: their processes, whether they are at the same timer, and their answers put together; and
the starts of a trial as one.

A closure is the same on all ranks by its place in the order of calls.  It has the name that rank 0 gives it.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.coordinator.ranks import Failure, PoolDied, WorkerPool
from benchmarks.coordinator.samples import joint
from benchmarks.shapes import Json, JsonObject
from benchmarks.trial_file import Status


class ScriptPool(WorkerPool):
    """The ranks of a side.  Where one ends badly, the others have a moment, as they may wait for it forever."""

    def _hurries(self, answer: Json) -> bool:
        return super()._hurries(answer) or _ended_badly(answer["result"])

    def _results(self, answers: Mapping[int, JsonObject]) -> list[Any]:
        """Of ranks that wait for one that has ended, None; PoolDied with the place of the others for a hang."""
        waiting = [worker.rank for worker in self.workers if worker.rank not in answers]
        good = all(answer["ok"] for answer in answers.values())
        if waiting and good and any(_ended_badly(answer["result"]) for answer in answers.values()):
            world = len(self.workers)
            self.kill()
            return [answers[rank]["result"] if rank in answers else None for rank in range(world)]
        where = {rank: _where(answer["result"]) for rank, answer in sorted(answers.items()) if answer["ok"]}
        try:
            return super()._results(answers)
        except PoolDied as error:
            if error.failure.status != Status.HANG or not where:
                raise
            why = f"{error.failure.why}; {', '.join(f'rank {rank} {place}' for rank, place in where.items())}"
            raise PoolDied(Failure(Status.HANG, why, error.failure.detail)) from None


def _ended_badly(result: Any) -> bool:
    """Whether it is the end of a script that raised, or left with a code."""
    return isinstance(result, dict) and bool(result.get("code"))


def _where(result: Any) -> str:
    if not isinstance(result, dict) or not ("event" in result or "programs" in result):
        return "is through with it"
    return f"is at {result['line']}" if "event" in result else "has ended"


def disagreement(answers: Sequence[JsonObject]) -> str:
    """Why the ranks are not at the same timer, "" where they are, or where all have ended, or one has badly."""
    if any(one is None or _ended_badly(one) for one in answers) or len({_where(one) for one in answers}) == 1:
        return ""
    return f"its ranks time different things: {', '.join(f'rank {at} {_where(one)}' for at, one in enumerate(answers))}"


def joint_end(answers: Sequence[JsonObject | None]) -> JsonObject:
    """How the script ended: as on the first rank on which it ended badly, or as on rank 0."""
    bad = [rank for rank, one in enumerate(answers) if one and one.get("code")]
    rank = min(bad, key=lambda one: answers[one]["ended_at"], default=0)  # type: ignore[index]
    found = dict(answers[rank] or {})
    if bad and len(answers) > 1 and len(bad) < len(answers) and found.get("why"):
        found["why"] = f"rank {rank} of {len(answers)}: {found['why']}"
    return found


LONGEST = ("first_call_s", "expected_s", "at_s", "took_s", "untuned")
EVERY, SOME = ("repeats",), ("on_gpu",)


def joint_facts(answers: Sequence[JsonObject]) -> JsonObject:
    """What the ranks saw of a closure, as of one process.

    Times are those of the slowest; names are those of rank 0, and `names` has those of every rank where they differ.
    """
    first = answers[0]
    if len(answers) == 1:
        return first
    names = [f"{one['backend']}/{one['case']}" for one in answers if "case" in one]
    found = {**first, "names": names if len(set(names)) > 1 else []}
    for rank, one in enumerate(answers):
        if one.get("status", "ok") != "ok":
            return {
                **found,
                "status": one["status"],
                "why": f"rank {rank}: {one['why']}",
                "detail": one.get("detail", ""),
            }
    for name in first.keys() & {*LONGEST}:
        found[name] = max(one[name] for one in answers)
    for name in first.keys() & {*EVERY, *SOME}:
        found[name] = (all if name in EVERY else any)(one[name] for one in answers)
    for name in first.keys() & {"inputs", "outputs", "changed"}:
        alike = all(one[name] == first[name] for one in answers)
        found[name] = first[name] if alike else [what for one in answers for what in one[name]]
    for name in first.keys() & {"held", "bits"}:
        found[name] = joint([one[name] or None for one in answers]) or ""
    if "ran" in first:
        found["unseen"] = next((one["unseen"] for one in answers if one["unseen"]), "")
        parts = dict.fromkeys(name for one in answers for name in one["ran"])
        found["ran"] = (
            {} if found["unseen"] else {part: _digest([one["ran"].get(part) for one in answers]) for part in parts}
        )
    return found


def _digest(digests: Sequence[str | None]) -> str:
    return joint([one or "nothing" for one in digests]) or ""


APART = 0.03
"""Ranks whose times changed so differently are told."""


def joint_starts(starts: Sequence[JsonObject]) -> JsonObject:
    """The entry of a closure in a trial, of its entries in the starts of that trial, arms by role.

    Sample i is the mean of their samples i.  An arm that failed in a start has no samples.
    """
    arms = {role: _joint_arm([one["arms"][role] for one in starts]) for role in starts[0]["arms"]}
    warnings = dict.fromkeys(warning for one in starts for warning in one["warnings"])
    return {**starts[0], "arms": arms, "warnings": [*warnings, *_uneven_ranks(arms)]}


def _joint_arm(starts: Sequence[JsonObject]) -> JsonObject:
    if failed := next((arm for arm in starts if arm["status"] != Status.OK), None):
        return failed
    series = [name for name in ("seconds", "skew_s", "rank_s") if starts[0].get(name)]
    by_start = {name: zip(*(arm[name] for arm in starts), strict=True) for name in series}
    return {**starts[0], **{name: list(map(statistics.fmean, rows)) for name, rows in by_start.items()}}


def _uneven_ranks(arms: Mapping[str, Json]) -> list[str]:
    """What is said where head is slower on some ranks than on others."""
    base, head = (arms.get(role, {}).get("rank_s") for role in ("base", "head"))
    ratios = [after / before for before, after in zip(base or (), head or (), strict=True)] if base and head else [1.0]
    if max(ratios) <= (1 + APART) * min(ratios):
        return []
    told = ", ".join(f"rank {rank} {100 * (one - 1):+.1f} %" for rank, one in enumerate(ratios))
    return [f"head takes longer on some ranks than on others: {told}"]
