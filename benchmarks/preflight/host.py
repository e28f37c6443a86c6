"""The machine around the GPUs: settings of the kernel, limits of the process, space.  Reads files only."""

from __future__ import annotations

import contextlib
import re
import resource
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def read(root: Path, folders: Sequence[Path] = ()) -> dict[str, Any]:
    """The fields of NodeFacts beside its GPUs."""
    shm = root / "dev/shm"
    return {
        "numa_balancing": _number(root / "proc/sys/kernel/numa_balancing"),
        "iommu_pt": _iommu_pt(root / "proc/cmdline"),
        "memlock_bytes": _memlock(),
        "shm_bytes": free_bytes(shm) if shm.is_dir() else None,
        "disk_bytes": {str(one): free for one in (Path("/tmp"), *folders) if (free := free_bytes(one)) is not None},
    }


def _number(path: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        return int(path.read_text())
    return None


def _iommu_pt(path: Path) -> bool | None:
    """iommu=pt lets devices reach memory without translation (ROCm: system optimisation of MI300X, 2026-11)."""
    try:
        return bool(re.search(r"\biommu=pt\b", path.read_text(errors="replace")))
    except OSError:
        return None


def _memlock() -> int:
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    return -1 if limit == resource.RLIM_INFINITY else limit


def free_bytes(folder: Path) -> int | None:
    """Space on the disk that holds the folder, or would hold it; None if it cannot be asked."""
    with contextlib.suppress(OSError, StopIteration):
        return shutil.disk_usage(next(p for p in (folder.absolute(), *folder.absolute().parents) if p.exists())).free
    return None
