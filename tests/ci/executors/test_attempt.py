"""Attempts at a shard: who may publish, and that nothing is published twice, with threads and processes at it."""

from __future__ import annotations

import dataclasses
import gzip
import json
import multiprocessing
import random
import threading
from pathlib import Path

import pytest

from ci.executors import gather, job, shard
from ci.executors.cluster import judged
from ci.executors.job import JobSpec, Result, Sharding, State, stored
from ci.executors.shard import Fenced, Shard, Start
from ci.slurm import QueueRow


def start(restart: int = 0, host: str = "a", name: str = "7_0") -> Start:
    return Start(name, restart, host, "2026-11-22T14:00:00+00:00")


def test_a_new_attempt_fences_the_older_one(tmp_path: Path) -> None:
    first = Shard(tmp_path).begin(start())
    assert first.publish(0, b'{"n":0}')
    second = Shard(tmp_path).begin(start(1))
    with pytest.raises(Fenced, match="attempt 1 has taken over from attempt 0"):
        first.publish(1, b'{"n":"old"}')
    assert second.publish(1, b'{"n":1}')
    assert Shard(tmp_path).published() == [b'{"n":0}', b'{"n":1}']


def test_an_older_copy_that_comes_late_does_not_begin(tmp_path: Path) -> None:
    Shard(tmp_path).begin(start(restart=2))
    with pytest.raises(Fenced, match="restart 2 of 7_0 has begun on a"):
        Shard(tmp_path).begin(start(restart=1))
    assert Shard(tmp_path).begin(start(restart=0, name="9_0")).number == 1, "submitted again: another job"
    assert not list(tmp_path.glob(".attempt-*"))


def test_a_line_has_one_publisher_even_if_neither_sees_the_other(tmp_path: Path) -> None:
    """What a late view of a network file system looks like: the older attempt passes its check."""
    first = Shard(tmp_path).begin(start())
    second = Shard(tmp_path).begin(start(1))
    object.__setattr__(first, "check", lambda: None)
    assert second.publish(0, b"new")
    assert not first.publish(0, b"old")
    assert Shard(tmp_path).published() == [b"new"]


def test_numbers_are_given_once(tmp_path: Path) -> None:
    """Twenty at once: every attempt has a number of its own."""
    found: list[int] = []

    def begin() -> None:
        found.append(Shard(tmp_path).begin(start()).number)

    threads = [threading.Thread(target=begin) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(20))


def race(folder: str, restart: int) -> None:
    """One copy of a shard of 30 lines, which another copy may fence at any moment."""
    attempt = Shard(Path(folder)).begin(start(restart))
    try:
        for index in range(len(attempt.shard.published()), 30):
            attempt.publish(index, json.dumps({"n": index, "by": attempt.number}).encode())
    except Fenced:
        pass


def test_copies_that_race_publish_every_line_once(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("fork")
    copies = [spawn.Process(target=race, args=(str(tmp_path), 0)) for _ in range(4)]
    for copy in copies:
        copy.start()
    for copy in copies:
        copy.join()
    race(str(tmp_path), 1)
    assert [json.loads(line)["n"] for line in Shard(tmp_path).published()] == list(range(30))


def test_the_result_is_that_of_the_newest_attempt(tmp_path: Path) -> None:
    first = Shard(tmp_path).begin(start())
    DONE.write(first.folder)
    found = Shard(tmp_path).result()
    assert found is not None
    assert dataclasses.replace(found, ended_at="") == DONE
    Shard(tmp_path).begin(start(1))
    assert Shard(tmp_path).result() is None


# ---- the publisher ----


def line(number: int, machine: str = "m") -> bytes:
    return json.dumps({"n": number, "machine": {"name": machine}}).encode()


def test_only_whole_lines_are_published_and_a_new_attempt_goes_on(tmp_path: Path) -> None:
    first = Shard(tmp_path).begin(start())
    out = first.folder / "out.jsonl"
    publisher = shard.Publisher(first, out)
    publisher.look()
    out.write_bytes(line(0) + b"\n" + line(1)[:5])
    publisher.look()
    publisher.look()
    assert first.shard.published() == [line(0)]
    second = Shard(tmp_path).begin(start(1))
    again = shard.Publisher(second, second.folder / "out.jsonl")
    assert (second.folder / "out.jsonl").read_bytes() == line(0) + b"\n"
    with (second.folder / "out.jsonl").open("ab") as file:
        file.write(line(1) + b"\n" + line(2) + b"\n")
    again.look()
    assert first.shard.published() == [line(0), line(1), line(2)]


def test_a_line_of_another_machine_is_not_published(tmp_path: Path) -> None:
    first = Shard(tmp_path).begin(start())
    (first.folder / "out.jsonl").write_bytes(line(0, "MI300X") + b"\n")
    shard.Publisher(first, first.folder / "out.jsonl").look()
    second = Shard(tmp_path).begin(start(1))
    publisher = shard.Publisher(second, second.folder / "out.jsonl")
    with (second.folder / "out.jsonl").open("ab") as file:
        file.write(line(1, "MI325X") + b"\n")
    with pytest.raises(shard.AnotherMachine, match="measured on MI325X, and the shard's first trials are of MI300X"):
        publisher.look()
    assert first.shard.published() == [line(0, "MI300X")]


def test_any_way_of_writing_publishes_the_same_lines(tmp_path: Path) -> None:
    """Whatever the moments of looking are: against the file itself, read when it is whole."""
    whole = b"".join(line(number) + b"\n" for number in range(20))
    for seed in range(5):
        draw = random.Random(seed)
        attempt = Shard(tmp_path / str(seed)).begin(start())
        out = attempt.folder / "out.jsonl"
        publisher, written = shard.Publisher(attempt, out), 0
        while written < len(whole):
            step = draw.randrange(1, 60)
            with out.open("ab") as file:
                file.write(whole[written : written + step])
            written += step
            publisher.look()
        assert attempt.shard.published() == whole.splitlines()


def test_the_mark_of_a_start_is_written_by_the_attempt_it_comes_to(tmp_path: Path) -> None:
    environ = {"SLURM_JOB_NAME": "rl-x", "SLURM_RESTART_COUNT": "2", "RIDGELINE_START": "rl-x.12"}
    attempt = Shard(tmp_path).begin(Start.of(environ, 3))
    written = json.loads((attempt.folder / "attempt.json").read_text())
    assert (written["job"], written["restart"], written["mark"]) == ("rl-x_3", 2, "rl-x.12")


# How a job on a cluster ended, by its result files and its rows in the queue; and the file of all lines.


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
        dataclasses.replace(result, started_at="2026-11-22T14:00:00", where="n1").write(attempt.folder)
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
    result = Result.read(folder)
    assert result is not None
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
