"""The litmus test sees a fault, its kernels compile for every GPU, and rates and access are judged by their numbers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")


ROOT = Path(__file__).resolve().parents[3]


def rows_of(folder: Path, fault: str, world: int = 2) -> dict[str, dict]:
    """Rows of the litmus test by name, with that many ranks in Triton's interpreter."""
    (folder / "heap").mkdir()
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT), "GLOO_SOCKET_IFNAME": "lo"}
    argv = [sys.executable, "-m", "tests.benchmarks.bringup.litmus_ranks"]
    started = [
        subprocess.Popen(
            [*argv, str(rank), str(world), str(folder), fault], env=environment, cwd=ROOT, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for rank in range(world)
    ]  # fmt: skip
    try:
        said = [process.communicate(timeout=120) for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0] * world, said
    return {row["name"]: row for row in json.loads(said[0][0])}


def test_the_litmus_test_passes_where_messages_arrive(tmp_path):
    rows = rows_of(tmp_path, "none")
    assert rows["many"]["status"] == "pass"
    assert rows["many"]["numbers"]["violations"]["value"] == 0
    assert rows["many"]["numbers"]["messages"]["value"] == 12
    assert rows["control"]["status"] == "pass"


def test_the_litmus_test_counts_messages_that_do_not_arrive(tmp_path):
    rows = rows_of(tmp_path, "lost")
    assert rows["many"]["status"] == "fail"
    assert rows["many"]["numbers"]["violations"]["value"] == 2 * 2 * 6 * 64, (
        "every element of every round, on both ranks"
    )
