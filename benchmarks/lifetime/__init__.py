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

import os
import signal
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any

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
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if hasattr(libc, "prctl"):
        libc.prctl(option, argument, 0, 0, 0)


def pid_space() -> str:
    """Where numbers of processes hold: a container can have its own, in which the starter's is another process's."""
    try:
        return str(os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        return ""


def lives(process: int) -> bool:
    """Whether a process exists and has not ended; True where there is no /proc to ask."""
    if not Path("/proc/self/stat").exists():
        return True
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state not in "ZX"
