"""A range of commits measured: their order, what they share, what cannot be measured, and a run that goes on."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ci.commands.run_range import CommitRange, RangeRun, commits_of, halving_order
from ci.git.repository import Commit, LocalCheckout, Repository
from ci.harness import USAGE, ChildExit, MeasureError, MeasurePlan
from tests.ci.made_trials import MACHINE, declaration, ok, tree, trial, write
from tests.kit import commit, repository, ridgeline, said

SOURCE = 'from kernels.spec import Kernel\n{name} = Kernel("{name}")\nSTEP = {step}\n'


def made(folder: Path, steps: Sequence[Mapping[str, Any]]) -> list[str]:
    """A repository with a commit for each entry, {operator: what its file says}; their hashes."""
    repository(folder, README="")
    files = [{f"kernels/{name}.py": SOURCE.format(name=name, step=step) for name, step in one.items()} for one in steps]
    return [commit(folder, f"commit {n}", **one) for n, one in enumerate(files)]


def line(hash_: str, speed: float = 1.0, number: int = 0, name: str = "gemm", code: str = "") -> dict[str, Any]:
    """A trial of a commit; code: what it launched."""
    own = ok([1e-3 / speed] * 8) | {"code_hash": code or None}
    arms = {"m16": {"head/triton": own, "head/blas": ok([2e-3] * 8)}}

    return trial(arms, number, hash_[:16], kernel=name, trees={"head": tree(hash_, declared=declaration(name))})


def of_labels(*labels: str) -> CommitRange:
    commits = [Commit(f"{n:040x}", n, f"commit {n}") for n in range(len(labels))]
    return CommitRange(commits, [{"gemm": one} for one in labels])


def test_the_largest_gap_is_halved_after_both_ends() -> None:
    order = of_labels(*"abcdefghi").order()
    assert order[:3] == [8, 0, 4]
    assert set(order[3:5]) == {2, 6}
    assert sorted(order) == list(range(9))
    assert (halving_order(0), halving_order(1), halving_order(2)) == ([], [0], [1, 0])


def test_equal_files_are_measured_once() -> None:
    assert of_labels("a", "a", "b", "b", "a").order() == [2, 0]


def ranging(folder: Path, out: Path) -> RangeRun:
    here = Repository(folder)
    of = commits_of(here, "..HEAD", None, ())
    return RangeRun(here, of, MeasurePlan(trials=1), out, Console(quiet=True))


def test_a_run_that_was_killed_goes_on_and_says_what_is_not_measured(tmp_path: Path) -> None:
    hashes = made(
        tmp_path / "repo", [{"gemm": 0}, {"gemm": 1}, {"gemm": 2}, {"gemm": 1}, {"gemm": 3, "norm": 0}, {"gemm": 0}]
    )
    calls: list[str] = []

    def measuring(checkout: LocalCheckout, plan: MeasurePlan, left_s: float | None) -> ChildExit:
        if len(calls) == 1:
            raise KeyboardInterrupt
        calls.append(checkout.commit.hash)
        assert "STEP" in (checkout.path / "kernels/gemm.py").read_text()
        if checkout.commit.hash == hashes[1]:
            return ChildExit(USAGE, ("Error: older contract",))
        with out.open("a") as stream:
            stream.writelines(json.dumps(line(checkout.commit.hash, name=name)) + "\n" for name in plan.kernels)
        return ChildExit(0)

    out = tmp_path / "trials.jsonl"
    with pytest.raises(KeyboardInterrupt):
        ranging(tmp_path / "repo", out).run(measuring)
    (first,) = calls
    with out.open("a") as stream:
        stream.write('{"format": "ridgel\n')  # what a kill leaves, ended by the next writer
    calls.append("")
    again = ranging(tmp_path / "repo", out)
    again.run(measuring)
    assert first not in calls[2:]
    assert set(calls) == {first, "", *(hashes[n] for n in (0, 1, 2, 4))}
    assert list(again.failed.values()) == ["older contract"]
    assert "of 6 commits 3 are measured, 1 have the same files" in again.summary()
    assert again.summary().endswith("2 cannot be measured")


def test_operators_that_a_commit_leaves_alone_are_not_measured_there(tmp_path: Path) -> None:
    made(tmp_path / "repo", [{"gemm": 0, "norm": 0}, {"gemm": 1, "norm": 0}])
    assert list(ranging(tmp_path / "repo", tmp_path / "t.jsonl").left()) == [(1, ("gemm", "norm")), (0, ("gemm",))]


def test_what_is_recorded_of_this_machine_and_environment_is_not_measured_again(tmp_path: Path) -> None:
    """Which machine it is says the first trial; another machine's record, or one without all cases, counts nothing."""
    hashes = made(tmp_path / "repo", [{"gemm": n} for n in range(5)])
    whole = {case: {"head/triton": ok(), "head/blas": ok()} for case in ("m16", "m64")}

    def of(number: int, **more: Any) -> dict[str, Any]:
        cases = more.pop("cases", whole)
        own = tree(hashes[number], declared=declaration("gemm"), date_ms=1_790_000_000_000 + number)
        return trial(cases, 0, hashes[number][:16], trees={"head": own}, **more)

    records = [of(1), of(2, machine={**MACHINE, "name": "h200x2-5e6f7a8b"}), of(3, cases={"m16": whole["m16"]})]
    assert ridgeline("records", "add", write(tmp_path / "r.jsonl", *records), "--results", tmp_path).exit_code == 0
    out, calls = tmp_path / "trials.jsonl", list[str]()

    def measuring(checkout: LocalCheckout, plan: MeasurePlan, left_s: float | None) -> ChildExit:
        calls.append(checkout.commit.hash)
        with out.open("a") as stream:
            stream.write(json.dumps(of(hashes.index(checkout.commit.hash))) + "\n")
        return ChildExit(0)

    run = ranging(tmp_path / "repo", out)
    run.results = tmp_path
    run.run(measuring)
    assert calls[:2] == [hashes[4], hashes[0]]
    assert set(calls) == {hashes[n] for n in (0, 2, 3, 4)}


