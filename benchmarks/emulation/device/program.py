"""`ridgeline emulate -- PROGRAM`: a program whose Python processes have an emulated AMD GPU, and what it did in sum.

Standard library only: nothing of the program is imported here.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.emulation.device.product import write_tools
from benchmarks.emulation.device.session import FOLDER, ROWS, SETTINGS, SITE
from benchmarks.naming import HARNESS

HOST = {"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "", "THP_MEM_ALLOC_ENABLE": "1"}
"""No GPU of this machine is looked at; torch takes large pages, of which a new tensor needs fewer."""

GRACE_S = 10
"""How long a program may take to end after Ctrl-C."""


@dataclass(frozen=True)
class Emulated:
    """One run of a program.  code: its exit code; launches: a row each, by process; seconds: elapsed; stopped: by
    Ctrl-C."""

    arch: str
    code: int
    launches: list[dict[str, Any]]
    wrong: list[str]
    seconds: float
    stopped: bool = False

    @property
    def failures(self) -> list[str]:
        """What launches ended with that did not end well, and configurations that differ, each once."""
        return list(dict.fromkeys([*(row["failed"] for row in self.launches if "failed" in row), *self.wrong]))

    @property
    def passed(self) -> bool:
        """Whether the program ended with 0, and no kernel did what it must not, though the program went on."""
        return self.code == 0 and not self.failures

    def summary(self) -> str:
        """The line at the end."""
        kernels = len({row["kernel"] for row in self.launches})
        instructions = sum(row.get("instructions", 0) for row in self.launches)
        executing = sum(row["seconds"] for row in self.launches)
        text = (
            f"{self.arch}: {len(self.launches):,} launches of {kernels} kernels, {instructions:,} instructions of "
            f"waves, {self.seconds:.0f} s ({executing:.0f} of them in kernels); an emulator: no times of a GPU"
        )
        return f"{text}; the program's exit code is {self.code}" if self.code else text


def emulated(
    command: Sequence[str],
    arch: str,
    configurations: str = "first",
    *,
    counting: bool = False,
    cwd: Path | None = None,
    paths: Sequence[str] = (),
    output: Any = None,
) -> Emulated:
    """Run a program with its output as it is, or to the file `output`.

    configurations: "first" or "all" of a tuned kernel's.  counting: as session.Session.  paths: searched by imports
    before those of this environment.  FileNotFoundError if there is no such program.
    """
    with tempfile.TemporaryDirectory(prefix="ridgeline-emulate-") as name:
        folder = Path(name)
        (folder / SETTINGS).write_text(
            json.dumps({"arch": arch, "configurations": configurations, "counting": counting})
        )
        (folder / "sitecustomize.py").write_text(SITE.format(harness=str(HARNESS)))
        write_tools(folder, arch)
        begun = time.monotonic()
        environment = _environment(folder, paths)
        if counting:  # what was compiled elsewhere names lines of files that may be gone
            environment["TRITON_CACHE_DIR"] = str(folder / "triton")
        program = shutil.which(command[0], path=environment["PATH"])
        if program is None:
            raise FileNotFoundError(f"{command[0]}: no such program")
        words = [program, *command[1:]]
        code, stopped = _ended(subprocess.Popen(words, env=environment, cwd=cwd, stdout=output, stderr=output))
        rows, torn = _rows(folder)
    wrong = [row["wrong"] for row in rows if "wrong" in row]
    wrong += [f"{torn} of its launches are not known: a process was killed while it wrote them"] * bool(torn)
    launches = [row for row in rows if "kernel" in row]
    return Emulated(arch, code, launches, wrong, time.monotonic() - begun, stopped)


def _ended(process: subprocess.Popen[bytes]) -> tuple[int, bool]:
    """Its exit code, and whether Ctrl-C ended it: that reaches the program too, whose own end (pytest's report) is
    waited for."""
    try:
        return process.wait(), False
    except KeyboardInterrupt:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
        process.kill()
        return process.wait(), True
    finally:
        process.kill()


def _environment(folder: Path, paths: Sequence[str]) -> dict[str, str]:
    """This one, in which Python is the one that runs here and imports what the folder has as it starts, and the tools
    of ROCm are the folder's."""
    there = {
        "PATH": os.pathsep.join([str(folder), str(Path(sys.executable).parent)]),
        "PYTHONPATH": os.pathsep.join([str(folder), *paths]),
    }
    added = {name: os.pathsep.join(filter(None, [first, os.environ.get(name)])) for name, first in there.items()}
    return {**os.environ, **HOST, FOLDER: str(folder), **added}


def _rows(folder: Path) -> tuple[list[dict[str, Any]], int]:
    """The rows of all processes, and how many lines are torn."""
    found, torn = list[dict[str, Any]](), 0
    for file in sorted(folder.glob(ROWS.format(pid="*"))):
        for line in file.read_bytes().splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                torn += 1
    return found, torn
