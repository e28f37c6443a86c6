"""What a Python process does that `ridgeline emulate` has started, it or a child of it: before anything is imported.

The folder named by FOLDER has the settings; a process adds a row for each launch to a file of its own there.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import resource
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

from ... import naming
from ...naming import Change, ChangingFinder

__tracebackhide__ = True  # pytest shows the program's frames alone

FOLDER = "RIDGELINE_EMULATE"
"""Environment variable: the folder of a run."""

SETTINGS, ROWS = "settings.json", "rows-{pid}.jsonl"

SITE = """\
import os, sys
sys.path.insert(0, {harness!r})
from benchmarks import naming
naming.settle()
naming.our("benchmarks.emulation.device.session").begin()
"""
"""sitecustomize.py of the folder, which Python imports as it starts.  {harness}: the folder of our rooms."""


def begin() -> None:
    """Change torch and Triton when they are imported."""
    folder = Path(os.environ[FOLDER])
    settings = json.loads((folder / SETTINGS).read_text())
    _bound_memory()
    _show_one_device()
    everything, counting = settings["configurations"] == "all", settings["counting"]
    session = Session(folder, settings["arch"], everything, counting)
    sys.meta_path.insert(0, ChangingFinder(session.change_of))
    sys.meta_path.insert(0, naming.ContractFinder(f"{naming.HOUSE}.kernels", everywhere=False))
    _own_sitecustomize(folder)


def _bound_memory() -> None:
    """Let a process have no more than is free: a test that wants more fails, as out of a GPU's memory, where the kernel
    would have ended the whole program."""
    limit, most = resource.getrlimit(resource.RLIMIT_DATA)
    if limit == resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_DATA, (free_bytes(), most))


CGROUPS = re.compile(r":(?:memory)?:/(.*)")
"""The cgroups of a process that may limit its memory, of v2 or v1, in /proc/self/cgroup."""


def free_bytes(root: Path = Path("/")) -> int:
    """Memory of this machine that is free, or what a cgroup of this process may have where that is less."""

    def text(file: Path) -> str:
        return file.read_text() if file.exists() else ""

    numbers = re.findall(r"MemAvailable: +(\d+)", text(root / "proc/meminfo"))
    limits = [1024 * int(number) for number in numbers]
    for group in CGROUPS.findall(text(root / "proc/self/cgroup")):
        for mount, name in (("", "memory.max"), ("memory", "memory.limit_in_bytes")):
            folder = root / "sys/fs/cgroup" / mount / group
            numbers = [text(place / name) for place in (folder, *folder.parents)]
            limits += [int(number) for number in numbers if number.strip().isdigit()]
    return min(limits)


def _show_one_device() -> None:
    """Tell Python of the emulated device by the variable that programs split at commas, and C of none."""
    os.environ["CUDA_VISIBLE_DEVICES"] = "0"
    os.putenv("CUDA_VISIBLE_DEVICES", "")


def _own_sitecustomize(folder: Path) -> None:
    """Import the one that Python would have imported without ours."""
    ours = sys.modules.pop("sitecustomize", None)
    path = list(sys.path)
    sys.path[:] = [entry for entry in path if Path(entry or ".").resolve() != folder.resolve()]
    try:
        __import__("sitecustomize")
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        sys.path[:] = path
        if ours is not None:
            sys.modules.setdefault("sitecustomize", ours)


class Session:
    """The emulation in one process.

    everything: all configurations of a tuned kernel are run.  counting: launches are wanted for their counts alone,
    also by line of the source: large grids are sampled, and a launch on equal arguments is not made again.
    """

    def __init__(self, folder: Path, arch: str, everything: bool, counting: bool) -> None:
        self._folder, self._arch, self._counting = folder, arch, counting
        self._made: set[Any] = set()
        self._one_at_a_time = threading.Lock()
        self._changes: dict[str, Change] = {
            "torch": self._torch,
            "triton.runtime.driver": self._triton,
            "triton.testing": self._testing,
            "triton.runtime.autotuner": functools.partial(self._autotuner, everything=everything),
            "torch.utils.cpp_extension": _refuse_extensions,
            "torch._inductor.compile_fx": _refuse_inductor,
        }

    def change_of(self, name: str) -> Change | None:
        """What is changed in a module, if anything is."""
        return self._changes.get(name)

    def _torch(self, torch: ModuleType) -> None:
        from ..installed import missing

        if why := missing():
            raise ImportError(f"ridgeline emulate: {why} (for {sys.executable})")
        from . import cuda, refusals

        cuda.attach(self._arch)
        if hasattr(torch.distributed, "init_process_group"):
            original = torch.distributed.init_process_group
            torch.distributed.init_process_group = refusals.process_groups(original)

    def _triton(self, module: Any) -> None:
        from ..triton_driver import EmulatedDriver

        module.driver.set_active(EmulatedDriver(self._arch, self._launched, "cuda:0"))
        from triton._C.libtriton import amd  # type: ignore[import-untyped]

        from .arithmetic import HipblasLt

        if hasattr(amd, "hipblas"):  # since Triton 3.6
            amd.hipblas.HipblasLt = HipblasLt

    @staticmethod
    def _testing(module: Any) -> None:
        from . import configurations

        configurations.change_testing(module)

    def _autotuner(self, module: Any, everything: bool) -> None:
        from . import configurations

        configurations.change_autotuner(module, everything, lambda sentence: self._write({"wrong": sentence}))

    def _launched(self, launch: Any) -> None:
        """Execute a launch, or give it to the graph that captures."""
        from . import backend

        launch.memory.beyond = backend.storage_at
        graph = getattr(backend.recorders, "graph", None)
        if graph is not None:
            graph.launch(functools.partial(self._execute, launch))
        else:
            self._execute(launch)

    def _execute(self, launch: Any) -> None:
        from ..code_object import NotExecutable
        from ..operands import Unknown
        from ..watching import source_line
        from . import backend

        begun = time.perf_counter()
        row: dict[str, Any] = {"kernel": launch.code.name, "arch": self._arch, "grid": launch.grid}
        if self._counting:
            again = (launch.code.image, launch.grid, tuple(map(str, launch.arguments)))
            if again in self._made:
                return
            self._made.add(again)
        try:
            with self._one_at_a_time:
                done = backend.on_device(functools.partial(launch.executed, self._counting), launch.code.name)
        except (NotExecutable, Unknown) as error:
            at = getattr(error, "at", None)
            line = source_line(launch.code, at) if at is not None else ""
            sentence = f"{error} ({line})" if line else str(error)
            self._write(row | {"failed": sentence, "seconds": time.perf_counter() - begun})
            raise type(error)(sentence) from None
        self._write(
            row
            | {"configuration": launch.configuration, "instructions": done.total, "counts": done.counts.as_json()}
            | {"registers": launch.code.registers, "lds_bytes": launch.lds_bytes, "arguments": launch.sizes}
            | (self._counted(launch, done) if self._counting else {})
            | {"seconds": time.perf_counter() - begun}
        )

    def _counted(self, launch: Any, done: Any) -> dict[str, Any]:
        """What a comparison needs beside: digest of the code, instructions by line and class, the busiest unit."""
        from ..counts import class_of, least_seconds
        from ..watching import source_line
        from .product import hardware

        lines: dict[str, Counter[str]] = {}
        for at, (name, times) in done.places.items():
            lines.setdefault(source_line(launch.code, at), Counter())[class_of(name)] += times
        busy = least_seconds(done.counts, hardware(self._arch))
        return {
            "code": hashlib.blake2b(launch.code.image, digest_size=8).hexdigest(),
            "lines": lines,
            "busiest": max(busy, key=lambda unit: busy[unit]),
            "sampled": done.sampled,
        }

    def _write(self, row: dict[str, Any]) -> None:
        with (self._folder / ROWS.format(pid=os.getpid())).open("a") as file:
            file.write(json.dumps(row, default=str) + "\n")


def _refuse_extensions(module: Any) -> None:
    from . import refusals

    for name in ("load", "load_inline"):
        setattr(module, name, refusals.refusing(f"torch.utils.cpp_extension.{name}", "it is compiled for a GPU"))


def _refuse_inductor(module: Any) -> None:
    from . import configurations

    module.compile_fx = configurations.refuse_inductor
