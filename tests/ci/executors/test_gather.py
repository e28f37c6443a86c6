"""How a job on a cluster ended, by its result files and its rows in the queue; and the file of all lines."""

from __future__ import annotations

import dataclasses
import gzip
import json
from pathlib import Path

import pytest

from ci.executors import gather, job
from ci.executors.attempt import Shard, Start
from ci.executors.cluster import judged
from ci.executors.job import Result
from ci.executors.scheduler import JobSpec, Sharding, State, stored
from ci.slurm import QueueRow

DONE, BAD = Result(State.DONE, "", 0), Result(State.FAILED, "exit code 1", 1)
HERE = Path(".ridgeline/jobs/jobs/7")
SLOW = Result(State.TIMEOUT, "after 9 s", -15)


def row(state: str, task: int = 0, reason: str = "Priority") -> QueueRow:
    return QueueRow(f"7_{task}", "7", "rl-x", state, reason, "mi300x", "n1" if state == "RUNNING" else "", "rl-x")


@pytest.mark.parametrize(
    ("results", "cancelled", "state", "code", "why"),
    [
        ([DONE, DONE], False, State.DONE, 0, ""),
        ([DONE, BAD], False, State.FAILED, 1, "shard 1 failed: exit code 1"),
        ([BAD], False, State.FAILED, 1, "failed: exit code 1"),
        ([SLOW, BAD], False, State.FAILED, -15, "shard 0 timeout: after 9 s; shard 1 failed: exit code 1"),
        ([DONE, None], False, State.LOST, 3, "shard 1 lost: it left no result"),
        ([BAD, None], False, State.LOST, 3, "shard 0 failed: exit code 1; shard 1 lost: it left no result"),
        ([DONE, None], True, State.CANCELLED, 3, "shard 1 cancelled: it left no result"),
        ([None] * 7, False, State.LOST, 3, "; and 2 more shards"),
    ],
)
def test_the_worst_shard_is_how_the_job_ended(
    results: list[Result | None], cancelled: bool, state: State, code: int | None, why: str
) -> None:
    found = gather.ending(dict(enumerate(results)), cancelled, Path("/shared/my jobs/jobs/7"))
    assert (found.state, found.exit_code) == (state, code)
    assert found.why.endswith(why)
    assert ("`ridgeline jobs submit --queue '/shared/my jobs' --resume 7` does" in found.why) == (state is State.LOST)


@pytest.mark.parametrize("results", [[None], [DONE, None]])
def test_a_shard_that_will_never_start_is_told(results: list[Result | None]) -> None:
    *ended, last = (row("COMPLETED" if one else "PENDING", task) for task, one in enumerate(results))
    patient, stuck = last, dataclasses.replace(last, reason="PartitionTimeLimit")
    found = dict(enumerate(results))
    assert "PartitionTimeLimit, which no waiting mends" in judged(found, [*ended, stuck], [], False, HERE).why
    assert "no waiting" not in judged(found, [*ended, patient], [], False, HERE).why


@pytest.mark.parametrize(
    ("results", "rows", "last", "state"),
    [
        ([None, None], ["PENDING", "PENDING"], ["PENDING"], State.PENDING),
        ([None, None], ["RUNNING", "PENDING"], ["PENDING"], State.RUNNING),
        ([DONE, None], ["COMPLETED", "PENDING"], ["PENDING"], State.RUNNING),
        ([DONE, BAD], ["COMPLETED", "REQUEUED"], ["PENDING"], State.RUNNING),
        ([DONE, DONE], ["COMPLETED", "COMPLETED"], ["RUNNING"], State.RUNNING),
        ([DONE, DONE], ["COMPLETED", "COMPLETED"], ["NODE_FAIL"], State.LOST),
        ([DONE, BAD], [], [], State.FAILED),
        ([None, None], [], [], State.LOST),
    ],
)
def test_where_a_job_is(results: list[Result | None], rows: list[str], last: list[str], state: State) -> None:
    shards = [row(one, task) for task, one in enumerate(rows)]
    found = judged(dict(enumerate(results)), shards, [row(one) for one in last], False, HERE)
    assert found.state is state
    assert found.exit_code == (3 if state is State.LOST else 1 if state is State.FAILED else None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A job of two shards with two lines each, of which the second failed."""
    made = tmp_path / "jobs/some-job"
    made.mkdir(parents=True)
    for number, result in enumerate((DONE, BAD)):
        attempt = Shard(made / f"shards/{number}").begin(Start(f"7_{number}", 0, "n1", ""))
        for index in range(2):
            attempt.publish(index, json.dumps({"shard": number, "n": index}).encode())
        job.write_result(attempt.folder, result.state, result.why, result.exit_code, "2026-11-22T14:00:00", "n1")
    return made


def write(folder: Path, **sharding: object) -> JobSpec:
    spec = {"name": "x", "cwd": str(folder), "sharding": {"shards": 2, "publishes": True, **sharding}}
    job.write_json(folder / "job.json", {**spec, "executor": "slurm", "id": folder.name})
    return stored(folder)


def test_a_shard_that_was_requeued_is_told_in_the_end(folder: Path) -> None:
    write(folder)
    (folder / "shards/1/not_begun").write_text("on n2: no GPU\non n3: no GPU\n")
    said = "shard 1 failed: exit code 1; shard 1 did not begin and was requeued (2 of 3 times): on n3: no GPU"
    assert gather.gather(folder).why == said
    assert json.loads((folder / "result.json").read_text())["why"] == said


@pytest.mark.parametrize("name", ["all.jsonl", "all.jsonl.gz"])
def test_lines_are_put_together_once_however_often(folder: Path, name: str) -> None:
    write(folder, out=name)
    (folder / name).write_bytes(b"" if name.endswith("l") else gzip.compress(b'{"mine": 1}\n'))
    for _ in range(2):
        assert gather.gather(folder).state is State.FAILED
    content = (folder / name).read_bytes()
    lines = (gzip.decompress(content) if name.endswith("gz") else content).splitlines()
    assert lines[-4:] == (folder / "trials.jsonl").read_bytes().splitlines()
    assert [json.loads(line)["shard"] for line in lines[-4:]] == [0, 0, 1, 1]
    assert len(lines) == 5 if name.endswith("gz") else 4
    result = Result.of(json.loads((folder / "result.json").read_text()))
    assert (result.why, result.where, result.started_at) == ("shard 1 failed: exit code 1", "n1", "2026-11-22T14:00:00")


@pytest.mark.parametrize(
    ("finish", "state", "code"),
    [
        (("-c", "pass"), State.FAILED, 1),
        (("-c", "raise SystemExit(2)", "--replay"), State.FAILED, 2),
        (("-c", "pass", "--replay"), State.DONE, 0),
    ],
)
def test_the_command_that_comes_last(folder: Path, finish: tuple[str, ...], state: State, code: int) -> None:
    """One that judges replaces the verdicts of the shards; one that records does not."""
    write(folder, finish=finish)
    assert (gather.gather(folder).state, gather.gather(folder).exit_code) == (state, code)


def test_what_a_shard_adds_to_its_command() -> None:
    numbered = Sharding(8, publishes=True, resumes=True, first_trial=2, trials=3)
    assert numbered.arguments(4, Path("/o")) == ["--out", "/o", "--resume", "--first-trial", "14"]
    assert Sharding(2, publishes=True).arguments(1, Path("/o")) == ["--out", "/o"]
    assert Sharding().arguments(0, Path("/o")) == []
