"""What the code of a tree executes on AMD's targets, in an emulator: counts for the result file, kept by what decides
them.

Nothing of the emulator is imported here: it is an extra, and runs in a process of its own for each target.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import tempfile
import threading
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.isa.compile import Cache, key_of
from benchmarks.isa.pool import Choice, CompileProcess, CompileSetting, Ended, Limits
from benchmarks.reach.code import CheckoutCode, of_harness

MODULE = "benchmarks.emulation.executed"
TARGETS = ("gfx942", "gfx950")
NEEDED = ("tinygrad", "msgpack", "torch")
DECIDES = ("torch", "triton", "numpy", "tinygrad", "msgpack")
"""Distributions that decide what is executed."""

LIST_S = 120.0


class ExecutingProcess(CompileProcess):
    """One executing process."""

    what = "executing"


def missing() -> str:
    """What to install before anything can be executed, "" if all is there."""
    absent = [name for name in NEEDED if find_spec(name) is None]
    return f"{', '.join(absent)} not installed: pip install 'ridgeline[emulate]'" if absent else ""


def executed(
    arches: Sequence[str], choice: Choice, setting: CompileSetting, tell: Callable[..., None] = lambda **progress: None
) -> list[dict[str, Any]]:
    """What every chosen case of one GPU executes: [{kernel, backend, arch, at, cases, status, why | counts, bound}].

    at: the shape that is executed, see MODULE.  ValueError if the emulator is not installed.
    """
    if why := missing():
        raise ValueError(f"--execute: {why}")
    found: dict[str, list[dict[str, Any]]] = {arch: [] for arch in arches if arch in TARGETS}
    with tempfile.TemporaryDirectory(prefix="ridgeline-executed-") as scratch:
        works = [
            threading.Thread(
                target=_of_arch, args=(arch, choice, setting, Path(scratch), tell, found[arch]), daemon=True
            )
            for arch in found
        ]
        for work in works:
            work.start()
        for work in works:
            work.join()
    return [entry for arch in found for entry in found[arch]]


def _of_arch(
    arch: str, choice: Choice, setting: CompileSetting, scratch: Path, tell: Callable[..., None], into: list[Any]
) -> None:
    code, cache = CheckoutCode(setting.tree), Cache(setting.cache)
    chosen = dataclasses.asdict(choice)
    whole = f"executed-{_key(arch, code, '', chosen)}.json"
    if (kept := _load(cache, whole)) is not None:
        into.extend(kept)
        return
    folders = (str(setting.tree.resolve()), str(setting.cache.resolve()))
    process = ExecutingProcess((MODULE, arch, *folders), dataclasses.replace(setting, variables=None), code, scratch)
    try:
        listing = process.ask({"op": "list", "choose": chosen}, Limits(LIST_S, setting.limits.memory_mb))
        if not listing["ok"]:
            raise Ended(listing["why"])
        by_launch: dict[str, dict[str, Any]] = {}
        for index, unit in enumerate(listing["units"]):
            name = {part: unit[part] for part in ("kernel", "backend", "at", "knobs", "limit")}
            key = _key(arch, code, unit["module"], name)
            if key not in by_launch:
                entry = {part: unit[part] for part in ("kernel", "backend", "at")} | {"arch": arch, "cases": []}
                by_launch[key] = entry | _counts(process, index, cache, f"executed-{key}.json", setting.limits)
                tell(arch=arch, done=index + 1, total=len(listing["units"]))
            by_launch[key]["cases"].append(unit["case"])
        into.extend(by_launch.values())
        if all(entry["status"] == "ok" for entry in into):
            cache.write(whole, json.dumps(into))
    except Ended as end:
        about = {"kernel": "", "backend": "", "at": "", "arch": arch, "cases": []}
        into.append(about | {"status": "failed", "why": f"nothing could be executed: {end}"})
    finally:
        process.kill()


def _counts(process: CompileProcess, index: int, cache: Cache, name: str, limits: Limits) -> dict[str, Any]:
    """Of one launch: as it is kept, else executed.  What fails is not kept."""
    if (kept := _load(cache, name)) is not None:
        return dict(kept)
    answer = process.ask({"op": "execute", "index": index}, limits)
    if not answer.pop("ok"):
        return {"status": "failed", "why": answer["why"]}
    done = {"status": "ok", **answer}
    cache.write(name, json.dumps(done))
    return done


def _key(arch: str, code: CheckoutCode, module: str, asked: Any) -> str:
    """Of what decides the counts: the code that a module's operators come from, ours, and the versions of the rest."""
    versions = {name: importlib.metadata.version(name) for name in DECIDES}
    looks_at = code.environment(module)
    parts = {"arch": arch, "code": code.digest(module), "looks_at": looks_at, "asked": asked, "versions": versions}
    return key_of({**parts, "ours": of_harness()})


def _load(cache: Cache, name: str) -> Any:
    try:
        return json.loads((cache.folder / name).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
