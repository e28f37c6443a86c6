"""Parsers on what three versions of Slurm printed about the same jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from ci import slurm

RECORDINGS = Path(__file__).parents[2] / "recordings" / "slurm"
VERSIONS = ("22.05", "24.11", "26.05")


def printed(version: str, name: str) -> str:
    return (RECORDINGS / version / f"{name}.txt").read_text()


@pytest.mark.parametrize("version", VERSIONS)
def test_the_queue(version: str) -> None:
    content = printed(version, "squeue_r")
    rows = {row.id: row for row in slurm.queue_rows(content)}
    assert len(rows) == len(content.splitlines()), "every line is a row"
    states = {
        name: next(row.state for row in rows.values() if row.name == name)
        for name in ("ok", "bad", "sig", "can", "run")
    }
    assert states == {"ok": "COMPLETED", "bad": "FAILED", "sig": "FAILED", "can": "CANCELLED", "run": "RUNNING"}
    assert (rows["4_0"].array_id, rows["4_0"].raw_id != "4", rows["4_5"].raw_id) == ("4", True, "4")
    assert (rows["4_5"].waiting, rows["4_5"].ended, rows["4_5"].reason, rows["4_5"].nodes) == (
        True,
        False,
        "JobArrayTaskLimit",
        "",
    )
    assert rows["1"].comment == "perfci req=1"
    assert rows["2"].comment == ""
    assert rows["1"].is_ours("ok")
    assert not rows["2"].is_ours("")


@pytest.mark.parametrize("version", VERSIONS)
def test_tasks_that_wait_together(version: str) -> None:
    together = [row for row in slurm.queue_rows(printed(version, "squeue")) if "[" in row.id]
    assert [row.array_id for row in together] == ["4"]


def test_a_name_and_a_comment_of_somebody_else_may_hold_anything() -> None:
    line = "7|7|a|RUNNING|b|PENDING|Priority|p|n|0:00|10:00|N/A|N/A|x|y|gres/gpu:1"
    (row,) = slurm.queue_rows(line)
    assert (row.id, row.state, row.comment) == ("7", "PENDING", "x|y")
    assert slurm.queue_rows("slurm_load_jobs error: Invalid job id specified") == []


@pytest.mark.parametrize(
    ("said", "wanted"),
    [("17\n", "17"), ("17;alpha\n", "17"), ("the budget is nearly spent\n17\n", "17"), ("", ""), ("Submitted 17", "")],
)
def test_the_id_that_sbatch_prints(said: str, wanted: str) -> None:
    assert slurm.submitted_id(said) == wanted
