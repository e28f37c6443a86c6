"""A process that has imported torch and Triton, has never touched a device, and forks itself into measuring processes.

`import torch` and Triton take 2 to 5 s.  A trial needs fresh processes, but what must be fresh in them is what a kernel
can change: the device's context, allocators, handles, caches of compiled code, the operator's modules.  None of that
exists here: importing initialises no device, and no operator is imported before the fork.

Started by its path with a socket, over which each message is a JSON object, answered by one:

start   checkout, directory, variables; with the descriptors requests, answers, log -> the process
ended   process -> how it ended, unreaped, as [si_code, si_status]; null while it runs
reap    process -> its exit code as subprocess has it; null while it runs

It ends when the socket does, and its children with it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import json
import os
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import Any, NoReturn

HARNESS = Path(__file__).resolve().parents[2]
WORKER = "ridgeline.house.benchmarks.worker.__main__"
"""The program of a measuring process, by its name here (benchmarks.naming)."""

LONGEST_MESSAGE = 1 << 18
DESCRIPTORS = 3

PRELOADED = ("torch", "torch.distributed", "triton", "triton.language")
OURS = ("__main__", "requests", "arms", "declare", "probe")
"""Imported before any fork, as far as they can be; a process that needs one that cannot meets the reason itself."""


def main() -> None:
    """Import, then serve the socket whose descriptor is the argument until it closes."""
    link = socket.socket(fileno=int(sys.argv[1]))
    sys.path.insert(0, str(HARNESS))
    from benchmarks import naming
    from benchmarks.lifetime import end_with_starter

    end_with_starter(signal.SIGKILL)  # its socket says so too, but only once everything is imported
    naming.settle()
    for name in (*PRELOADED, *(f"{naming.HOUSE}.benchmarks.worker.{module}" for module in OURS)):
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    if not _can_fork() or "kernels" in sys.modules:
        return  # whoever asks starts processes the long way
    gc.collect()
    gc.freeze()
    link.send(json.dumps({"ready": os.getpid()}).encode())
    while True:
        message, descriptors, _, _ = socket.recv_fds(link, LONGEST_MESSAGE, DESCRIPTORS)
        if not message:
            return
        link.send(json.dumps(answer(json.loads(message), descriptors, link)).encode())


def _can_fork() -> bool:
    """Whether a fork copies this process whole: of several threads it copies one, and the locks of all.

    Libraries that can be forked end their threads before a fork, as OpenBLAS does, so one is tried first.
    """
    process = os.fork()
    if not process:
        os._exit(0)
    os.waitpid(process, 0)
    return len(os.listdir("/proc/self/task")) == 1


def answer(asked: dict[str, Any], descriptors: list[int], link: socket.socket) -> Any:
    """Do what a message asks for."""
    if asked["op"] == "start":
        return _started(asked, descriptors, link)
    process = int(asked["process"])
    if asked["op"] == "ended":
        info = os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        return [info.si_code, info.si_status] if info else None
    found, status = os.waitpid(process, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


def _started(asked: dict[str, Any], descriptors: list[int], link: socket.socket) -> int:
    """The new process, once it leads a session of its own and will not outlive this one."""
    begun, begin = os.pipe()
    server, process = os.getpid(), os.fork()
    if not process:
        link.detach()
        os.setsid()
        _end_with(server)
        os.close(begun)
        os.close(begin)
        _become_worker(asked, descriptors)
    for descriptor in (begin, *descriptors):
        os.close(descriptor)
    os.read(begun, 1)  # ends when the process has closed its side, or is gone
    os.close(begun)
    return process


def _end_with(server: int) -> None:
    """Be killed when the server is (Linux), and end at once if it is gone already."""
    importlib.import_module(WORKER).die_with_parent()
    if os.getppid() != server:
        os._exit(1)


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
        sys.argv[:] = [str(HARNESS / "benchmarks" / "worker" / "__main__.py")]
        importlib.import_module(WORKER).serve(requests, answers, asked["checkout"])
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
