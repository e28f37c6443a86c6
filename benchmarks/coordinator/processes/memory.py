"""Whether the kernel's out-of-memory killer was at work.  proc(5), vmstat, Linux 4.13 and newer."""

from __future__ import annotations

from pathlib import Path

VMSTAT = Path("/proc/vmstat")


def kills() -> int:
    """Processes of this machine that it has ended, those for the limit of a container too; 0 where nothing says so."""
    try:
        lines = VMSTAT.read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))
    except (OSError, StopIteration, ValueError, IndexError):
        return 0