def test_a_run_says_how_many_commits_are_left_and_for_how_long(tmp_path: Path) -> None:
    made(tmp_path / "repo", [{"gemm": n} for n in range(4)])
    out = tmp_path / "trials.jsonl"
    run = ranging(tmp_path / "repo", out)
    run.console, run.steps = Console(record=True, width=200), 3

    def measuring(checkout: LocalCheckout, plan: MeasurePlan, left_s: float | None) -> ChildExit:
        with out.open("a") as stream:
            stream.write(json.dumps(line(checkout.commit.hash, code="one")) + "\n")
        return ChildExit(0)

    run.run(measuring)
    lines = run.console.export_text().splitlines()
    assert [re.sub(r"\d+ s\b", "T", one).partition("; now")[0] for one in lines] == [
        "T, 3 commits to go", "T, 2 commits to go, about T left", "T, 1 commits to go, about T left"
    ]  # fmt: skip


def test_a_machine_that_can_measure_nothing_ends_the_run(tmp_path: Path) -> None:
    made(tmp_path / "repo", [{"gemm": n} for n in range(5)])
    run = ranging(tmp_path / "repo", tmp_path / "trials.jsonl")
    with pytest.raises(MeasureError, match="nothing can be measured here: no driver"):
        run.run(lambda *_: ChildExit(USAGE, ("no driver",)))


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["HEAD"], "is not a range"),
        (["..HEAD", "--kernel", "gone"], "declares 'gone'; declared are: gemm"),
        (["--minutes", "3"], "--minutes is for a range of commits"),
        (["..HEAD", "--resume"], "are for one commit"),
    ],
)
def test_what_makes_no_sense_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], why: str
) -> None:
    made(tmp_path / "repo", [{"gemm": 0}])
    monkeypatch.chdir(tmp_path / "repo")
    done = ridgeline("run", *words)
    assert done.exit_code == 3
    assert why in said(done)
