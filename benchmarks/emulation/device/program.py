"""`ridgeline emulate -- PROGRAM`: a program whose Python processes have an emulated AMD GPU, and what it did in sum.

Standard library only: nothing of the program is imported here.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.emulation.device.session import FOLDER, ROWS, SETTINGS, SITE
from benchmarks.naming import HARNESS

QUIET = {"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": ""}
"""No GPU of this machine is looked at."""


@dataclass(frozen=True)
class Emulated:
    """One run of a program.  code: its exit code; launches: a row each, by process; seconds: elapsed."""

    arch: str
    code: int
    launches: list[dict[str, Any]]
    wrong: list[str]
    seconds: float

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


def emulated(command: Sequence[str], arch: str, configurations: str = "first") -> Emulated:
    """Run a program with its output as it is.  configurations: "first" or "all" of a tuned kernel's.

    FileNotFoundError if there is no such program.
    """
    with tempfile.TemporaryDirectory(prefix="ridgeline-emulate-") as name:
        folder = Path(name)
        (folder / SETTINGS).write_text(json.dumps({"arch": arch, "configurations": configurations}))
        (folder / "sitecustomize.py").write_text(SITE.format(harness=str(HARNESS)))
        begun = time.monotonic()
        environment = _environment(folder)
        program = shutil.which(command[0], path=environment["PATH"])
        if program is None:
            raise FileNotFoundError(f"{command[0]}: no such program")
        code = subprocess.run([program, *command[1:]], env=environment).returncode
        rows = list(_rows(folder))
    wrong = [row["wrong"] for row in rows if "wrong" in row]
    launches = [row for row in rows if "kernel" in row]
    return Emulated(arch, code, launches, wrong, time.monotonic() - begun)


def _environment(folder: Path) -> dict[str, str]:
    """This one, in which Python is the one that runs here and imports what the folder has as it starts."""
    there = {"PATH": str(Path(sys.executable).parent), "PYTHONPATH": str(folder)}
    added = {name: os.pathsep.join(filter(None, [first, os.environ.get(name)])) for name, first in there.items()}
    return {**os.environ, **QUIET, FOLDER: str(folder), **added}


def _rows(folder: Path) -> Iterator[dict[str, Any]]:
    for file in sorted(folder.glob(ROWS.format(pid="*"))):
        for line in file.read_text().splitlines():
            yield json.loads(line)
