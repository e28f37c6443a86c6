"""A process of ours ends with the one that started it, however that one ends: SIGKILL runs no clean-up.

`python -m benchmarks.lifetime MODULE ARGUMENTS` is `python -m MODULE ARGUMENTS` with that property: no program has to
know of it.  The kernel sends the signal (prctl(2), PR_SET_PDEATHSIG, Linux) when the *thread* that started the process
ends: a thread that starts one must outlive it.  Whoever starts it says who he is in the variable STARTER, because the
starter may be gone before the process can ask for the signal.

A program is hung up on (SIGHUP, raised as KeyboardInterrupt): it ends what it started, and its drafts go.  A process
that has nothing to tidy is killed.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, MutableMapping
from pathlib import Path

STARTER = "RIDGELINE_STARTER"
"""Environment variable: the process that starts another one, and where that number holds.  Read once, not handed on."""

PR_SET_PDEATHSIG = 1
"""linux/prctl.h (Linux 6.12)."""


def told(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process that is to end with this one."""
    return {**environment, STARTER: f"{os.getpid()}:{_space()}"}


def end_with_starter(
    number: signal.Signals = signal.SIGHUP, environment: MutableMapping[str, str] = os.environ
) -> None:
    """Get the signal `number` when the process that the environment names is gone; without a name, do nothing.

    SIGHUP becomes a KeyboardInterrupt.
    """
    starter, _, space = environment.pop(STARTER, "").partition(":")
    if not starter.isdigit() or space != _space():
        return
    if number == signal.SIGHUP:
        signal.signal(signal.SIGHUP, signal.default_int_handler)
    end_with(int(starter), number)


def end_with(starter: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Get the signal when this process's parent is gone, and at once if `starter` is gone already.

    The parent may be another process than `starter`, such as a script that is used as a Python.
    """
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if hasattr(libc, "prctl"):
        libc.prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != starter and not lives(starter):
        os.kill(os.getpid(), number)


def _space() -> str:
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
