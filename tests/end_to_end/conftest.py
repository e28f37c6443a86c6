"""A GitHub, a Slurm and a runner program for one site."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ci.slurm.runner import OURS
from tests.kit import HANGS_S, until
from tests.standins.runner import RunnerHub, install
from tests.standins.slurm import slurm_cluster

__all__ = ["slurm_cluster"]

ROOT = Path(__file__).parents[2]
NUMBERS = itertools.count(1)
TOKEN = "token-of-the-service"

RUNNERS = """\
[pool.mi300x]
gpu = "MI300X"
gpus = [1, 8]
runs_on = ["linux", "mi300x", "mi300x-{{gpus}}"]
container = "none"
isolation = "slurm"
minutes = 30
site = "cluster"
partition = "mi300x"
gres = "mi300x"

[pool.mi355x]
gpu = "MI355X"
gpus = [8]
runs_on = ["linux", "mi355x"]
container = "none"
isolation = "slurm"
minutes = 30
site = "cluster"
partition = "mi355x"
gres = "mi355x"

[site.cluster]
shared = "{shared}"
[site.cluster.runner]
program = "{program}"
repository = "o/r"
workflows = [".github/workflows/gpu.yml"]
refs = ["refs/heads/main", "refs/heads/ridgeline/gpu"]
jobs = 2
"""


class Site:
    """One cluster that serves one repository; the service is a process of its own."""

    def __init__(self, folder, hub, slurm):
        self.folder, self.hub, self.slurm = folder, hub, slurm
        self.state = folder / "runner"
        self.log = folder / "service.log"
        self.program = install(folder / "actions-runner", hub.url)
        self.settings = folder / "runners.toml"
        self.settings.write_text(RUNNERS.format(shared=folder, program=self.program))
        self._service = None

    def serve(self):
        """Start the service."""
        argv = [*self._argv(), "--interval", "0.1"]
        with self.log.open("ab") as log:
            self._service = subprocess.Popen(argv, cwd=self.folder, env=self._env(), stdout=log, stderr=log)

    def run(self, *options):
        """The command with these options, to its end."""
        argv = [*self._argv(), *options]
        return subprocess.run(argv, cwd=self.folder, env=self._env(), capture_output=True, text=True, timeout=HANGS_S)

    def _argv(self):
        return [sys.executable, "-m", "ci", "runner", "--file", str(self.settings)]

    def _env(self):
        return self.slurm.env | {"GITHUB_TOKEN": TOKEN, "GITHUB_API_URL": self.hub.url, "PYTHONPATH": str(ROOT)}

    def end_service(self, number=signal.SIGTERM):
        """End the service; returns its exit code."""
        assert self._service is not None
        self._service.send_signal(number)
        code = self._service.wait(HANGS_S)
        self._service = None
        return code

    def close(self):
        """End everything."""
        if self._service is not None:
            self.end_service(signal.SIGKILL)
        for row in self.rows():
            self.slurm.slurm.scancel(row.name)
        until(lambda: not self.slurm.processes(), "the end of all jobs")

    def until(self, condition, what):
        """Wait until something is true; the service must live."""

        def lives():
            assert self._service is None or self._service.poll() is None, self.log.read_text()
            return condition()

        try:
            until(lives, what, 0.05)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log.read_text()}\n{self.outputs()}") from None

    def outputs(self):
        """What the jobs printed."""
        return "\n".join(path.read_text() for path in self.state.glob("rl-*.txt"))

    def rows(self):
        """Rows of the Slurm jobs of runners that Slurm remembers, of this site: numbers of jobs are used once."""
        return [row for row in self.slurm.slurm.mine(OURS) if int(row.name[3:]) in {job["id"] for job in self.hub.jobs}]

    def clean(self):
        """Nothing is left: no runner that is up, no folder of a job, no job in Slurm."""
        online = [runner for runner in self.hub.runners if runner["status"] == "online"]
        living = [row for row in self.rows() if not row.has_ended]
        return not (online or living or [path for path in self.state.glob("rl-*") if path.is_dir()])


@pytest.fixture
def site(tmp_path, slurm_cluster):
    with RunnerHub() as hub:
        hub._ids = NUMBERS  # Slurm remembers the jobs of earlier tests by these numbers
        one = Site(tmp_path, hub, slurm_cluster)
        try:
            yield one
        finally:
            one.close()
