"""The referee of a session: what it knows, what it forgets, and what becomes of it when its process ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.coordinator.referee import MOST_KEPT, REFEREE_VARIABLE, Referee, apart


class StandInPool:
    """Remembers what it is asked; `living` says whether it runs."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.living = True

    def lives(self) -> bool:
        return self.living

    def ask(self, step: str, limit_s: float, op: str, **fields: Any) -> list[Any]:
        self.asked.append((op, fields.get("key", fields.get("keys"))))
        return [{"norm": 0.0}]

    def kill(self) -> None:
        self.living = False


@pytest.fixture
def started(tmp_path: Path) -> tuple[Referee, list[StandInPool]]:
    pools: list[StandInPool] = []

    def start() -> StandInPool:
        pools.append(StandInPool())
        return pools[-1]

    return Referee(tmp_path, start), pools


def notes(size: int) -> list[dict[str, Any]]:
    return [{"tensors": [{"bytes": size}]}]


def test_it_starts_when_it_is_needed_and_remembers(started):
    referee, pools = started
    assert not referee.knows(["a"])
    assert pools == []
    referee.expect("a", notes(10), {})
    assert referee.knows(["a"])
    assert not referee.knows(["a", "b"])
    referee.compare("a", notes(10), [0])
    assert [one for pool in pools for one in pool.asked] == [("expect", "a"), ("compare", "a")]
    referee.close()
    assert not pools[0].living


def test_one_that_ended_knows_nothing_and_is_started_again(started):
    referee, pools = started
    referee.expect("a", notes(10), {})
    pools[0].living = False
    assert not referee.knows(["a"])
    referee.expect("a", notes(10), {})
    assert len(pools) == 2
    assert referee.knows(["a"])


def test_the_oldest_is_forgotten_when_there_is_too_much(started):
    referee, pools = started
    for name in "abc":
        referee.expect(name, notes(MOST_KEPT // 2), {})
    assert not referee.knows(["a"])
    assert referee.knows(["b", "c"])
    referee.expect("huge", notes(2 * MOST_KEPT), {})
    assert referee.knows(["huge"])
    assert not referee.knows(["b"])
    assert [op for op, _ in pools[0].asked].count("forget") == 3


def test_its_files_have_a_place_even_if_a_kernel_removed_the_folder(started, tmp_path):
    referee, _ = started
    (tmp_path / "shm").mkdir()
    assert Path(referee.file()).parent == tmp_path / "shm"
    (tmp_path / "shm").rmdir()
    tmp_path.rmdir()
    assert Path(referee.file()).parent.is_dir()
    assert referee.file() != referee.file()


@pytest.mark.parametrize(
    ("variable", "gpu", "expected"),
    [("", False, True), ("", True, False), ("apart", True, True), ("own", False, False)],
)
def test_where_outputs_are_compared(monkeypatch, variable, gpu, expected):
    monkeypatch.delenv(REFEREE_VARIABLE, raising=False)
    if variable:
        monkeypatch.setenv(REFEREE_VARIABLE, variable)
    assert apart(gpu) is expected
