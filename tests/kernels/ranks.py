"""Run one process per rank for a test: a function of a test module, called as function(rank, world, directory)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATH = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))


def run_ranks(module: str, function: str, world: int, directory: Path, timeout_s: float = 100, **env: str) -> list[str]:
    """stdout of every rank; an AssertionError with the output of all that failed.

    The ranks share `directory`, which is empty, as their meeting place.
    """
    code = f"import {module} as m; m.{function}({{rank}}, {world}, {str(directory)!r})"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": PATH, **env}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code.format(rank=rank)],
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for rank in range(world)
    ]
    try:
        outputs = [process.communicate(timeout=timeout_s) for process in started]
    finally:
        for process in started:
            process.kill()
    failed = [f"rank {r}: {err}" for r, (p, (_, err)) in enumerate(zip(started, outputs, strict=True)) if p.returncode]
    assert not failed, "\n".join(failed)
    return [out for out, _ in outputs]


def run_alone(module: str, function: str, *arguments: object, timeout_s: float = 200, **env: str) -> str:
    """stdout of one fresh process that calls a function of a test module with plain values."""
    values = ", ".join(map(repr, arguments))
    done = subprocess.run(
        [sys.executable, "-c", f"import {module} as m; m.{function}({values})"],
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": PATH, **env},
        capture_output=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
