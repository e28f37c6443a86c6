"""Past commits measured: their order, what they share, what cannot be measured, and a run that goes on."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ci import past
from ci.git.repository import Commit, LocalCheckout, Repository
from ci.harness import USAGE, ChildExit, MeasureError, MeasurePlan
from ci.past import NextCommit, PastCommits, PastRun
from ci.records import unmeasured
from ci.records.unmeasured import Unmeasured
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


def of_labels(*labels: str) -> PastCommits:
    commits = [Commit(f"{n:040x}", n, f"commit {n}") for n in range(len(labels))]
    return PastCommits(commits, [{"gemm": one} for one in labels])


def order(of: PastCommits, codes: Mapping[str, str]) -> list[int]:
    """The places in the order in which they are measured; codes: what each label launches."""
    known: dict[str, dict[str, str]] = {}
    found = []
    while after := past.next_commit(of, known):
        found.append(after.place)
        for name in after.operators:
            label = of.labels[after.place][name]
            known.setdefault(name, {})[label] = codes.get(label, label)
    return found


def test_the_largest_gap_is_halved_after_both_ends() -> None:
    assert order(of_labels(*"abcdefghi"), {}) == [8, 0, 4, 6, 2, 7, 5, 3, 1]


def test_gaps_between_equal_code_come_last() -> None:
    codes = dict.fromkeys("abcde", "old") | dict.fromkeys("fghi", "new")
    found = order(of_labels(*"abcdefghi"), codes)
    assert set(found[:5]) == {8, 0, 4, 6, 5}


def test_equal_files_are_measured_once() -> None:
    assert order(of_labels("a", "a", "b", "b", "a"), {}) == [2, 0]


def test_operators_that_a_commit_leaves_alone_are_not_measured_there() -> None:
    commits = [Commit(f"{n:040x}", n, "") for n in range(2)]
    of = PastCommits(commits, [{"gemm": "a", "norm": "x"}, {"gemm": "b", "norm": "x"}])
    assert past.next_commit(of, {"gemm": {"b": "1"}, "norm": {"x": "1"}}) == NextCommit(0, ("gemm",))


def ranging(folder: Path, out: Path) -> PastRun:
    here = Repository(folder)
    of = past.of_range(here, "..HEAD", None, None, ())
    return PastRun(here, of, MeasurePlan(trials=1), out, Console(quiet=True))


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
    elsewhere = ranging(tmp_path / "repo", tmp_path / "elsewhere.jsonl")
    elsewhere.take(out)  # with the reasons: who records measured nothing
    for one in (again, elsewhere):
        assert {(row.commit, name): (row.same_as, row.why) for row in one.unmeasured() for name in row.kernels} == {
            (hashes[1], "gemm"): ("", "older contract"),
            (hashes[3], "gemm"): ("", "older contract"),
            (hashes[5], "gemm"): (hashes[0], ""),
            (hashes[5], "norm"): (hashes[4], ""),
        }


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
    assert run.unmeasured() == []


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
        "T, 0 of 3 commits", "T, 1 of 3 commits, about T left", "T, 2 of 3 commits, about T left"
    ]  # fmt: skip


def test_a_machine_that_can_measure_nothing_ends_the_run(tmp_path: Path) -> None:
    made(tmp_path / "repo", [{"gemm": n} for n in range(5)])
    run = ranging(tmp_path / "repo", tmp_path / "trials.jsonl")
    with pytest.raises(MeasureError, match="nothing can be measured here: no driver"):
        run.run(lambda *_: ChildExit(USAGE, ("no driver",)))


def test_a_recording_becomes_records_and_marks_that_are_no_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashes = made(tmp_path / "repo", [{"gemm": 0}, {"gemm": 1}, {"gemm": 1, "norm": 0}])
    monkeypatch.chdir(tmp_path / "repo")
    recording = tmp_path / "recording.jsonl"
    recording.write_text("".join(json.dumps(line(hashes[n], code=str(n))) + "\n" for n in (0, 1)))
    words = ("run", "..HEAD", "--trials", 1, "--replay", recording, "--results", tmp_path / "results")
    done = ridgeline(*words, "--kernel", "gemm")
    assert done.exit_code == 0, done.output
    assert "of 3 commits 2 are measured, 1 have the same files" in said(done)
    (folder,) = (one for one in (tmp_path / "results").iterdir() if (one / unmeasured.NAME).exists())
    assert len(list(folder.glob("*.notes.jsonl*"))) == 2
    assert [(one.commit, one.same_as) for one in unmeasured.read(folder / unmeasured.NAME)] == [(hashes[2], hashes[1])]


def test_what_failed_is_recorded_with_the_trials_beside_it_until_it_is_measured(tmp_path: Path) -> None:
    first, second = "1" * 40, "2" * 40
    file, results = tmp_path / "trials.jsonl", tmp_path / "results"
    write(file, line(first))
    failed = Unmeasured(second, 2, ("gemm", "norm"), "", "older contract")
    unmeasured.write(tmp_path / "trials.failed.jsonl", [failed])
    shared = Unmeasured(second, 2, ("softmax",), first)
    unmeasured.write(results / str(MACHINE["name"]) / unmeasured.NAME, [shared])

    def told() -> list[Unmeasured]:
        return unmeasured.read(results / str(MACHINE["name"]) / unmeasured.NAME)

    assert ridgeline("records", "add", file, "--results", results, "--dry-run").exit_code == 0
    assert told() == [shared]
    assert ridgeline("records", "add", file, "--results", results).exit_code == 0
    assert told() == [failed, shared]
    write(tmp_path / "later.jsonl", line(second))
    assert ridgeline("records", "add", tmp_path / "later.jsonl", "--results", results).exit_code == 0
    assert told() == [Unmeasured(second, 2, ("norm",), "", "older contract"), shared]


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
