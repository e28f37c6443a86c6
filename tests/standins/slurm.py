"""A real Slurm on this host: three nodes on loopback with fake GPUs, started and ended by the tests.

    def test_it(slurm_cluster):             # one cluster for all tests of a process
        slurm_cluster.slurm.sbatch(...)
        slurm_cluster.kill_node("mi300x-0")

Debian's slurmctld, slurmd and munge run as this user, in the foreground, under a prefix and on ports of their own.
Partitions: mi300x, mi325x, mi355x with one node of that name each; `all` with the three; `urgent`, which takes the node
of mi300x from jobs of the others.  GPUs are links to /dev/null, for Slurm wants a character device.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from ci.slurm.client import Slurm

NODES = {"mi300x-0": "gfx942", "mi325x-0": "gfx942", "mi355x-0": "gfx950"}
GPUS_PER_NODE = 8
SBIN = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
NEEDED = ("munged", "slurmctld", "slurmd", "sbatch")


def until(condition: Callable[[], object], what: str, seconds: float = 180.0) -> None:
    """Wait until something is true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:g} s for {what}"
        time.sleep(0.05)


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def environment(pid: int) -> dict[str, str]:
    """The environment that a process was started with; {} where it is gone or not ours."""
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    return dict(entry.decode(errors="replace").split("=", 1) for entry in entries if b"=" in entry)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on; held open together, so that they differ."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


