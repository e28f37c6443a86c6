"""One lock (flock) for each GPU of this machine, so that two commands that measure do not share one.

Commands of all clones and users wait for each other; those on other GPUs do not.  A command takes every GPU that it
sees, in the order of their names, so that no two wait for each other; one that sees none takes "cpu".  A lock dies with
its holder, however that ends.  Containers of one host share the folder only if it is mounted: RIDGELINE_LOCKS names it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

FOLDER, VARIABLE = Path("/tmp/ridgeline-locks"), "RIDGELINE_LOCKS"
"""/tmp is there on every machine, is one for all users, and is empty after a start."""
HELD = "RIDGELINE_HOLDS"
"""Variable: the locks that a command holds, for which the processes below it need not wait."""
VISIBLE = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
"""The first one that is set counts: what HIP_ chooses within ROCR_ is locked with all of ROCR_."""
WAIT_S, REPORT_S = 0.2, 10.0
"""Seconds between two looks at a lock, and between two lines on whom a command waits for."""
LONGEST = 300
"""Characters of the holder that are shown."""


class LockError(Exception):
    """The locks cannot be held; the text says why, and what to do."""


@contextlib.contextmanager
def device_locks(report: Callable[[str], None]) -> Iterator[None]:
    """Hold the locks of all that this process measures on; report whom it waits for.  LockError."""
    inherited = os.environ.get(HELD, "")
    wanted = sorted(lock_names() - set(inherited.split(",")))
    place = Path(os.environ.get(VARIABLE) or FOLDER)
    with contextlib.ExitStack() as files:
        for name in wanted:
            _hold(place / name, files, report)
        os.environ[HELD] = ",".join(filter(None, [inherited, *wanted]))
        try:
            yield
        finally:
            os.environ[HELD] = inherited


def lock_names(environ: Mapping[str, str] = os.environ, root: Path = Path("/")) -> set[str]:
    """The locks of what a command in this environment measures on, named as the machine counts: {"gpu-4"}.

    Nothing in a job of Slurm without GPUs: Slurm deals the cores.
    """
    gpus = visible_gpus(environ, root)
    if not gpus:
        return set() if "SLURM_JOB_ID" in environ else {"cpu"}
    of_node = _entries(environ, "SLURM_JOB_GPUS")  # inside a job every GPU counts from 0 (sbatch(1), 26.05)
    if len(of_node) == len(gpus):
        return {f"gpu-{number}" for number in of_node}
    return {"gpu-" + re.sub(r"[^A-Za-z0-9._-]", "_", gpu) for gpu in gpus}


def visible_gpus(environ: Mapping[str, str] = os.environ, root: Path = Path("/")) -> list[str]:
    """The entries of the first restricting variable that is set, else indices from 0, found without a GPU library.

    AMD GPUs are the nodes of the KFD topology that have compute units (a CPU's node has none); NVIDIA GPUs are device
    files.
    """
    for name in VISIBLE:
        if name in environ:
            return [entry for entry in _entries(environ, name) if entry not in ("-1", "NoDevFiles")]
    nodes = (root / "sys/class/kfd/kfd/topology/nodes").glob("*/properties")
    amd = sum(1 for node in nodes if re.search(r"^simd_count [1-9]", node.read_text(), re.MULTILINE))
    nvidia = sum(1 for entry in (root / "dev").glob("nvidia[0-9]*") if entry.name[6:].isdigit())
    return [str(index) for index in range(amd or nvidia)]


def _entries(environ: Mapping[str, str], name: str) -> list[str]:
    return [entry.strip() for entry in environ.get(name, "").split(",") if entry.strip()]


def _hold(path: Path, files: contextlib.ExitStack, report: Callable[[str], None]) -> None:
    """Lock a file, which names its holder, for all users.  No child inherits it."""
    try:
        if not path.parent.exists():
            path.parent.mkdir(parents=True)
            path.parent.chmod(0o1777)
        with contextlib.suppress(FileExistsError):  # in such a folder Linux lets nobody create over another's file
            made = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC)
            os.fchmod(made, 0o666)  # whatever the umask is
            os.close(made)
        file = files.enter_context(os.fdopen(os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC), "r+"))
    except OSError as error:
        raise LockError(
            f"{path} cannot hold the lock of this machine: {error.strerror}; name a folder in {VARIABLE}"
        ) from error
    began, next_report = time.monotonic(), 0.0
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            waited = time.monotonic() - began
            if waited >= next_report:
                holder = "".join(one for one in path.read_text()[:LONGEST] if one.isprintable())
                device = "this machine" if path.name == "cpu" else path.name.replace("gpu-", "GPU ")
                report(f"waiting for {device} ({waited:.0f} s): {holder} measures on it; Ctrl-C ends the wait")
                next_report += REPORT_S
            time.sleep(WAIT_S)
    file.truncate(0)
    file.write(f"process {os.getpid()} ({shlex.join(['ridgeline', *sys.argv[1:]])})")
    file.flush()
