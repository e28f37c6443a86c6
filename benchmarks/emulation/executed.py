"""What the code of a tree executes on AMD's targets: counts for the result file of `isa`, kept by what decides them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from benchmarks.coordinator.checkouts import Checkout, CheckoutError
from benchmarks.emulation.code_object import TARGETS
from benchmarks.emulation.installed import missing
from benchmarks.emulation.pool import ENDED, Pool
from benchmarks.isa.compile import write
from benchmarks.isa.pool import Choice, CompileSetting
from benchmarks.shapes import Json, JsonObject, digest_of
from benchmarks.trial_file import Status
from benchmarks.verify import SETTLED


def executed(
    arches: Sequence[str], choice: Choice, setting: CompileSetting, tell: Callable[..., None] = lambda **progress: None
) -> list[dict[str, Any]]:
    """What every chosen case executes: [{kernel, backend, arch, at, cases, status, why | counts, bound}].

    at: the shape that is executed (cases.counted_cases), "" of cases that are not.  What is wrong has no counts.
    ValueError if the emulator is not installed.
    """
    if why := missing():
        raise ValueError(f"--execute: {why}")
    wanted = [arch for arch in arches if arch in TARGETS.values()]
    asked = {"kernels": list(choice.kernels), "backends": list(choice.backends), "arches": wanted, "counted": True}
    checkout = Checkout("head", setting.tree)
    try:
        with Pool(checkout, asked, setting.limits) as pool:
            return _entries(pool, choice, setting.cache, tell)
    except CheckoutError as error:
        about = {"kernel": "", "backend": "", "at": "", "cases": [], "status": "failed"}
        return [{**about, "arch": arch, "why": f"nothing could be executed: {error}"} for arch in wanted]


def _entries(pool: Pool, choice: Choice, cache: Path, tell: Callable[..., None]) -> list[dict[str, Any]]:
    """One for all cases of the same launch and limit; launches are executed unless they are kept."""
    chosen = [(index, case) for index, case in enumerate(pool.listing["cases"]) if _is_chosen(case, choice)]
    files, arms, left = dict[Any, Path](), dict[Any, Any](), list[int]()
    for index, case in chosen:
        if (launch := _launch(case)) not in files:
            decides = {"launch": launch, "holds_for": pool.holds_for(case["kernel"], case["arch"])}
            files[launch] = cache / f"executed-{digest_of(decides, 32)}.json"
            if arm := _loaded(files[launch]):
                arms[launch] = arm
            else:
                left.append(index)
    for case, arm in pool.executed(left):
        arms[_launch(case)] = arm
        if arm["status"] in SETTLED and not arm.get(ENDED):
            write(files[_launch(case)], json.dumps(arm))
        done, total = (sum(arch == case["arch"] for _, _, arch, _ in launches) for launches in (arms, files))
        tell(arch=case["arch"], done=done, total=total)
    entries: dict[Any, dict[str, Any]] = {}
    for _, case in chosen:
        about = {part: case[part] for part in ("kernel", "backend", "at", "arch")}
        told = _told(arms[_launch(case)], case["limit"])
        entry = entries.setdefault((_launch(case), case["limit"]), {**about, "cases": [], **told})
        entry["cases"].append(case["declared"])
    for case in pool.listing["not_counted"]:
        if _is_chosen(case, choice):
            about = {part: case[part] for part in ("kernel", "backend", "arch")}
            told = {"at": "", "cases": [], "status": "unsupported", "why": case["why"]}
            entry = entries.setdefault((*about.values(), case["why"]), {**about, **told})
            entry["cases"].append(case["declared"])
    return list(entries.values())


def _loaded(file: Path) -> JsonObject | None:
    """What a launch came to, None where it is not kept or torn."""
    try:
        arm: JsonObject = json.loads(file.read_text())
        return arm
    except (OSError, ValueError):
        return None


def _is_chosen(case: Json, choice: Choice) -> bool:
    named = not choice.cases or any(fnmatch(case["declared"], pattern) for pattern in choice.cases)
    return named and case["declared_tier"] in choice.tiers


def _launch(case: Json) -> tuple[str, ...]:
    """What is executed once for all cases that are listed with it: operator, backend, target, shape with knobs."""
    return case["kernel"], case["backend"], case["arch"], case["case"]


def _told(arm: Json, limit: str) -> JsonObject:
    """What an entry says of its launch.  limit: of its cases in their own shape."""
    if arm["status"] == Status.OK:
        return {"status": "ok", "counts": arm["counts"], "bound": arm["bounds"][limit]}
    if arm["status"] == Status.UNSUPPORTED:
        return {"status": "unsupported", "why": arm["why"].removeprefix("not executed, because ")}
    how = "" if arm["status"] == Status.ERROR else f"{arm['status']}: "
    return {"status": "failed", "why": how + arm["why"]}
