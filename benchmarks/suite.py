"""All that asv sees: for each kernel one benchmark of its times, and one for each of its exact series.

asv 0.6 imports every module it finds and takes functions by their names, so `benchmarks/__init__.py` shows it this
module only, and this module needs nothing but the standard library: asv starts a process for every parameter
combination.  What there is to measure comes as one JSON file from the environment plug-in (ci/asv_plugin.py), named by
RIDGELINE_SUITE:

    {"tree": checkout under test, "commit": .., "date_ms": .., "tier": .., "broken": [{"module", "reason"}],
     "benchmarks": {name: entry of asv's benchmarks.json}, "values": {name: {case: number}}, "absent": {kernel: why}}

A kernel is measured once, in `setup_cache`: one run of `python -m benchmarks run` with every backend and baseline
interleaved.  The plug-in records its trials and leaves `outcomes.json` in asv's cache folder; a combination only
passes its samples on.  What cannot be measured is n/a (NotImplementedError in `setup`), what failed is null.

RIDGELINE_TRIALS and RIDGELINE_ROUNDS set how long is measured, RIDGELINE_TIER which cases (pr, nightly, sweep),
RIDGELINE_HEAP where the symmetric heap of GPUs is (auto, torch, ipc).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

from benchmarks import lifetime
from benchmarks.shapes import JsonObject

HARNESS = Path(__file__).resolve().parent.parent
SUITE_FILE = "RIDGELINE_SUITE"
"""Environment variable with the path of that file."""

TIMEOUT_S = 4 * 3600.0
"""asv ends a measurement after this; the measuring program itself ends a hang long before."""


def classes() -> dict[str, type]:
    """The benchmark classes; their names have no meaning.  RuntimeError outside the worktree environment."""
    if SUITE_FILE not in os.environ:
        raise RuntimeError(
            "this suite runs in the environment type 'worktree' of asv.conf.json only; leave out "
            "-E/--environment (an existing environment would measure one checkout as many commits)"
        )
    given = json.loads(Path(os.environ[SUITE_FILE]).read_text())
    return {f"Benchmark{number}": _class(entry, given) for number, entry in enumerate(given["benchmarks"].values())}


def _class(entry: JsonObject, given: JsonObject) -> type:
    kernel, _, series = entry["name"].rpartition(".")
    if not kernel:
        members = {"track": _broken(given)}
    elif series == "track_time":
        members = {"setup": _no_time, "track": _time(), "setup_cache": _measurement(kernel, given)}
    else:
        members = _exact(given["absent"].get(kernel, ""), given["values"].get(entry["name"], {}))
    track = members["track"]
    for key in ("unit", "declared_ms", "version"):
        setattr(track, key, entry[key])
    track.benchmark_name = entry["name"]
    verb = f"run --kernel {kernel} --out trials.jsonl" if series == "track_time" else "list --tree ."
    for name, method in members.items():  # without this asv parses this module again for every combination
        method.pretty_source = f"python -m benchmarks {verb}" if name == "track" else ""
    params = [[text[1:-1] for text in values] for values in entry["params"]]
    return type(f"Benchmark of {entry['name']}", (), {**members, "params": params, "param_names": entry["param_names"]})


def _no_time(self: Any, backend: str, case: str) -> None:
    """n/a with its reason, for what was not measured."""
    outcome = _outcome(backend, case)
    if "absent" in outcome:
        raise NotImplementedError(outcome["absent"])


def _time() -> Any:
    def track(self: Any, backend: str, case: str) -> JsonObject:
        outcome = _outcome(backend, case)
        if "failed" in outcome:  # an exception would bury the reason in a traceback of asv
            print(outcome["failed"], file=sys.stderr, flush=True)
            os._exit(1)
        return {"samples": outcome["samples"], "number": 1}

    return track


def _outcome(backend: str, case: str) -> JsonObject:
    """The result of a combination; asv runs it in the folder in which setup_cache ran."""
    outcomes: JsonObject = json.loads(Path("outcomes.json").read_text())
    return dict(outcomes[backend][case])


def _exact(absent: str, values: dict[str, float]) -> JsonObject:
    def setup(self: Any, case: str) -> None:
        if values.get(case) is None:
            raise NotImplementedError(absent or f"this commit states no cost of case {case!r}")

    def track(self: Any, case: str) -> float:
        return values[case]

    return {"setup": setup, "track": track}


def _broken(given: JsonObject) -> Any:
    def track(self: Any) -> int:
        for broken in given["broken"]:
            print(f"{broken['module']}: {broken['reason']}", file=sys.stderr)
        return len(given["broken"])

    return track


def _measurement(kernel: str, given: JsonObject) -> Any:
    """The setup_cache of one kernel.  asv names a cache by module and line, so each gets a module of its own."""

    def setup_cache(self: Any) -> None:
        if kernel not in given["absent"]:
            _measure(kernel, given)

    setup_cache.__module__ = f"{__package__}.kernel.{kernel}"
    sys.modules[setup_cache.__module__] = types.ModuleType(setup_cache.__module__)
    setup_cache.timeout = TIMEOUT_S  # type: ignore[attr-defined]
    return setup_cache


def _measure(kernel: str, given: JsonObject) -> None:
    """Write trials.jsonl into the current folder.  Failures of backends are in it; nothing at all is an error."""
    out = Path("trials.jsonl").resolve()
    side = {"path": given["tree"], "commit": given["commit"], "date_ms": given["date_ms"], "dirty": False}
    options = {
        "--kernel": kernel,
        "--out": str(out),
        "--tier": given["tier"],
        "--tree": f"head={json.dumps(side)}",
        "--trials": os.environ.get("RIDGELINE_TRIALS", "1"),
        "--rounds": os.environ.get("RIDGELINE_ROUNDS"),
    }
    command = [sys.executable, "-m", "benchmarks.lifetime", "benchmarks", "run"]
    command += [word for option, value in options.items() if value is not None for word in (option, value)]
    ours = (SUITE_FILE, "PYTHONPATH")
    own = {key: value for key, value in os.environ.items() if key not in ours and not key.startswith("ASV")}
    own = lifetime.told(own)
    done = subprocess.run(command, cwd=HARNESS, env=own, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode not in (0, 1, 2):
        raise RuntimeError(f"{' '.join(command[3:5])} ended with {done.returncode}: {done.stderr.strip()[-2000:]}")
