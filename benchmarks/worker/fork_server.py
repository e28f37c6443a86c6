"""The parent of every measuring process: it forks itself, with torch and Triton imported and no device touched.

`import torch` and Triton take 2 to 5 s.  A trial needs fresh processes, but what must be fresh in them is what a kernel
can change: the device's context, allocators, handles, caches of compiled code, the operator's modules.  None of that
exists here: importing initialises no device, and no operator is imported before the fork.

Started by its path with a socket and a way.  "fork" is the one above; with "spawn" nothing is imported, and every
process is started anew from its interpreter.  Either way it stands between a kernel and the coordinator: who kills its
parent hits this process, which can be started again, and what a kernel leaves running becomes a child of this process,
which ends it.  Each message is a JSON object, answered by one:

checkout, directory, variables; with the descriptors requests, answers, log -> a new process
process -> [its exit code as subprocess has it, names of what it left running], reaped; null while it runs

It ends when the socket does, and its children with it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any, NoReturn

HARNESS = Path(__file__).resolve().parents[2]

sys.path.insert(0, str(HARNESS))  # this is a program that is started by its path
from benchmarks import lifetime, naming  # noqa: E402

WORKER = HARNESS / "benchmarks" / "worker" / "__main__.py"

LONGEST_MESSAGE = 1 << 18
DESCRIPTORS = 3

PRELOADED = ("torch", "torch.distributed", "triton", "triton.language")

OF_SEVERAL_GPUS = ("torch._dynamo", "torch._inductor.config", "torch.distributed._symmetric_memory")
"""Imported, too, where there are several GPUs: the first torch.distributed._symmetric_memory.empty() imports sympy, the
first torch.profiler inductor's settings, 2 to 4 s in each process of ranks (torch 2.11, 4 H200, 2026-11-28)."""

TOUCHED = ("/dev/nvidia-uvm", "/dev/kfd")
"""Files that CUDA's and HIP's initialisation open; what is forked after it cannot use the device."""

OURS = ("channel", *(f"worker.{name}" for name in ("__main__", "requests", "arms", "declare", "probe")))
"""Imported before any fork, as far as they can be; a process that needs one that cannot meets the reason itself."""


def main() -> None:
    """Import, then serve the socket whose descriptor is the first argument until it closes; the second is the way."""
    link, forks = socket.socket(fileno=int(sys.argv[1])), sys.argv[2] == "fork"
    lifetime.end_with_starter(signal.SIGKILL)  # its socket says so too, but only once everything is imported
    naming.settle()
    ours = (f"{naming.HOUSE}.benchmarks.{module}" for module in OURS)
    system = naming.our("benchmarks.machine.system")
    several = sum(gpu.is_ours(system.ROOT) for gpu in system.pci_gpus()) > 1
    for name in (*PRELOADED, *(OF_SEVERAL_GPUS if several else ()), *ours) if forks else ():
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    if forks and (not _can_fork() or "kernels" in sys.modules):
        return  # whoever asks starts processes the long way
    lifetime.keep_orphans()
    lifetime.outlive_starter()  # from here on the end of the socket says it, and leaves time to end orphans
    gc.collect()
    gc.freeze()
    server = Server(link, forks)
    link.send(json.dumps({"ready": os.getpid()}).encode())
    while True:
        message, descriptors, _, _ = socket.recv_fds(link, LONGEST_MESSAGE, DESCRIPTORS)
        if not message:
            server.end()
            os._exit(0)
        link.send(json.dumps(server.answer(json.loads(message), descriptors)).encode())
        if forks:
            _know_triton()  # after an answer, so that nobody waits for it who needs no Triton


@functools.cache
def _know_triton() -> None:
    """Have Triton digest its own files, which every process does before its first launch: 0.4 s (3.6, 2026-11)."""
    with contextlib.suppress(Exception):
        importlib.import_module("triton.runtime.cache").triton_key()


