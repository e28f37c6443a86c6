"""Parsers on what three versions of Slurm printed about the same jobs."""

from __future__ import annotations

import secrets
import threading
from pathlib import Path

import pytest

from ci.pools.file import Pool, Site
from ci.slurm import client
from ci.slurm.client import Slurm, SlurmAway, batch_script
from tests.kit import until

RECORDINGS = Path(__file__).parents[2] / "recordings" / "slurm"
VERSIONS = ("22.05", "24.11", "26.05")


def printed(version, name):
    return (RECORDINGS / version / f"{name}.txt").read_text()


@pytest.mark.parametrize("version", VERSIONS)
def test_the_queue(version):
    content = printed(version, "squeue_r")
    rows = {row.id: row for row in client.queue_rows(content)}
    assert len(rows) == len(content.splitlines()), "every line is a row"
    states = {
        name: next(row.state for row in rows.values() if row.name == name)
        for name in ("ok", "bad", "sig", "can", "run")
    }
    assert states == {"ok": "COMPLETED", "bad": "FAILED", "sig": "FAILED", "can": "CANCELLED", "run": "RUNNING"}
    assert (rows["4_5"].is_waiting, rows["4_5"].has_ended, rows["4_5"].reason, rows["4_5"].nodes) == (
        True,
        False,
        "JobArrayTaskLimit",
        "",
    )
    assert rows["1"].comment == "perfci req=1"
    assert rows["2"].comment == ""


def test_a_name_and_a_comment_of_somebody_else_may_hold_anything():
    line = "7|7|a|RUNNING|b|PENDING|Priority|p|n|0:00|10:00|N/A|N/A|x|y|gres/gpu:1"
    (row,) = client.queue_rows(line)
    assert (row.id, row.state, row.comment) == ("7", "PENDING", "x|y")
    assert client.queue_rows("slurm_load_jobs error: Invalid job id specified") == []


@pytest.mark.parametrize(
    ("said", "wanted"),
    [("17\n", "17"), ("17;alpha\n", "17"), ("the budget is nearly spent\n17\n", "17"), ("", ""), ("Submitted 17", "")],
)
def test_the_id_that_sbatch_prints(said, wanted):
    assert client.submitted_id(said) == wanted


# The text of batch scripts.


HERE = {"name": "rl-x", "time": "60", "chdir": "/home/a user/clone#1", "output": "/jobs/my folder/output-%a.txt"}


def test_all_options(golden):
    given = {"site": "hpc", "partition": "mi300x", "gres": "mi300x", "constraint": "gfx942&nps1", "exclusive": True}
    pool = Pool("p", "MI300X", (8,), **given, sbatch=("--reservation=night run",))  # type: ignore[arg-type]
    site = Site("hpc", account="amd-frameworks", sbatch=("--qos=benchmark",))
    made = batch_script(site, pool, 8, "#!/bin/bash\necho hello\n", **HERE, array="0-2,5", requeue=False)
    golden("slurm/all_options.sh", made)


def test_nothing_of_the_submitter_enters_and_output_is_kept():
    pool = Pool("p", "none", (0,), site="hpc", partition="cpu")
    lines = batch_script(Site("hpc"), pool, 0, "true\n", **HERE).splitlines()
    assert {f"#SBATCH --{one}" for one in ("export=NONE", "open-mode=append", "requeue", "nodes=1")} <= set(lines)
    assert not any(word in line for line in lines for word in ("--gres", "--array", "--account", "--dependency"))


# Our client against a real Slurm.


def submit(cluster, folder, text, *options):
    """The name of a job that runs a line of bash."""
    script, name = folder / "job.sh", f"rl-test-{secrets.token_hex(4)}"
    script.write_text(f"#!/bin/bash\n#SBATCH --job-name={name}\n{text}\n")
    out = f"--output={folder}/out-%a"
    cluster.slurm.sbatch(script, name, [out, "--export=NONE", f"--chdir={folder}", *options])
    return name


def ended(cluster, name):
    """States of a job's tasks when all have ended."""
    until(lambda: (rows := cluster.slurm.rows(name)) and all(row.has_ended for row in rows), f"job {name}", 0.05)
    return sorted(row.state for row in cluster.slurm.rows(name))


def test_a_job_is_found_and_cancelled_by_its_name(slurm_cluster, tmp_path):
    other = submit(slurm_cluster, tmp_path, "sleep 60", "-pmi325x")
    name = submit(slurm_cluster, tmp_path, "sleep 60", "-pmi300x", "--array=0-1")
    assert [row.id.partition("_")[2] for row in slurm_cluster.slurm.rows(name)] == ["0", "1"]
    assert {row.name for row in slurm_cluster.slurm.mine("rl-test-.*")} >= {name, other}
    assert slurm_cluster.slurm.rows("rl-another") == []
    slurm_cluster.slurm.scancel("rl-another")
    slurm_cluster.slurm.scancel(name)
    assert set(ended(slurm_cluster, name)) == {"CANCELLED"}
    assert not any(row.has_ended for row in slurm_cluster.slurm.rows(other))
    slurm_cluster.slurm.scancel(other)


def test_a_controller_that_is_away_is_no_lost_job(slurm_cluster, tmp_path):
    name = submit(slurm_cluster, tmp_path, "true", "-pmi300x")
    ended(slurm_cluster, name)
    restart = threading.Thread(target=slurm_cluster.restart_controller, kwargs={"away_s": 1.0})
    restart.start()
    until(lambda: "is DOWN" in slurm_cluster.command("scontrol", "ping", check=False), "the controller to be away")
    assert [row.state for row in slurm_cluster.slurm.rows(name)] == ["COMPLETED"]
    restart.join()


def test_a_controller_that_stays_away(tmp_path):
    program = tmp_path / "squeue"
    program.write_text(
        "#!/bin/sh\necho 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2\nexit 1\n"
    )
    program.chmod(0o755)
    with pytest.raises(SlurmAway, match="connect failure"):
        Slurm({"PATH": f"{tmp_path}:/bin"}, patience_s=0).rows("x")
