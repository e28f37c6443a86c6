"""Starting measuring processes: by a server that is their parent, and has imported torch already.

The server (benchmarks/worker/fork_server.py) imports torch and Triton once for a Python and an environment, 2 to 5 s,
and forks a process in milliseconds.  Its device is untouched and no operator is imported in it, so what it forks is as
fresh as a new process in all that a kernel can change.  START_VARIABLE=spawn, or a torch that cannot be forked: the
server starts every process anew.  Never the coordinator: a kernel that kills its parent must not end the run.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks import lifetime
from benchmarks.lifetime import deferred
from benchmarks.machine.system import gpu_file
from benchmarks.shapes import Json

WORKER = Path(__file__).resolve().parents[2] / "benchmarks" / "worker"
"""Folder of two programs, the measuring process and the fork server.  They are run by path, never imported here."""

START_VARIABLE = "RIDGELINE_START"
"""Environment variable: "spawn" for measuring processes without a fork server; anything else, or absent: with one."""

FIRST_ANSWER_S = 180.0
"""How long a fork server may take to import torch and Triton."""

ANSWER_S = 10.0
"""How long it may take for anything else: a fork of 300 MB takes 5 ms."""

END_S = 5.0
"""How long it may take to end what it started, and itself."""

LONGEST_ANSWER = 1 << 16

POLL_S = 0.005

READ_BY_IMPORTS = (
    *("PYTHON", "LD_", "PATH", "HOME", "LANG", "LC_", "VIRTUAL_ENV", "CONDA_", "XDG_", "TMPDIR"),
    *("TORCH", "PYTORCH", "TRITON", "CUDA", "NVIDIA", "NCCL", "RCCL", "HIP", "HSA", "ROC", "AMD_", "MIOPEN", "GPU_"),
    *("OMP", "GOMP", "KMP", "MKL", "OPENBLAS", "BLIS", "NUMEXPR", "GLOO", "MALLOC_", "GLIBC_"),
)
"""Prefixes of the variables that the dynamic loader, Python, torch, Triton and their libraries read as they are loaded.
Processes that differ in one of them have different servers; all others get their value after the fork."""


def start(
    python: str,
    checkout: Path,
    pipes: tuple[int, int],
    log: int,
    directory: Path,
    variables: Mapping[str, str],
    inherited: Mapping[str, str] | None = None,
) -> Forked:
    """The leader of a session of its own that reads requests and writes answers; OSError if that Python is not there.

    inherited: variables that it begins with, `environment()` if None.  variables: set over them.
    """
    base = environment() if inherited is None else inherited
    for server in _servers_for(python, base):
        if process := server.started(checkout, pipes, log, directory, {**base, **variables}):
            return process
    raise OSError(f"{python} starts no process: memory or processes have run out")


WAITING = ("OMP_WAIT_POLICY", "passive")
"""Where there is no GPU the threads of the side that waits must sleep.  Spinning, they take the cores of the side that
works: on two busy cores a GEMM of 4096 x 4096 x 1 took 35 to 65 ms (15 trials) in place of 11 to 26 ms (20 trials), and
a comparison 100 s in place of 75 s.  Trials of equal code were as far apart either way, with no false alarm (ab of two
commits that differ in a remark, load 20, 2026-11-23)."""


def environment() -> dict[str, str]:
    """What a measuring process inherits.  asv's mark is removed: `benchmarks` shows asv only the suite."""
    kept = {name: value for name, value in os.environ.items() if name != "ASV"}
    return kept if gpu_file() else dict([WAITING]) | kept


def begin(python: str) -> None:
    """Start the server of a Python, unless it runs: it imports torch while nobody waits for it."""
    with contextlib.suppress(OSError):  # said where a process is started
        next(_servers_for(python, environment()), None)


@contextlib.contextmanager
def ready(python: str) -> Iterator[None]:
    """With the server of a Python ready, a block that starts processes and stores them, and is not interrupted.

    OSError if there is no such Python.
    """
    any(server.waited() for server in _servers_for(python, environment()))
    with deferred():
        yield


class Forked:
    """A process that a server started.  left: names of what it left running, which was ended, once it is reaped."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.left: list[str] = []
        self._server = server

    @property
    def orphaned(self) -> bool:
        """Whether its server is gone, and with it every process that it started."""
        return not self._server.alive

    def poll(self) -> int | None:
        """Its exit code as subprocess has it, once it has ended; with its server, every process of it is killed."""
        if self.returncode is None:
            if found := self._server.reaped(self.pid):
                self.returncode, self.left = found
            elif self.orphaned:
                self.kill()
                self.returncode, self.left = -int(signal.SIGKILL), _end_orphans()
        return self.returncode

    def kill(self) -> None:
        """Kill it, unless it is reaped; what it started is ended when it is."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self.returncode is None:
                (os.killpg if self.orphaned else os.kill)(self.pid, signal.SIGKILL)

    def wait(self, timeout: float) -> int:
        """Reap it; subprocess.TimeoutExpired."""
        until = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            time.sleep(POLL_S)
        return code


