"""Attempts at a shard: who may publish, and that nothing is published twice, with threads and processes at it."""

from __future__ import annotations

import json
import multiprocessing
import random
import threading
from pathlib import Path

import pytest

from ci.executors import job, shard
from ci.executors.attempt import Fenced, Shard, Start
from ci.executors.scheduler import State


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
    job.write_result(first.folder, State.DONE, "", 0)
    assert Shard(tmp_path).result() == job.Result(State.DONE, "", 0, "", Shard(tmp_path).result().ended_at)
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
    attempt = Shard(tmp_path).begin(shard._start(environ, 3))
    written = json.loads((attempt.folder / "attempt.json").read_text())
    assert (written["job"], written["restart"], written["mark"]) == ("rl-x_3", 2, "rl-x.12")
