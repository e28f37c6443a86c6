"""A process of ours ends with the one that started it, however that one ends: SIGKILL runs no clean-up.

`python -m benchmarks.lifetime MODULE ARGUMENTS` is `python -m MODULE ARGUMENTS` with that property: no program has to
know of it.  The kernel sends the signal (prctl(2), PR_SET_PDEATHSIG, Linux) when the *thread* that started the process
ends: a thread that starts one must outlive it.  Whoever starts it says who he is in the variable STARTER, because the
starter may be gone before the process can ask for the signal.

A program is hung up on (SIGHUP, raised as KeyboardInterrupt): it ends what it started, and its drafts go.  A process
that has nothing to tidy is killed.

It can be interrupted, too, however the one that started it was started: a shell's `&` has it and all below it ignore
SIGINT and SIGQUIT, and nothing but SIGKILL would end what measures.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import runpy
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any, NamedTuple

STARTER = "RIDGELINE_STARTER"
"""Environment variable: the process that starts another one, and where that number holds.  Read once, not handed on."""

PR_SET_PDEATHSIG = 1
"""linux/prctl.h (Linux 6.12)."""


def told(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process that is to end with this one."""
    return {**environment, STARTER: f"{os.getpid()}:{pid_space()}"}


def end_with_starter(
    number: signal.Signals = signal.SIGHUP, environment: MutableMapping[str, str] = os.environ
) -> None:
    """Get the signal `number` when the process that the environment names is gone; without a name, do nothing.

    SIGHUP becomes a KeyboardInterrupt.  With a name, SIGINT and SIGQUIT are no longer ignored either.
    """
    starter, _, space = environment.pop(STARTER, "").partition(":")
    if not starter.isdigit() or space != pid_space():
        return
    can_be_interrupted()
    if number == signal.SIGHUP:
        signal.signal(signal.SIGHUP, signal.default_int_handler)
    end_with(int(starter), number)


def can_be_interrupted() -> None:
    """No inherited ignoring of SIGINT and SIGQUIT, here and in what this process starts."""
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL)):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, usual)


