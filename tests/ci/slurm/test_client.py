"""Our client against a real Slurm."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from ci.slurm import Slurm, SlurmAway, SlurmError, new_token
from tests.standins.slurm import SlurmCluster, until


def submitted(cluster: SlurmCluster, folder: Path, text: str, *options: str) -> tuple[str, str]:
    """Id and token of a job that runs a line of bash."""
    script, token = folder / "job.sh", new_token("test")
    script.write_text(f"#!/bin/bash\n{text}\n")
    out = f"--output={folder}/out-%a"
    return cluster.slurm.sbatch(script, token, [out, "--export=NONE", f"--chdir={folder}", *options]), token


def ended(cluster: SlurmCluster, job: str, token: str, seconds: float = 45.0) -> list[str]:
    """States of a job's tasks when all have ended."""
    until(lambda: (rows := cluster.slurm.find(job, token)) and all(row.ended for row in rows), f"job {job}", seconds)
    return sorted(row.state for row in cluster.slurm.find(job, token))


@pytest.mark.slow
def test_a_job_succeeds_another_fails_and_an_array_has_a_row_for_each_task(
    slurm_cluster: SlurmCluster, tmp_path: Path
) -> None:
    good = submitted(slurm_cluster, tmp_path, "echo $ROCR_VISIBLE_DEVICES > gpus", "--gres=gpu:mi300x:2", "-pmi300x")
    bad = submitted(slurm_cluster, tmp_path, "exit 9", "-pmi325x")
    many = submitted(slurm_cluster, tmp_path, "exit $((SLURM_ARRAY_TASK_ID==1))", "-pmi355x", "--array=0-2")
    assert ended(slurm_cluster, *good) == ["COMPLETED"]
    assert ended(slurm_cluster, *bad) == ["FAILED"]
    assert ended(slurm_cluster, *many) == ["COMPLETED", "COMPLETED", "FAILED"]
    assert (tmp_path / "gpus").read_text() == "0,1\n"
    assert not slurm_cluster.slurm.scancel(*good)


def test_an_id_without_our_token_is_nobody_of_ours(slurm_cluster: SlurmCluster, tmp_path: Path) -> None:
    job, token = submitted(slurm_cluster, tmp_path, "sleep 60", "-pmi300x")
    assert slurm_cluster.slurm.find(job, "rl-another") == []
    assert not slurm_cluster.slurm.scancel(job, "rl-another")
    assert slurm_cluster.slurm.squeue(["99999"]) == []
    assert slurm_cluster.slurm.scancel(job, token)
    assert ended(slurm_cluster, job, token) == ["CANCELLED"]


def test_what_slurm_refuses_is_said(slurm_cluster: SlurmCluster, tmp_path: Path) -> None:
    with pytest.raises(SlurmError, match="Requested node configuration is not available"):
        submitted(slurm_cluster, tmp_path, "true", "-pmi300x", "--gres=gpu:mi355x:1")
    with pytest.raises(SlurmError, match="invalid partition specified: mi999x"):
        submitted(slurm_cluster, tmp_path, "true", "-pmi999x")


def test_a_controller_that_is_away_is_no_lost_job(slurm_cluster: SlurmCluster, tmp_path: Path) -> None:
    job, token = submitted(slurm_cluster, tmp_path, "true", "-pmi300x")
    ended(slurm_cluster, job, token)
    restart = threading.Thread(target=slurm_cluster.restart_controller, kwargs={"away_s": 1.0})
    restart.start()
    until(lambda: "is DOWN" in slurm_cluster.command("scontrol", "ping", check=False), "the controller to be away")
    assert [row.state for row in slurm_cluster.slurm.find(job, token)] == ["COMPLETED"]
    restart.join()


def test_no_slurm_here(tmp_path: Path) -> None:
    with pytest.raises(SlurmError, match="there is no squeue here"):
        Slurm({"PATH": str(tmp_path)}).squeue(["1"])


def test_a_controller_that_stays_away(tmp_path: Path) -> None:
    program = tmp_path / "squeue"
    program.write_text(
        "#!/bin/sh\necho 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2\nexit 1\n"
    )
    program.chmod(0o755)
    with pytest.raises(SlurmAway, match="connect failure"):
        Slurm({"PATH": f"{tmp_path}:/bin"}, patience_s=0).squeue(["1"])
