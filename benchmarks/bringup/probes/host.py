"""The machine around the GPUs: disk, shared memory, git, asv.  Needs no torch."""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
from pathlib import Path

from benchmarks import doctor
from benchmarks.bringup.context import StepContext
from benchmarks.bringup.rows import Row, failed, not_here, passed
from benchmarks.preflight import judge
from benchmarks.preflight.host import free_bytes

CACHE = Path.home() / ".triton"
"""Where Triton keeps what it has compiled, unless TRITON_CACHE_DIR says otherwise (triton/knobs.py, 3.6 to 3.9)."""

GIT_S = 30.0
"""Seconds that git may take: a clone on a network disk is slow at first."""


def disk(context: StepContext) -> list[Row]:
    """Free space where trials, temporary files and compiled kernels go."""
    return [_space(Path("/tmp")), _space(Path(context.checkout)), _space(CACHE)]


def _space(folder: Path) -> Row:
    bytes_ = free_bytes(folder) or 0
    free = (bytes_ / 1e9, "GB")
    if bytes_ < doctor.LEAST_DISK_BYTES:
        said = f"{folder}: {bytes_ / 1e9:.1f} GB free, {doctor.LEAST_DISK_BYTES / 1e9:.1f} GB are needed"
        return failed("disk", said, "free space there, or put TMPDIR and TRITON_CACHE_DIR on another disk", free=free)
    return passed("disk", f"{folder}: {bytes_ / 1e9:.0f} GB free", free=free)


def shm(context: StepContext) -> list[Row]:
    """Size of /dev/shm: RCCL, NCCL and the heaps of CPU ranks lie there."""
    folder = Path(context.root) / "dev/shm"
    if not folder.is_dir():
        return [failed("shm", "/dev/shm is missing", "start the container with --shm-size=16G or --ipc=host")]
    usage = shutil.disk_usage(folder)
    sizes = {"free": (usage.free / 1e9, "GB"), "total": (usage.total / 1e9, "GB")}
    said = f"{usage.free / 1e9:.1f} of {usage.total / 1e9:.1f} GB free"
    if usage.free < judge.LEAST_SHM_BYTES:
        next_step = "free some, or start the container with --shm-size=16G or --ipc=host"
        return [failed("shm", f"{said}, {judge.LEAST_SHM_BYTES / 1e9:.1f} GB are needed", next_step, **sizes)]
    return [passed("shm", said, **sizes)]


def git(context: StepContext) -> list[Row]:
    """git and the history of the checkout; measuring needs neither, comparing commits does."""
    elsewhere = "name the commit and a file here (`ridgeline run --help`), and record the file in a clone"
    if shutil.which("git") is None:
        return [not_here("git", "git is not installed: commits cannot be compared on this node", elsewhere)]
    asked = ["git", "-C", context.checkout, "rev-list", "--count", "HEAD"]
    said = subprocess.run(asked, capture_output=True, text=True, timeout=GIT_S, stdin=subprocess.DEVNULL)
    if said.returncode:
        why = (said.stderr.strip().splitlines() or ["no reason given"])[-1]
        return [not_here("git", f"the checkout has no history here ({why})", elsewhere)]
    return [passed("git", f"{_git_version()}, {said.stdout.strip()} commits up to HEAD")]


def _git_version() -> str:
    said = subprocess.run(["git", "--version"], capture_output=True, text=True, timeout=GIT_S, stdin=subprocess.DEVNULL)
    return said.stdout.strip().removesuffix("\n")


def asv(context: StepContext) -> list[Row]:
    """asv and asv_runner, which records need and measuring does not."""
    found = {name: _version(name) for name in ("asv", "asv_runner")}
    missing = [name for name, version in found.items() if not version]
    if missing:
        why = f"{' and '.join(missing)} not installed: trials are measured here and recorded elsewhere"
        return [
            not_here(
                "asv", why, "`make setup` installs them; or `ridgeline run --out trials.jsonl`, for a clone to record"
            )
        ]
    return [passed("asv", ", ".join(f"{name} {version}" for name, version in found.items()))]


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