class SlurmCluster:
    """A cluster under `prefix`.  env: what a command of Slurm needs in its environment; slurm: our client of it."""

    def __init__(self, prefix: Path, slurmd_timeout_s: int = 10) -> None:
        self.prefix, self._timeout_s = prefix, slurmd_timeout_s
        self.env = {**os.environ, "SLURM_CONF": str(prefix / "etc/slurm.conf"), "PATH": SBIN}
        self.slurm = Slurm(self.env, patience_s=20)
        self.name = f"ridgeline{os.getpid()}x{secrets.token_hex(3)}"
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._controller_port, *self._node_ports = free_ports(1 + len(NODES))

    # ---- start and end ----

    def start(self) -> None:
        """Write the configuration and start munged, slurmctld and every slurmd; returns when the nodes are idle."""
        self._write()
        run = self.prefix / "run"
        key, files = (
            f"--key-file={self.prefix}/munge/key",
            [f"--{n}-file={run}/munge.{n}" for n in ("pid", "log", "seed")],
        )
        self._daemon("munged", ["munged", "--foreground", f"--socket={run}/munge.sock", key, *files])
        until((run / "munge.sock").exists, "munged")
        self._controller()
        for node in NODES:
            self.start_slurmd(node)
        until(lambda: {row.name for row in self.slurm.nodes() if row.state == "idle"} == set(NODES), "idle nodes")

    def stop(self) -> None:
        """Cancel every job, end every daemon, kill what jobs left."""
        if "slurmctld" in self._daemons:
            self.command("scancel", f"--user={getpass.getuser()}", check=False)
        for name in reversed(list(self._daemons)):
            self._end(name, signal.SIGTERM)
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def command(self, *argv: str, check: bool = True) -> str:
        """What a command prints."""
        done = subprocess.run(argv, env=self.env, capture_output=True, text=True, timeout=60)
        assert not check or done.returncode == 0, f"{argv}: {done.stderr}"
        return done.stdout

    # ---- what can go wrong ----

    def kill_slurmd(self, node: str, noticed: bool = True) -> None:
        """SIGKILL the slurmd of a node; its jobs live on.  noticed: the controller gives the node up at once.

        Otherwise it does so after SlurmdTimeout.  A job that may be requeued then starts beside its first copy.
        """
        self._end(f"slurmd.{node}", signal.SIGKILL)
        if noticed:
            self.command("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=lost")

    def kill_node(self, node: str, noticed: bool = True) -> None:
        """The node loses its power: slurmd, its slurmstepds and every process of its jobs are gone at once."""
        self._end(f"slurmd.{node}", signal.SIGKILL)
        steps = self._steps(node)
        for pid in [*steps, *self.processes(node)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: not self.processes(node), f"the end of all on {node}")
        if noticed:
            self.command("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=no power")

    def start_slurmd(self, node: str) -> None:
        """Start the slurmd of a node that has none."""
        self._daemon(f"slurmd.{node}", ["slurmd", "-D", "-N", node])

    def bring_back(self, node: str) -> None:
        """Start a node again after kill_slurmd or kill_node; returns when it takes jobs."""
        self.start_slurmd(node)
        with contextlib.suppress(AssertionError):  # a node that was never given up cannot be resumed
            self.command("scontrol", "update", f"NodeName={node}", "State=RESUME")
        until(lambda: any(row.usable for row in self.slurm.nodes() if row.name == node), f"{node} to be back")

    def restart_controller(self, number: signal.Signals = signal.SIGTERM, away_s: float = 0.5) -> None:
        """End slurmctld and start it again on its saved state; it is away for `away_s` in between."""
        self._end("slurmctld", number)
        time.sleep(away_s)
        self._controller()
        running = {name.removeprefix("slurmd.") for name in self._daemons}
        until(lambda: all(r.usable for r in self.slurm.nodes() if r.name in running), "the nodes to report again")

    # ---- what runs ----

    def processes(self, node: str = "") -> list[int]:
        """Processes of jobs of this cluster (on one node), by the environment that Slurm gave them."""
        wanted = {"SLURM_CLUSTER_NAME": self.name} | ({"SLURMD_NODENAME": node} if node else {})
        return [pid for pid in _pids() if _is_job(environment(pid), wanted) and alive(pid)]

    def _steps(self, node: str) -> set[int]:
        """The slurmstepds above the processes of a node's jobs."""
        above = {_parent(pid) for pid in self.processes(node)}
        return {pid for pid in above if pid > 1 and b"slurmstepd" in _command_line(pid)}

    # ---- its parts ----

    def _controller(self) -> None:
        self._daemon("slurmctld", ["slurmctld", "-D"])
        until(lambda: "is UP" in self.command("scontrol", "ping", check=False), "slurmctld")

    def _daemon(self, name: str, argv: Sequence[str]) -> None:
        with (self.prefix / "log" / f"{name}.out").open("ab") as log:
            self._daemons[name] = subprocess.Popen(
                argv, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def _end(self, name: str, number: signal.Signals) -> None:
        daemon = self._daemons.pop(name, None)
        if daemon is None:
            return
        daemon.send_signal(number)
        try:
            daemon.wait(3)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()

    def _write(self) -> None:
        for name in ("munge", "run", "log", "state", "spool", "dev", "etc"):
            (self.prefix / name).mkdir(parents=True, exist_ok=True)
        (self.prefix / "munge").chmod(0o700)
        (self.prefix / "run").chmod(0o755)
        (self.prefix / "munge/key").write_bytes(os.urandom(1024))
        (self.prefix / "munge/key").chmod(0o400)
        for node in NODES:
            (self.prefix / "spool" / node).mkdir()
            for index in range(GPUS_PER_NODE):
                (self.prefix / "dev" / f"{node[:-2]}-{index}").symlink_to("/dev/null")
        (self.prefix / "etc/slurm.conf").write_text(self._configuration())
        (self.prefix / "etc/gres.conf").write_text("AutoDetect=off\n" + "".join(map(self._gres, NODES)))
        if self._version() >= (23, 11):  # newer ones load a cgroup plug-in unless told so; older ones die of the value
            (self.prefix / "etc/cgroup.conf").write_text("CgroupPlugin=disabled\n")

    def _version(self) -> tuple[int, ...]:
        return tuple(map(int, self.command("slurmctld", "-V").split()[1].split(".")[:2]))

    def _gres(self, node: str) -> str:
        files = f"{self.prefix}/dev/{node[:-2]}-[0-{GPUS_PER_NODE - 1}]"
        return f"NodeName={node} Name=gpu Type={node[:-2]} File={files} Flags=amd_gpu_env\n"

    def _configuration(self) -> str:
        """slurm.conf; cred_expire is also how long a requeued job waits."""
        user, sock = getpass.getuser(), f"{self.prefix}/run/munge.sock"
        nodes = [
            f"NodeName={node} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs=2 RealMemory=2000"
            f" Gres=gpu:{node[:-2]}:{GPUS_PER_NODE} Feature={node[:-2]},{arch}"
            for (node, arch), port in zip(NODES.items(), self._node_ports, strict=True)
        ]
        common = "MaxTime=60 DefaultTime=10 State=UP"
        partitions = [f"PartitionName={node[:-2]} Nodes={node} {common}" for node in NODES]
        partitions += [f"PartitionName=all Nodes={','.join(NODES)} {common}"]
        partitions += [f"PartitionName=urgent Nodes=mi300x-0 PriorityTier=10 {common}"]
        return "\n".join([*SETTINGS.format(
            user=user, sock=sock, port=self._controller_port, prefix=self.prefix,
            timeout=self._timeout_s, name=self.name
        ).splitlines(), *nodes, *partitions, ""])  # fmt: skip


SETTINGS = """\
ClusterName={name}
SlurmctldHost=localhost(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={sock},cred_expire=5
CredType=cred/munge
SlurmctldPort={port}
SlurmctldPidFile={prefix}/run/slurmctld.pid
SlurmdPidFile={prefix}/run/slurmd.%n.pid
SlurmctldLogFile={prefix}/log/slurmctld.log
SlurmdLogFile={prefix}/log/slurmd.%n.log
SlurmdSpoolDir={prefix}/spool/%n
StateSaveLocation={prefix}/state
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_min_interval=0,batch_sched_delay=0,bf_interval=1,sched_interval=1,nohold_on_prolog_fail
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
GresTypes=gpu
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
SlurmctldTimeout=10
SlurmdTimeout={timeout}
MinJobAge=300
KillWait=2
BatchStartTimeout=10
JobRequeue=1
"""


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").glob("[0-9]*")]


def _is_job(variables: dict[str, str], wanted: dict[str, str]) -> bool:
    return "SLURM_JOB_ID" in variables and wanted.items() <= variables.items()


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.fixture(scope="session")
def slurm_cluster() -> Iterator[SlurmCluster]:
    """One cluster for all tests of this process.  A test that kills a node brings it back."""
    with cluster() as one:
        yield one


@contextlib.contextmanager
def cluster() -> Iterator[SlurmCluster]:
    """A cluster that runs inside the block.  Its folder can be entered by all, which munged insists on."""
    absent = [program for program in NEEDED if not shutil.which(program, path=SBIN)]
    assert not absent, f"{', '.join(absent)} missing: apt-get install slurmctld slurmd slurm-client munge (see .ci/run)"
    with tempfile.TemporaryDirectory(prefix="ridgeline-slurm-") as folder:
        Path(folder).chmod(0o755)
        one = SlurmCluster(Path(folder))
        try:
            one.start()
            yield one
        finally:
            one.stop()