def end_with(starter: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Get the signal when this process's parent is gone, and at once if `starter` is gone already.

    The parent may be another process than `starter`, such as a script that is used as a Python.
    """
    prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != starter and not lives(starter):
        os.kill(os.getpid(), number)


def outlive_starter() -> None:
    """No signal any more: for a process that learns of the end in another way, and has to tidy first."""
    prctl(PR_SET_PDEATHSIG, 0)


def prctl(option: int, argument: Any) -> None:
    """prctl(2); nothing where there is none."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "prctl"):
        libc.prctl(option, argument, 0, 0, 0)


def pid_space() -> str:
    """Where numbers of processes hold: a container can have its own, in which the starter's is another process's."""
    try:
        return str(os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        return ""


PF_EXITING = 0x4
"""linux/sched.h, of the flags in proc(5), stat: it was killed or left, and a device's driver may hold it for long."""


def lives(process: int) -> bool:
    """Whether a process exists and is not at its end; True where there is no /proc to ask."""
    try:
        state, *numbers = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return not Path("/proc/self/stat").exists()
    return state not in "ZX" and not int(numbers[5]) & PF_EXITING


# Who is whose child: what a kernel leaves running is found, whoever has died in between, and ended.
#
# prctl(2), PR_SET_CHILD_SUBREAPER (Linux): the orphans below a process become its children. Every measuring process,
# its server and the program that measures keep their orphans, so that each finds what the one below it left. Standard
# library only.


PR_SET_CHILD_SUBREAPER, PR_GET_CHILD_SUBREAPER = 36, 37
"""linux/prctl.h."""

PATIENCE_S = 0.5
"""What was left running has this long to end by itself: a helper whose pipe has just closed takes milliseconds."""

LONGEST_END_S = 5.0
"""Then it is given up: processes that start others faster than they can be ended must not stop the run."""

MOST_NAMES = 10


class Child(NamedTuple):
    """A child process: its id, its name, its session, and whether it has ended and can be reaped."""

    process: int
    name: str
    session: int
    ended: bool


def keep_orphans() -> None:
    """Become the parent of all that is started below (Linux), when its own parent dies."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def keeps_orphans() -> bool:
    """Whether this process does so."""
    kept = ctypes.c_int()
    prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(kept))
    return bool(kept.value)


def by_parent() -> dict[int, list[Child]]:
    """Every process of the machine, by the id of its parent; proc(5), stat."""
    found: dict[int, list[Child]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, ValueError):
                before, _, after = Path("/proc", entry, "stat").read_text(errors="replace").rpartition(") ")
                state, parent, _, session = after.split()[:4]
                child = Child(int(entry), before.partition("(")[2], int(session), state in "ZX")
                found.setdefault(int(parent), []).append(child)
    return found


def children() -> list[Child]:
    """Every child of this process."""
    return by_parent().get(os.getpid(), [])


def end_strays(is_stray: Callable[[Child], bool], patience_s: float = PATIENCE_S) -> list[str]:
    """End the strays among the children, and what becomes a child by that; the names of what did not end by itself.

    One that had ended counts as one more to look after: its children may have been read before, as its own.
    """
    begin, names = time.monotonic(), {}
    while (strays := list(filter(is_stray, children()))) and (waited := time.monotonic() - begin) < LONGEST_END_S:
        for child in strays:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):  # another thread of ours was first
                if child.ended:
                    os.waitpid(child.process, 0)
                elif waited >= patience_s:
                    names[child.process] = child.name
                    os.kill(child.process, signal.SIGKILL)
        time.sleep(0.01)
    ended = list(names.values())
    if len(ended) > MOST_NAMES:
        ended[MOST_NAMES:] = [f"{len(ended) - MOST_NAMES} more"]
    return ended


# How the system treats a process: cores, priority and limits, which its children inherit.
#
# A process may change them of any other of its user, by its number: sched_setaffinity(2), setpriority(2), prlimit(2).
# A kernel that does so to its parent would change how every later one is measured. Standard library only.


_LIMITS = tuple(sorted(getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")))


class ProcessStanding:
    """What it was when this object was made."""

    def __init__(self) -> None:
        self._was = _now()

    def restore(self) -> bool:
        """Make it so again; whether it is.  A plain user cannot raise a priority or a hard limit."""
        now = _now()
        try:
            for name, value in self._was.items():
                if now[name] != value:
                    _set(name, value)
        except (OSError, ValueError):
            return False
        return True


def _now() -> dict[Any, Any]:
    """By what it is: the number of a limit, or a name."""
    found: dict[Any, Any] = {limit: resource.getrlimit(limit) for limit in _LIMITS}
    found["priority"] = os.getpriority(os.PRIO_PROCESS, 0)
    if hasattr(os, "sched_getaffinity"):
        found["policy"] = os.sched_getscheduler(0), os.sched_getparam(0).sched_priority
        found["cores"] = os.sched_getaffinity(0)
    return found


def _set(name: Any, value: Any) -> None:
    if name == "priority":
        os.setpriority(os.PRIO_PROCESS, 0, value)
    elif name == "policy":
        os.sched_setscheduler(0, value[0], os.sched_param(value[1]))
    elif name == "cores":
        os.sched_setaffinity(0, value)
    else:
        resource.setrlimit(name, value)


# Signals that end a command, deferred over the few lines that must not be interrupted.


ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, a scheduler that cancels the job, a terminal that is closed."""


def interrupt_on(*signals: int) -> None:
    """Let these signals raise KeyboardInterrupt as Ctrl-C does, also where Python drops an exception.

    What is raised in the callback of a weak reference or in a `__del__` is only printed ("Exception ignored in"), and
    the program goes on as if nobody had pressed Ctrl-C: it is interrupted again, a moment after the callback.
    """
    for number in signals:
        signal.signal(number, signal.default_int_handler)
    if sys.unraisablehook is sys.__unraisablehook__:
        sys.unraisablehook = _interrupted_again


def _interrupted_again(dropped: Any) -> None:
    """A hook of sys.unraisablehook; the callback that the interrupt fell into has ended 0.02 s later."""
    if dropped.exc_type is KeyboardInterrupt:
        threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT)).start()
    else:
        sys.__unraisablehook__(dropped)


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Let a signal of ENDING that arrives inside take effect at the end of the block instead.

    Between the start of a process and the line that stores it, an exception would lose the process.  Python runs
    handlers in the main thread only, so other threads need not defer anything.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    before = {number: signal.getsignal(number) for number in ENDING}
    for number in ENDING:
        signal.signal(number, lambda number, frame: received.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)  # None: not Python's
        if received:
            signal.raise_signal(received[0])


if __name__ == "__main__":
    end_with_starter()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
