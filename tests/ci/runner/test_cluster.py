"""How a slot's Slurm job is submitted, and what squeue's states mean for it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from ci.pools import drained, file
from ci.pools.drained import Drained
from ci.pools.types import PoolsError
from ci.runner import slots
from ci.runner.slots import SlurmJobs
from ci.runner.state import Denied, End, RunnerError, Serving, serving
from ci.slurm import ENDED, QueueRow, Slurm

DOCUMENT = {
    "pool": {
        "mi300x": {
            "gpu": "MI300X",
            "gpus": [1, 8],
            "runs_on": ["linux", "mi300x-{gpus}"],
            "container": "none",
            "isolation": "slurm",
            "site": "here",
            "partition": "gpu",
            "gres": "mi300x",
            "constraint": "gfx942",
            "exclusive": True,
            "minutes": 90,
            "sbatch": ["--qos=ci"],
        },
        "alone": {"gpu": "MI355X", "gpus": [8], "runs_on": ["alone"], "container": "none", "isolation": "whole"},
    },
    "site": {
        "here": {
            "account": "perf",
            "shared": "/nowhere",
            "runner": {
                "program": "/opt/actions-runner/run.sh",
                "repository": "o/r",
                "jobs": 3,
                "organization": "o",
                "workflows": [".github/workflows/gpu.yml"],
                "refs": ["refs/heads/main"],
            },
        },
        "there": {},
    },
}


@pytest.fixture
def jobs(tmp_path: Path) -> SlurmJobs:
    pools = file.parse(DOCUMENT)
    here = dataclasses.replace(pools.sites["here"], shared=str(tmp_path))
    pools = dataclasses.replace(pools, sites={**pools.sites, "here": here})
    return SlurmJobs(serving(pools, "here"), pools, tmp_path / "state", Slurm({}))


def test_the_job_of_a_slot(jobs: SlurmJobs, tmp_path: Path) -> None:
    drained.drain(Drained("n3", "its fans", "2026-11-22T10:00:00Z", "somebody"), tmp_path / "drained")
    state = tmp_path / "state"
    assert jobs.options("rl-a", "mi300x-8") == [
        *("--partition=gpu", "--account=perf", "--gres=gpu:mi300x:8", "--constraint=gfx942", "--exclusive"),
        *("--exclude=n3", "--time=105", "--nodes=1", "--no-requeue", "--open-mode=append", "--export=NONE"),
        *(f"--chdir={state}/slots/rl-a", f"--output={state}/logs/rl-a.log", "--qos=ci"),
    ]
    assert jobs.script("rl-a").splitlines()[-1] == (
        f"exec bash {state}/slots/rl-a/start.sh {state}/slots/rl-a /opt/actions-runner/run.sh 600"
    )


def test_a_pool_that_is_gone_from_the_file_starts_nothing(jobs: SlurmJobs) -> None:
    with pytest.raises(Denied, match="no longer in ci/runners.toml"):
        jobs.options("rl-a", "mi250-1")


def test_what_a_site_serves() -> None:
    pools = file.parse(DOCUMENT)
    made = serving(pools, "here")
    assert [(offer.name, offer.gpus, offer.labels) for offer in made.offers] == [
        ("mi300x-1", 1, ("linux", "mi300x-1")),
        ("mi300x-8", 8, ("linux", "mi300x-8")),
    ]
    assert (made.most, made.organization, made.repository) == (3, "o", "o/r")
    assert isinstance(serving(pools, "here", ["mi300x"]), Serving)


@pytest.mark.parametrize(
    ("site", "only", "said"),
    [
        ("there", (), "'there' is not served: ci/runners.toml has no .site.there.runner.; sites that have one: here"),
        ("here", ("alone",), "'alone' has the site 'none': the runners of site 'here' cannot serve it"),
        ("here", ("mi250",), "no pool 'mi250'"),
    ],
)
def test_what_cannot_be_served_is_said(site: str, only: tuple[str, ...], said: str) -> None:
    with pytest.raises((RunnerError, PoolsError), match=said):
        serving(file.parse(DOCUMENT), site, only)


def test_a_reason_that_waiting_does_not_end_is_told() -> None:
    waiting = QueueRow("7", "7", "rl-a", "PENDING", "Resources", "gpu", "", "rl-a")
    assert slots._job(waiting).why == ""
    assert slots._job(dataclasses.replace(waiting, reason="PartitionTimeLimit")).why == "PENDING, PartitionTimeLimit"


@pytest.mark.parametrize("state", sorted(ENDED))
def test_only_a_lost_node_makes_a_job_run_again(state: str) -> None:
    lost, stopped = {"BOOT_FAIL", "NODE_FAIL", "PREEMPTED", "REVOKED"}, {"CANCELLED", "DEADLINE", "TIMEOUT"}
    wanted = End.LOST if state in lost else End.STOPPED if state in stopped else End.OVER
    assert slots._end(QueueRow("7", "7", "rl-a", state, "", "gpu", "n1", "rl-a")) is wanted