class ForkServer:
    """One running server, and the socket to it.  `alive` is False once it did not answer.

    way: "fork" or "spawn".  served: it has been ready, so that its end is not the end of what it imports.  killed: it
    was, by somebody else: a kernel, or the system when memory ran out.
    """

    def __init__(self, python: str, environment: Mapping[str, str], way: str) -> None:
        self.way = way
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [python, "-P", str(WORKER / "fork_server.py"), str(theirs.fileno()), way],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                env=lifetime.told(environment),
            )
        self._link, self._asking = ours, threading.RLock()
        self.served = self.killed = False
        self.running: set[int] = set()
        self.alive = True

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def started(
        self, checkout: Path, pipes: tuple[int, int], log: int, directory: Path, variables: Mapping[str, str]
    ) -> Forked | None:
        """A new process with exactly these variables, None if the server cannot give one."""
        asked = {"checkout": str(checkout), "directory": str(directory), "variables": dict(variables)}
        with deferred():
            pid = self._answer(asked, (*pipes, log)) if self.waited() else None
            if not pid:
                return None
            self.running.add(pid)
            return Forked(self, pid)

    def reaped(self, process: int) -> tuple[int, list[str]] | None:
        """The exit code of a process that has ended and what it left running; None while it runs."""
        found = self._answer({"process": process}, ())
        if found is None:
            return None
        self.running.discard(process)
        return found[0], found[1]

    def end(self) -> None:
        """Close the socket: the server ends what it started, and itself; one that does not is killed."""
        self._give_up(END_S if self.served else 0.0)

    def _give_up(self, patience_s: float) -> None:
        self.alive = False
        self._link.close()
        try:
            self.killed = self._process.wait(patience_s) == -signal.SIGKILL
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def waited(self) -> bool:
        """Wait until it has imported everything; whether it then serves."""
        with self._asking:
            if self.alive and not self.served:
                self._link.settimeout(FIRST_ANSWER_S)
                self.served = self._received() is not None
                if self.alive:
                    self._link.settimeout(ANSWER_S)
            return self.alive

    def _answer(self, asked: Json, descriptors: tuple[int, ...]) -> Any:
        with self._asking:
            if not self.alive:
                return None
            try:
                socket.send_fds(self._link, [json.dumps(asked).encode()], descriptors)
            except OSError:
                self._give_up(0.0)
                return None
            return self._received()

    def _received(self) -> Any:
        try:
            message = self._link.recv(LONGEST_ANSWER)
        except OSError:
            self._give_up(0.0)
            return None
        if not message:  # its socket closes just before it has ended
            self._give_up(END_S)
            return None
        return json.loads(message)


def _end_orphans() -> list[str]:
    """End what a server that was killed can end no more, if this program keeps its orphans; the names.

    They have sessions of their own; what this program starts itself is in its own session, or is a server.
    """
    if not lifetime.keeps_orphans():
        return []
    with _choosing:  # meanwhile no thread has a new server that is not in `_servers` yet
        ours = {server.pid for server in _servers.values()}
        return lifetime.end_strays(lambda one: one.session != os.getsid(0) and one.process not in ours)


_servers: dict[tuple[Any, ...], ForkServer] = {}
_choosing = threading.RLock()


def _servers_for(python: str, environment: Mapping[str, str]) -> Iterator[ForkServer]:
    """The servers to try, one after the other: the one that forks, and the one that starts processes anew."""
    for way in ("fork", "spawn") if environment.get(START_VARIABLE) != "spawn" else ("spawn",):
        server = _server(python, environment, way)
        if server.alive:
            yield server


def _server(python: str, environment: Mapping[str, str], way: str) -> ForkServer:
    """The server of a Python and what importing reads of an environment; started when it is first asked for.

    Another one that has served, and of which nothing is left running, ends then: each holds 250 MB.  One that somebody
    ended is started again; one that ended by what it imports is not.
    """
    read = sorted(item for item in environment.items() if item[0].startswith(READ_BY_IMPORTS))
    key = (os.getpid(), python, way, *read)
    with deferred(), _choosing:
        if (old := _servers.get(key)) and not old.alive and (old.served or old.killed):
            _servers.pop(key)
        if key not in _servers:
            for other, server in list(_servers.items()):
                if server.alive and server.served and not server.running:
                    _servers.pop(other).end()
            _servers[key] = ForkServer(python, environment, way)
    return _servers[key]
