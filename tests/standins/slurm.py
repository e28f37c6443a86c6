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
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from benchmarks.lifetime import by_parent, lives
from ci.slurm.client import Slurm
from tests.kit import HANGS_S, until
from tests.needed import PATH, needed

NODES = {"mi300x-0": "gfx942", "mi325x-0": "gfx942", "mi355x-0": "gfx950"}
USABLE = ("idle", "mixed", "allocated", "completing")
"""States of a node that takes jobs, now or after those it has."""
GPUS_PER_NODE = 8
PORTS = (10_000, 30_000)
"""Below those that Linux gives to connections (net.ipv4.ip_local_port_range, from 32768; Linux 6.12)."""


def environment(pid: int) -> dict[str, str]:
    """The environment that a process was started with; {} where it is gone or not ours."""
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    return dict(entry.decode(errors="replace").split("=", 1) for entry in entries if b"=" in entry)


CLAIMS = list[socket.socket]()
"""A name in the kernel for each port of a cluster of this process, until it ends (unix(7), abstract sockets)."""


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, and that no other process of the tests is given before a daemon has come to it.

    They stay free while a daemon is away: no connection is given one of these.
    """
    found: set[int] = set()
    while len(found) < count:
        port, claim = random.randrange(*PORTS), socket.socket(socket.AF_UNIX)
        with contextlib.suppress(OSError), socket.socket() as one:
            claim.bind(f"\0ridgeline-port-{port}")
            one.bind(("127.0.0.1", port))
            CLAIMS.append(claim)
            found.add(port)
    return sorted(found)


class SlurmCluster:
    """A cluster under `prefix`.  env: what a command of Slurm needs in its environment; slurm: our client of it."""

    def __init__(self, prefix: Path) -> None:
        self.prefix = prefix
        self.env = {**os.environ, "SLURM_CONF": str(prefix / "etc/slurm.conf"), "PATH": PATH}
        self.slurm = Slurm(self.env, patience_s=120)
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
        self._start("slurmctld")
        for node in NODES:
            self.start_slurmd(node)
        until(lambda: self.nodes() == dict.fromkeys(NODES, "idle"), "idle nodes", 0.05)

    def stop(self) -> None:
        """Cancel every job, end every daemon, kill what jobs left."""
        if "slurmctld" in self._daemons:
            self.command("scancel", f"--user={getpass.getuser()}", check=False)
        for name in reversed(list(self._daemons)):
            self._end(name, signal.SIGTERM)

    def command(self, *argv: str, check: bool = True) -> str:
        """What a command prints."""
        done = subprocess.run(argv, env=self.env, capture_output=True, text=True, timeout=HANGS_S)
        assert not check or done.returncode == 0, f"{argv}: {done.stderr}"
        return done.stdout

    # ---- what can go wrong ----

    def kill_slurmd(self, node: str) -> None:
        """SIGKILL the slurmd of a node, which the controller gives up at once; its jobs live on.

        A job that may be requeued then starts beside its first copy.
        """
        self._end(f"slurmd.{node}", signal.SIGKILL)
        self.command("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=lost")

    def kill_node(self, node: str) -> None:
        """The node loses its power: slurmd, its slurmstepds and every process of its jobs are gone at once."""
        self._end(f"slurmd.{node}", signal.SIGKILL)

        def ended() -> bool:
            """What one of them has started meanwhile is ended the next time."""
            left = [*self._steps(node), *self.processes(node)]
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return not left

        until(ended, f"the end of all on {node}")
        self.command("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=no power")

    def start_slurmd(self, node: str) -> None:
        """Start the slurmd of a node that has none."""
        self._start(f"slurmd.{node}")

    def bring_back(self, node: str) -> None:
        """Start a node again after kill_slurmd or kill_node; returns when it takes jobs."""
        self.start_slurmd(node)
        with contextlib.suppress(AssertionError):  # a node that was never given up cannot be resumed
            self.command("scontrol", "update", f"NodeName={node}", "State=RESUME")
        until(lambda: self.nodes().get(node) in USABLE, f"{node} to be back", 0.05)

    def restart_controller(self, away_s: float = 0.5, forgets: bool = False) -> None:
        """End slurmctld and start it again on its saved state; it is away for `away_s` in between.

        forgets: it is killed before it has saved any job, and gives their ids to others.
        """
        self._end("slurmctld", signal.SIGKILL if forgets else signal.SIGTERM)
        if forgets:
            shutil.rmtree(self.prefix / "state")
            (self.prefix / "state").mkdir()
        time.sleep(away_s)
        self._start("slurmctld")
        running = {name.removeprefix("slurmd.") for name in self._daemons}

        def reported() -> bool:  # a node whose jobs Slurm finds twice is drained by it
            states = self.nodes()
            mine = [states.get(name, "") for name in running & set(NODES)]
            return all(state in USABLE or state.startswith("drain") for state in mine)

        until(reported, "the nodes to report again", 0.05)

    def ready(self) -> None:
        """Returns when every node takes jobs, whatever an earlier test or a busy machine did to one."""
        for node in NODES:
            daemon = self._daemons.get(f"slurmd.{node}")
            if daemon is None or daemon.poll() is not None:
                self.start_slurmd(node)

        def usable() -> bool:
            self.mend()
            return {name for name, state in self.nodes().items() if state in USABLE} == set(NODES)

        until(usable, "nodes that take jobs", 0.05)

    def mend(self) -> None:
        """What an administrator does with nodes that Slurm has drained, or given up though they answer."""
        for name, state in self.nodes().items():
            if f"slurmd.{name}" in self._daemons and state.startswith(("drain", "down")):
                self.command("scontrol", "update", f"NodeName={name}", "State=RESUME", check=False)

    def nodes(self) -> dict[str, str]:
        """The state of each node, with * behind it where it does not respond; none while the controller is away."""
        rows = (line.split() for line in self.command("sinfo", "-h", "-N", "-o", "%N %T", check=False).splitlines())
        return {row[0]: row[1].rstrip("~#!%$@^-") for row in rows if row[0] in NODES}

    # ---- what runs ----

    def processes(self, node: str = "") -> list[int]:
        """Processes of jobs of this cluster (on one node), by the environment that Slurm gave them."""
        wanted = {"SLURM_CLUSTER_NAME": self.name} | ({"SLURMD_NODENAME": node} if node else {})
        return [pid for pid in pids() if _is_job(environment(pid), wanted) and lives(pid)]

    def _steps(self, node: str) -> set[int]:
        """The slurmstepds above the processes of a node's jobs."""
        jobs, tree = set(self.processes(node)), by_parent()
        steps = {child.process for children in tree.values() for child in children if child.name == "slurmstepd"}
        return {step for step in steps if jobs & {child.process for child in tree.get(step, ())}}

    # ---- its parts ----

    def _start(self, name: str) -> None:
        """Start slurmctld and wait until it answers, or start a slurmd."""
        program, _, node = name.partition(".")
        self._daemon(name, [program, "-D", *(["-N", node] if node else [])])
        if not node:
            until(lambda: "is UP" in self.command("scontrol", "ping", check=False), "slurmctld", 0.05)

    def _daemon(self, name: str, argv: Sequence[str]) -> None:
        """Start a program; without core files: slurmstepd 22.05 can crash at its end, and leaves one in the clone."""
        with (self.prefix / "log" / f"{name}.out").open("ab") as log:
            self._daemons[name] = subprocess.Popen(
                ["prlimit", "--core=0:0", *argv],
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _end(self, name: str, number: signal.Signals) -> None:
        daemon = self._daemons.pop(name, None)
        if daemon is None:
            return
        daemon.send_signal(number)
        try:
            daemon.wait(60)  # a controller that is killed meanwhile has not saved its jobs
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
            user=user, sock=sock, port=self._controller_port, prefix=self.prefix, name=self.name
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
SlurmdTimeout=300
MinJobAge=300
KillWait=2
BatchStartTimeout=100
JobRequeue=1
"""


def pids() -> list[int]:
    """All processes."""
    return [int(entry.name) for entry in Path("/proc").glob("[0-9]*")]


def _is_job(variables: dict[str, str], wanted: dict[str, str]) -> bool:
    return "SLURM_JOB_ID" in variables and wanted.items() <= variables.items()


@pytest.fixture(scope="session")
def cluster_of_all():
    """One cluster for all tests of this process."""
    with cluster() as one:
        yield one


@pytest.fixture
def slurm_cluster(cluster_of_all):
    """That cluster when all its nodes take jobs; a test that fails shows the end of its controller's log."""
    try:
        cluster_of_all.ready()
        yield cluster_of_all
    finally:
        print((cluster_of_all.prefix / "log/slurmctld.log").read_text(errors="replace")[-4000:])


@pytest.fixture
def own_cluster():
    """A cluster for one test, which makes its controller forget jobs that run: no other test could use it again."""
    with cluster() as one:
        yield one


@contextlib.contextmanager
def cluster() -> Iterator[SlurmCluster]:
    """A cluster that runs inside the block.  Its folder can be entered by all, which munged insists on.

    However this process ends, a keeper sees the end of its pipe, and ends every daemon and every process of a job.
    """
    needed("Slurm")
    folder = Path(tempfile.mkdtemp(prefix="ridgeline-slurm-"))
    folder.chmod(0o755)
    one = SlurmCluster(folder)
    argv = [sys.executable, "-m", "tests.standins.slurm", str(folder), one.name]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, cwd=Path(__file__).parents[2], start_new_session=True):
        try:
            one.start()
            yield one
        finally:
            one.stop()  # the end of the block closes the pipe, and waits for the keeper


def keep(folder: Path, name: str) -> None:
    """Wait for the end of stdin; then nothing of a cluster stays, neither a process nor a file."""
    sys.stdin.read()
    marks = ({"SLURM_CONF": str(folder / "etc/slurm.conf")}, {"SLURM_CLUSTER_NAME": name})
    while left := [pid for pid in pids() if any(m.items() <= environment(pid).items() for m in marks) and lives(pid)]:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    shutil.rmtree(folder)


if __name__ == "__main__":
    keep(Path(sys.argv[1]), sys.argv[2])
