"""Starting measuring processes: by a fork server that has imported torch already, or each from its interpreter on.

The fork server (benchmarks/worker/fork_server.py) imports torch and Triton once for a Python and an environment, 2 to
5 s, and forks a process in milliseconds.  Its device is untouched and no operator is imported in it, so what it forks
is as fresh as a new process in all that a kernel can change.  START_VARIABLE=spawn starts every process anew.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from benchmarks import lifetime
from benchmarks.coordinator.signals import deferred

WORKER = Path(__file__).resolve().parents[2] / "benchmarks" / "worker"
"""The program of a measuring process, and the fork server beside it; run by path, never imported here."""

START_VARIABLE = "RIDGELINE_START"
"""Environment variable: "spawn" for measuring processes without a fork server; anything else, or absent: with one."""

FIRST_ANSWER_S = 180.0
"""How long a fork server may take to import torch and Triton."""

ANSWER_S = 10.0
"""How long it may take for anything else: a fork of 300 MB takes 5 ms."""

LONGEST_ANSWER = 1 << 16

POLL_S = 0.005

READ_BY_IMPORTS = (
    *("PYTHON", "LD_", "PATH", "HOME", "LANG", "LC_", "VIRTUAL_ENV", "CONDA_", "XDG_", "TMPDIR"),
    *("TORCH", "PYTORCH", "TRITON", "CUDA", "NVIDIA", "NCCL", "RCCL", "HIP", "HSA", "ROC", "AMD_", "MIOPEN", "GPU_"),
    *("OMP", "GOMP", "KMP", "MKL", "OPENBLAS", "BLIS", "NUMEXPR", "GLOO", "MALLOC_", "GLIBC_"),
)
"""Prefixes of the variables that the dynamic loader, Python, torch, Triton and their libraries read as they are loaded.
Processes that differ in one of them have different servers; all others get their value after the fork."""


class MeasuringProcess(Protocol):
    """A process that was started: subprocess.Popen has this form."""

    pid: int
    returncode: int | None

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, negative for a signal; subprocess.TimeoutExpired."""


def start(
    python: str, checkout: Path, pipes: tuple[int, int], log: Path, variables: Mapping[str, str]
) -> MeasuringProcess:
    """The leader of a session of its own that reads requests and writes answers; OSError if there is no such Python."""
    base = environment()
    with log.open("ab") as output:
        server = _server(python, base) if base.get(START_VARIABLE) != "spawn" else None
        if server and (forked := server.started(checkout, pipes, output.fileno(), log.parent, {**base, **variables})):
            return forked
        return subprocess.Popen(
            [python, "-P", str(WORKER / "__main__.py"), *map(str, pipes), str(checkout)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=log.parent,
            pass_fds=pipes,
            start_new_session=True,
            env=base | dict(variables),
        )


def environment() -> dict[str, str]:
    """What a measuring process inherits.  asv's mark is removed: `benchmarks` shows asv only the suite."""
    return {name: value for name, value in os.environ.items() if name != "ASV"}


def how_it_ended(process: MeasuringProcess) -> tuple[int, int] | None:
    """`si_code` and `si_status` of a process that has ended; not reaped, so that its group can still be killed."""
    if isinstance(process, Forked):
        return process.ended()
    info = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    return (info.si_code, info.si_status) if info else None


def prepare(python: str) -> None:
    """Have the fork server of a Python ready, so that no start waits for it where an interrupt must wait too.

    OSError if there is no such Python.
    """
    base = environment()
    if base.get(START_VARIABLE) != "spawn" and (server := _server(python, base)):
        server.waited()


class Forked:
    """A process that a fork server started: what subprocess.Popen is to one that we start ourselves."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._server = server

    def ended(self) -> tuple[int, int] | None:
        """How it ended, None while it runs; with its server, every process of it was killed."""
        if not self._server.alive:
            return os.CLD_KILLED, int(signal.SIGKILL)
        found = self._server.ask("ended", self.pid)
        return (found[0], found[1]) if found else None

    def wait(self, timeout: float | None = None) -> int:
        """Reap it."""
        until = time.monotonic() + timeout if timeout is not None else None
        while self.returncode is None:
            self.returncode = self._server.reaped(self.pid) if self._server.alive else -int(signal.SIGKILL)
            if self.returncode is None and until is not None and time.monotonic() > until:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
            if self.returncode is None:
                time.sleep(POLL_S)
        return self.returncode


class ForkServer:
    """One running fork server, and the socket to it.  `alive` is False once it did not answer."""

    def __init__(self, python: str, environment: Mapping[str, str]) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [python, "-P", str(WORKER / "fork_server.py"), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                env=lifetime.told(environment),
            )
        self._link = ours
        self._ready = False
        self._running: set[int] = set()
        self.alive = True

    @property
    def idle(self) -> bool:
        """Whether it can be ended: nothing that it started is left."""
        return self.alive and not self._running

    def started(
        self, checkout: Path, pipes: tuple[int, int], log: int, directory: Path, variables: Mapping[str, str]
    ) -> Forked | None:
        """A new process with exactly these variables, None if the server cannot give one."""
        asked = {"op": "start", "checkout": str(checkout), "directory": str(directory), "variables": dict(variables)}
        with deferred():
            pid = self._answer(asked, (*pipes, log)) if self.waited() else None
            if not pid:
                return None
            self._running.add(pid)
            return Forked(self, pid)

    def reaped(self, process: int) -> int | None:
        """The exit code of a process that has ended, None while it runs."""
        code: int | None = self.ask("reap", process)
        if code is not None:
            self._running.discard(process)
        return code

    def ask(self, op: str, process: int) -> Any:
        """The answer to a question about a process; None too if the server is gone."""
        return self._answer({"op": op, "process": process}, ())

    def end(self) -> None:
        """Close the socket; the server and what it started end by themselves."""
        self.alive = False
        self._link.close()
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()

    def waited(self) -> bool:
        """Wait until it has imported everything; whether it then serves."""
        if self.alive and not self._ready:
            self._link.settimeout(FIRST_ANSWER_S)
            self._ready = self._received() is not None
            if self.alive:
                self._link.settimeout(ANSWER_S)
        return self.alive

    def _answer(self, asked: Mapping[str, Any], descriptors: tuple[int, ...]) -> Any:
        try:
            socket.send_fds(self._link, [json.dumps(asked).encode()], descriptors)
        except OSError:
            self.end()
            return None
        return self._received()

    def _received(self) -> Any:
        try:
            message = self._link.recv(LONGEST_ANSWER)
        except OSError:
            message = b""
        if not message:
            self.end()
            return None
        return json.loads(message)


_servers: dict[tuple[Any, ...], ForkServer] = {}


def _server(python: str, environment: Mapping[str, str]) -> ForkServer | None:
    """The fork server of a Python and what importing reads of an environment; started when it is first asked for.

    Another one that has nothing to do ends then: each holds 250 MB.
    """
    read = sorted(item for item in environment.items() if item[0].startswith(READ_BY_IMPORTS))
    key = (os.getpid(), python, *read)
    with deferred():
        if key not in _servers:
            for other in [name for name, server in _servers.items() if server.idle]:
                _servers.pop(other).end()
            _servers[key] = ForkServer(python, environment)
    return _servers[key] if _servers[key].alive else None