def _can_fork() -> bool:
    """Whether a fork copies this process whole: of several threads it copies one, and the locks of all, of a device
    that is in use nothing that works.

    Libraries that can be forked end their threads before a fork, as OpenBLAS does, so one is tried first.
    """
    process = os.fork()
    if not process:
        os._exit(0)
    os.waitpid(process, 0)
    return len(os.listdir("/proc/self/task")) == 1 and not any(map(_touches, os.listdir("/proc/self/fd")))


def _touches(descriptor: str) -> bool:
    """Whether an open file is a device's."""
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}").startswith(TOUCHED)
    except OSError:
        return False


class Server:
    """Starts processes, tells how they ended, and ends what they left."""

    def __init__(self, link: socket.socket, forks: bool) -> None:
        self._link, self._start = link, self._forked if forks else _spawned
        self._running: set[int] = set()
        self._standing = lifetime.ProcessStanding()

    def answer(self, asked: dict[str, Any], descriptors: list[int]) -> Any:
        """Do what a message asks for."""
        if descriptors:
            return self._started(asked, descriptors)
        process, status = os.waitpid(asked["process"], os.WNOHANG)
        if not process:
            return None
        self._running.discard(process)
        return [os.waitstatus_to_exitcode(status), self._end_strays()]

    def end(self) -> None:
        """Kill every process, and what it leaves."""
        for process in self._running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        for process in self._running:
            os.waitpid(process, 0)
        self._running.clear()
        self._end_strays(0.0)

    def _started(self, asked: dict[str, Any], descriptors: list[int]) -> int | None:
        """The new process; None if there is no memory or process left, or a kernel changed what it would inherit."""
        try:
            process = self._start(asked, descriptors) if self._standing.restore() else None
        except OSError:
            return None
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        self._running |= {process} if process else set()
        return process

    def _forked(self, asked: dict[str, Any], descriptors: list[int]) -> int:
        """The new process, once it leads a session of its own and will not outlive this one."""
        begun, begin = os.pipe()
        server, process = os.getpid(), os.fork()
        if not process:
            self._link.detach()
            os.setsid()
            lifetime.end_with(server)
            os.close(begun)
            os.close(begin)
            _become_worker(asked, descriptors)
        os.close(begin)
        os.read(begun, 1)  # ends when the process has closed its side, or is gone
        os.close(begun)
        return process

    def _end_strays(self, patience_s: float = lifetime.PATIENCE_S) -> list[str]:
        """End the children that were not asked for; their names."""
        return lifetime.end_strays(lambda child: child.process not in self._running, patience_s)


def _spawned(asked: dict[str, Any], descriptors: list[int]) -> int:
    """A new process from its interpreter on."""
    requests, answers, log = descriptors
    child = subprocess.Popen(
        [sys.executable, "-P", str(WORKER), str(requests), str(answers), asked["checkout"]],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        cwd=asked["directory"],
        pass_fds=(requests, answers),
        start_new_session=True,
        env=asked["variables"],
    )
    child.returncode = 0  # it is reaped by whoever asks, never by the subprocess module
    return child.pid


def _become_worker(asked: dict[str, Any], descriptors: list[int]) -> NoReturn:
    """What the interpreter, subprocess and the program of a measuring process do in one that is started anew."""
    code = 1
    try:
        requests, answers, log = descriptors
        os.close(int(sys.argv[1]))
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        os.chdir(asked["directory"])
        os.environ.clear()
        os.environ.update(asked["variables"])
        _restart_streams()
        sys.argv[:] = [str(WORKER)]
        naming.our("benchmarks.worker.__main__").serve(requests, answers, asked["checkout"])
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        os._exit(code)


def _restart_streams() -> None:
    """Output at once, a traceback after a crash: as PYTHONUNBUFFERED and PYTHONFAULTHANDLER ask of an interpreter."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, write_through=True)  # type: ignore[union-attr]
    faulthandler.enable()


if __name__ == "__main__":
    main()
