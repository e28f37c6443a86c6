"""A sweep of gemm's threads on this CPU, killed with -9 three times: python -m tests.ci.sweeps.torture [FOLDER]

It must end with a table and a figure, and no finished point measured twice.  About half a minute of two idle cores, so
it is not in the suite, whose test_run.py kills the same program with a stand-in for what measures.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from ci.trials.file import read

ROOT = Path(__file__).parents[3]
KILLS = (1, 2, 4)
"""Lines in the file when it is killed."""

LIMIT_S = 600.0


def _started(out: Path) -> subprocess.Popen[bytes]:
    knobs = ["--knob", "threads=1,2,3,4", "--backend", "torch", "--case", "n4096_k4096_m1_fp16"]
    argv = [sys.executable, "-m", "ci", "sweep", "gemm", *knobs, "--rounds", "8,8", "--batch", "1", "--out", str(out)]
    return subprocess.Popen(argv, cwd=ROOT)


def _lines(out: Path) -> int:
    return out.read_bytes().count(b"\n") if out.exists() else 0


def main(folder: Path) -> int:
    """0 if it held."""
    out, began = folder / "threads.jsonl", time.monotonic()
    for lines in KILLS:
        killed = _started(out)
        while _lines(out) < lines and killed.poll() is None:
            assert time.monotonic() - began < LIMIT_S, "too slow"
            time.sleep(0.02)
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        print(f"killed after {time.monotonic() - began:.0f} s with {_lines(out)} lines", flush=True)
    code = _started(out).wait()
    swept = [trial.sweep for trial in read(out).trials if trial.sweep]
    counted = Counter((one.rung, id_) for one in swept for id_ in one.points)
    twice = {point: count for point, count in counted.items() if count > 1}
    there = [out.with_suffix(end).exists() for end in (".csv", ".md", ".png", ".svg")]
    first = sum(1 for rung, _ in counted if rung == 0)
    print(f"{time.monotonic() - began:.0f} s, exit code {code}, {first} points, measured twice: {twice or 'none'}")
    return 0 if code == 0 and first == 4 and not twice and all(there) else 1


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(main(Path(sys.argv[1])))
    with tempfile.TemporaryDirectory() as made:
        sys.exit(main(Path(made)))
