"""The lock files of this machine's GPUs: one folder for all clones and all users, so that no two jobs or commands share
a GPU.

The folder can be written by everybody and emptied by nobody else (as /tmp); its files can be read by everybody, which
is all that flock(2) needs.  Whoever can log in can hold a lock, as he could use the GPU.  Containers of one host share
the folder only if it is mounted: RIDGELINE_LOCKS names it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shlex
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from benchmarks import lifetime
from ci.executors.job import ExecutorError

# Which GPUs this machine offers to jobs, found without a GPU library: by restricting variables, else by drivers.


VISIBLE = ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")


def gpus(environ: Mapping[str, str] = os.environ, root: Path = Path("/")) -> list[str]:
    """What a job may be given: the entries of the first restricting variable that is set, else indices from 0.

    AMD GPUs are the nodes of the KFD topology that have compute units (a CPU's node has none); NVIDIA GPUs are device
    files.
    """
    for name in VISIBLE:
        if name in environ:
            return [entry for entry in _entries(environ, name) if entry not in ("-1", "NoDevFiles")]
    return [str(index) for index in range(_amd(root) or _nvidia(root))]


def identities(given: Sequence[str], environ: Mapping[str, str] = os.environ, root: Path = Path("/")) -> dict[str, str]:
    """What each entry is called on the whole machine, the same in every clone and shell: "gpu-4".

    The UUID of an NVIDIA GPU is its place on the PCI bus, as CUDA counts GPUs of one kind; one that the driver does not
    list, such as a part of a GPU (MIG), stays: "gpu-MIG-<uuid>".
    An entry of HIP_VISIBLE_DEVICES counts within ROCR_VISIBLE_DEVICES, where both are set.  In a job of Slurm, whose
    control groups let every job count from 0, SLURM_JOB_GPUS has the numbers on the node (sbatch(1), 26.05).
    """
    whole = _entries(environ, "SLURM_JOB_GPUS")
    if len(whole) == len(given):
        return {one: f"gpu-{entry}" for one, entry in zip(given, whole, strict=True)}
    outer = dict(enumerate(_entries(environ, "ROCR_VISIBLE_DEVICES"))) if "HIP_VISIBLE_DEVICES" in environ else {}
    told = [file.read_text() for file in sorted((root / "proc/driver/nvidia/gpus").glob("*/information"))]
    uuids = [match[1] if (match := re.search(r"UUID:\s*(\S+)", text)) else "" for text in told]
    places = {one: str(n) for n, uuid in enumerate(uuids) for one in given if uuid.startswith(one)}
    places |= {str(number): entry for number, entry in outer.items()}
    return {one: f"gpu-{places.get(one, one)}" for one in given}


def _entries(environ: Mapping[str, str], name: str) -> list[str]:
    return [entry.strip() for entry in environ.get(name, "").split(",") if entry.strip()]


def visible(given: list[str], root: Path = Path("/"), environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variable that shows a job these GPUs only.

    Where a variable restricts us already, that one is narrowed: HIP_VISIBLE_DEVICES indexes into
    ROCR_VISIBLE_DEVICES, so setting both to the same list would hide GPUs.
    """
    name = next((name for name in VISIBLE if name in environ), None)
    if name is None:
        name = "HIP_VISIBLE_DEVICES" if _amd(root) else "CUDA_VISIBLE_DEVICES"
    return {name: ",".join(given)}


def _amd(root: Path) -> int:
    nodes = (root / "sys/class/kfd/kfd/topology/nodes").glob("*/properties")
    return sum(1 for node in nodes if re.search(r"^simd_count [1-9]", node.read_text(), re.MULTILINE))


def _nvidia(root: Path) -> int:
    return sum(1 for entry in (root / "dev").glob("nvidia[0-9]*") if entry.name[6:].isdigit())


FOLDER = Path("/tmp/ridgeline-locks")
"""/tmp is there on every machine, is one for all users, and is empty after a start."""

VARIABLE = "RIDGELINE_LOCKS"


def folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder, made if it is not there.  ExecutorError if it is something else, or somebody's own."""
    place = Path(environ.get(VARIABLE) or FOLDER)
    try:
        place.mkdir(parents=True)
        place.chmod(0o1777)
    except FileExistsError:
        pass
    except OSError as error:
        raise _unusable(place, error.strerror or str(error)) from error
    found = place.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise _unusable(place, "it is not a folder")
    if found.st_uid not in (0, os.getuid()) and not found.st_mode & stat.S_ISVTX:
        raise _unusable(place, "it belongs to another user, who could replace the locks")
    return place


def path(place: Path, device: str) -> Path:
    """The lock file of a device, as `visible` names it."""
    return place / re.sub(r"[^A-Za-z0-9._-]", "_", device)


def opened(file: Path) -> BinaryIO:
    """A lock file, open for reading; made first if it is not there.  ExecutorError."""
    try:
        if not file.exists():
            # Make a lock file, unless somebody does so at the same moment; others can open it, whatever the umask is.
            with contextlib.suppress(FileExistsError):
                made = os.open(file, os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
                os.fchmod(made, 0o644)
                os.close(made)
        return os.fdopen(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb")
    except OSError as error:
        raise _unusable(file, error.strerror or str(error)) from error


def locked(fd: int, kind: int = fcntl.LOCK_EX) -> bool:
    """Lock an open file now; False if somebody else holds it."""
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _unusable(place: Path, why: str) -> ExecutorError:
    return ExecutorError(f"{place} cannot hold the locks of this machine's GPUs: {why}; name a folder in {VARIABLE}")


# A command that measures has its GPUs to itself: it holds the lock files of the local queue (ci.executors.locks).
#
# Commands and jobs of all clones and users of a machine wait for each other; those on other GPUs do not. A command
# takes every GPU that it sees, in the order of their names, so that no two wait for each other; one that sees none
# takes "cpu". In a job of Slurm without GPUs nothing is taken: Slurm deals the cores, and waiting would cost the job
# its time.


CPU = "cpu"

HELD = "RIDGELINE_HOLDS"
"""Variable: whose locks the processes below it need not wait for, as PID:NAMESPACE:LOCK,LOCK."""

WAIT_S = 0.2
"""Seconds between two looks at a lock."""

SAID_S = 10.0
"""Seconds between two lines on whom a command waits for."""

LONGEST = 300
"""Characters of a command that are shown."""


@contextlib.contextmanager
def taken(say: Callable[[str], None]) -> Iterator[None]:
    """Hold the locks of all that this process measures on; say whom it waits for.  ExecutorError without a folder."""
    above = held_above()
    wanted = sorted(here() - above)
    with contextlib.ExitStack() as held:
        for name in wanted:
            _await(folder() / name, held, say)
        before = os.environ.get(HELD)
        os.environ |= telling({*wanted, *above})
        try:
            yield
        finally:
            os.environ.pop(HELD)
            os.environ |= {} if before is None else {HELD: before}


def here(environ: Mapping[str, str] = os.environ) -> set[str]:
    """The names of the locks of what a command in this environment measures on."""
    found = gpus(environ)
    if not found:
        return set() if "SLURM_JOB_ID" in environ else {CPU}
    return {path(Path(), device).name for device in identities(found, environ).values()}


def held_above(environ: Mapping[str, str] = os.environ) -> set[str]:
    """The locks that the command or the job has that started this process, while that one lives."""
    holder, space, names = (*environ.get(HELD, "").split(":"), "", "")[:3]
    alive = holder.isdigit() and space == lifetime.pid_space() and lifetime.lives(int(holder))
    return set(names.split(",")) if alive else set()


def telling(names: Iterable[str]) -> dict[str, str]:
    """The variable that tells the processes below this one which locks it holds."""
    return {HELD: f"{os.getpid()}:{lifetime.pid_space()}:{','.join(sorted(names))}"}


def _await(file: Path, held: contextlib.ExitStack, say: Callable[[str], None]) -> None:
    """Lock a file.  No child inherits it: the lock dies with this process, however that ends."""
    lock, began, said = held.enter_context(opened(file)), time.monotonic(), -SAID_S
    while not locked(lock.fileno()):
        waited = time.monotonic() - began
        if waited - said >= SAID_S:
            what = "this machine" if file.name == CPU else f"GPU {file.name.removeprefix('gpu-')}"
            waiting = f"still waiting ({waited:.0f} s)" if said >= 0 else "waiting"
            say(f"{waiting} for {what}: {holder(file)}; Ctrl-C ends the wait")
            said = waited
        time.sleep(WAIT_S)


def holder(file: Path) -> str:
    """Who holds a lock: process, command and the time of its start, as the kernel tells them (proc(5), /proc/locks)."""
    try:
        found = file.stat()
        place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
        rows = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    except OSError:
        rows, place = [], ""
    owners = [row[4] for row in rows if row[1:2] == ["FLOCK"] and row[5:6] == [place]]
    process = next((pid for pid in owners if pid.isdigit() and int(pid) > 0), None)
    if process is None:
        return "a process holds it that cannot be seen from here, as in another container"
    return f"process {process} holds it{_command(Path('/proc') / process)}"


def _command(process: Path) -> str:
    """ ", `ridgeline check`, running since 14:03:05"."""
    try:
        words = process.joinpath("cmdline").read_bytes().decode("utf-8", "replace").rstrip("\0").split("\0")
        start = float(process.joinpath("stat").read_text().rpartition(")")[2].split()[19])
        up = float(Path("/proc/uptime").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return ""
    verb = next((n + 1 for n, word in enumerate(words[:4]) if Path(word).name in ("ridgeline", "ci")), 0)
    whole = shlex.join(["ridgeline", *words[verb:]] if verb else words)
    shown = "".join(one if one.isprintable() else " " for one in whole)[:LONGEST]  # another user's, on our terminal
    began = time.time() - up + start / os.sysconf("SC_CLK_TCK")
    return f", `{shown}`, running since {time.strftime('%H:%M:%S', time.localtime(began))}"
