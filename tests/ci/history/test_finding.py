"""What a history must not say: noise of a machine, and anything that comparing in pairs does not bear out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ci.history import reading
from ci.history.analysis import History, analyse
from ci.history.finding import PairedStep
from ci.history.reading import PairedVerdicts
from ci.history.types import EventKind
from ci.records import store
from tests.ci import made_trials as trials
from tests.ci.history.made import Line, commit, facts, frame, noisy, pair
from tests.kit import Repo

CPU = "epyc-cpu2-00000001"
SPREAD, SESSION = 0.25, 0.1
"""Standard deviations (log) of a process and of a session on two shared cores; 0.1 to 0.3 were seen, 2026-11."""


def checks(seed: int, commits: int, baseline: bool = True) -> History:
    """As if each of so many commits was checked against the one before: three processes of each side, equal kernels."""
    random, lines = np.random.default_rng(seed), []
    session = SESSION * random.standard_normal(commits + 1)

    def seconds() -> np.ndarray:
        logs = SPREAD * random.standard_t(4, (commits + 1, 2, 3)) / np.sqrt(2) + session[:, None, None]
        return 1e-3 * np.exp(np.median(np.concatenate([logs[:-1, 1], logs[1:, 0]], axis=1), axis=1))

    for number in range(18):
        name = {"kernel": f"op{number // 3}", "case": f"c{number % 3}", "machine": CPU, "more": {"kind": "cpu"}}
        lines.append(Line(seconds=seconds(), **name))
        if baseline:
            lines.append(Line(seconds=seconds(), backend="torch", baseline=True, **name))
    return analyse(frame(lines), commits=facts(commits))


@pytest.mark.parametrize("baseline", [True, False])
@pytest.mark.parametrize("commits", [2, 3, 5, 8, 12, 20])
def test_equal_kernels_on_a_noisy_cpu_open_no_event(commits: int, baseline: bool) -> None:
    assert [checks(seed, commits, baseline).events for seed in range(5)] == [()] * 5


@pytest.mark.parametrize("commits", [*range(2, 22)])
def test_twenty_recorded_checks_of_equal_kernels_open_no_event(commits: int) -> None:
    """Seconds of 20 runs of `ridgeline check` on commits that change comments, on two cores that others used too."""
    table = pd.read_csv(Path(__file__).parents[2] / "recordings" / "cpu_checks.csv")
    lines = [
        Line(row.kernel, row.case, row[5 : 5 + commits], row.backend, CPU, bool(row.baseline), more={"kind": "cpu"})
        for row in table.itertuples()
    ]
    assert len(lines) > 10
    assert analyse(frame(lines), commits=facts(commits)).events == ()


def test_a_large_step_stands_out_of_a_cpu_too() -> None:
    ours, theirs = noisy(1, 20, {12: 4.0}, sigma=0.2), noisy(2, 20, sigma=0.2)
    lines = [Line("gemm", "small", ours), Line("gemm", "small", theirs, backend="blas", baseline=True)]
    (event,) = analyse(frame(lines), commits=facts(20)).events
    assert (event.first_bad.hash, event.kind) == (commit(12), EventKind.KERNEL)


def test_until_the_noise_is_known_nothing_is_opened_and_the_history_says_how_long() -> None:
    two = analyse(frame(pair(1, 2, {1: 2.0})), commits=facts(2))
    assert two.events == ()
    assert [note for note in two.notes if "after 1 more recorded commit " in note]
    four = analyse(frame(pair(1, 4, {2: 2.0})), commits=facts(4))
    assert [event.first_bad.hash for event in four.events] == [commit(2)]
    assert not [note for note in four.notes if "more recorded commit" in note]


def in_pairs(said: str, ratio: float = 1.2) -> dict[str, PairedStep]:
    """What the gate says of the one case."""
    return {"gemm/triton/small": PairedStep(said, ratio, 0.99 * ratio, 1.01 * ratio, 1e-6)}


@pytest.mark.parametrize(("said", "found"), [("slower", 1), ("", 0), ("faster", 0)])
@pytest.mark.parametrize("count", [2, 5, 60])
def test_what_was_compared_in_pairs_decides(said: str, found: int, count: int) -> None:
    at = count // 2

    def paired(machine: str, base: str, head: str) -> dict[str, PairedStep]:
        return in_pairs(said) if (base, head) == (commit(at - 1), commit(at)) else {}

    lines = pair(1, count, {at: 1.2})
    assert len(analyse(frame(lines), commits=facts(count), paired=paired).events) == found


def moved_late() -> pd.DataFrame:
    """A large step at 30; 29 ran beside 28."""
    whole = frame(pair(1, 60, {30: 1.1}))
    return whole.assign(compared_with=np.where(whole["commit"] == commit(29), commit(28), ""))


def of_29(machine: str, base: str, head: str) -> dict[str, PairedStep]:
    return in_pairs("slower") if head == commit(29) else {}


def test_what_was_said_in_pairs_is_an_event_with_its_numbers_however_short_the_history() -> None:
    """The least that counts in pairs is far below what commits recorded apart can show."""
    whole = frame(pair(1, 3))
    whole["compared_with"] = np.where(whole["commit"] == commit(2), commit(1), "")
    (event,) = analyse(whole, commits=facts(3), paired=lambda *_: in_pairs("slower", 1.004)).events
    assert (event.first_bad.hash, event.last_good.hash, event.kind) == (commit(2), commit(1), EventKind.KERNEL)
    assert [(one.judged_by, one.step.ratio) for one in event.moved] == [("pairs", 1.004)]
    assert (event.ratio, event.ratio_low) == pytest.approx((1.004, 0.99 * 1.004))
    assert len(analyse(moved_late(), commits=facts(60), paired=of_29).events) == 1, (
        "the detector found the same change: one event, not two"
    )
    whole["compared_with"] = np.where(whole["commit"] == commit(2), commit(0), "")  # no neighbours
    assert analyse(whole, commits=facts(3), paired=lambda *_: in_pairs("slower", 1.004)).events == ()


def test_a_step_stands_where_the_pair_says_that_it_is() -> None:
    def paired(machine: str, base: str, head: str) -> dict[str, PairedStep]:
        return in_pairs("slower" if head == commit(29) else "")

    (event,) = analyse(frame(pair(1, 60, {30: 1.1})), commits=facts(60), paired=paired).events
    assert (event.first_bad.hash, event.last_good.hash) == (commit(29), commit(28))


@pytest.mark.parametrize(("codes", "found"), [(("a", "a"), 0), (("a", "b"), 1), (("", "a"), 1), (("", ""), 1)])
def test_equal_code_is_no_regression_of_ours(codes: tuple[str, str], found: int) -> None:
    whole = frame(pair(1, 60, {30: 1.1}))
    later = whole["commit"].isin([commit(number) for number in range(30, 60)])
    whole["code"] = np.where(later, codes[1], codes[0])
    kernels = [one for one in analyse(whole, commits=facts(60)).events if one.kind is EventKind.KERNEL]
    assert len(kernels) == found


def test_equal_files_under_another_compiler_are_not_equal_code() -> None:
    whole = frame(pair(1, 60, {30: 1.1}))
    later = whole["commit"].isin([commit(number) for number in range(30, 60)])
    whole["code"], whole["torch"] = "a", np.where(later, "2.13", "2.11")
    assert len(analyse(whole, commits=facts(60)).events) == 1


def test_changed_code_is_not_taken_for_noise() -> None:
    """Three of five neighbours changed their code, by a lot: only the two that did not tell of the noise."""
    lines = [line for n in range(8) for line in pair(10 * n, 6, {1: 1.5, 2: 1.5, 5: 1.2}, case=str(n))]
    whole = frame(lines)
    assert commit(5) not in {event.first_bad.hash for event in analyse(whole, commits=facts(6)).events}
    whole["code"] = whole["commit"].map({commit(n): code for n, code in enumerate("abcccd")})
    assert commit(5) in {event.first_bad.hash for event in analyse(whole, commits=facts(6)).events}


# ---- from records --------------------------------------------------------------------------------------------------


def recorded(folder: Path, commits: list[str], head: float) -> Path:
    """A record of each commit, checked in pairs with the one before; the last one takes `head` times as long."""
    random, lines = np.random.default_rng(0), []
    for minute, (base, new) in enumerate(zip(commits, commits[1:], strict=False)):
        for number in range(6):
            ratio = head if new == commits[-1] else 1.0
            arms = {"base/triton": 1.0, "head/triton": ratio, "base/blas": 0.9, "head/blas": 0.9}
            timed = {arm: trials.ok(list(1e-3 * by * np.exp(random.normal(0, 0.003, 40)))) for arm, by in arms.items()}
            trees = {"base": trials.tree(base), "head": trials.tree(new)}
            for role, name in (("base", base), ("head", new)):
                trees[role] |= {"kernel_digest": name[:16], "date_ms": 1_790_000_000_000 + 1000 * commits.index(name)}
            session = f"{minute:016x}"
            lines.append(trials.trial({"m16": timed}, number=number, minute=minute, session=session, trees=trees))
    done = store.record([trials.write(folder / "trials.jsonl", *lines)], folder / "results")
    assert not done.problems
    return folder / "results"


@pytest.mark.parametrize(("ratio", "slower"), [(1.3, 1), (1.0, 0)])
def test_the_gate_is_asked_of_recorded_commits(tmp_path: Path, ratio: float, slower: int) -> None:
    repo = Repo(tmp_path)
    commits = [repo.commit(f"{number}", day=number + 1) for number in range(3)]
    results = recorded(tmp_path, commits, ratio)
    said = PairedVerdicts(results)(trials.MACHINE["name"], *commits[1:])
    assert {case: one.direction for case, one in said.items()} == {"gemm/triton/m16": "slower" if slower else ""}
    assert PairedVerdicts(results)(trials.MACHINE["name"], commits[0], commits[2]) == {}
    assert len(reading.history(results).events) == slower


def test_a_commit_that_is_not_on_main_opens_no_event(tmp_path: Path) -> None:
    repo = Repo(tmp_path)
    commits = [repo.commit(f"{number}", day=number + 1) for number in range(3)]
    repo.git("checkout", "-q", "-b", "feature")
    commits.append(repo.commit("slow", day=9))
    results = recorded(tmp_path, commits, 1.3)
    found = reading.history(results)
    assert (found.events, found.commits) == ((), tuple(commits[:3]))
    assert [
        note
        for note in found.notes
        if note.startswith(f"1 recorded commit is not on the main branch ({commits[3][:8]})")
    ]
    repo.git("checkout", "-q", "main")
    repo.git("merge", "-q", "feature")
    assert [event.first_bad.hash for event in reading.history(results).events] == [commits[3]]


def test_a_broken_policy_is_a_note_and_not_the_end(tmp_path: Path) -> None:
    repo = Repo(tmp_path)
    commits = [repo.commit(f"{number}", day=number + 1) for number in range(4)]
    results = recorded(tmp_path, commits, 1.3)
    (tmp_path / "ridgeline.toml").write_text('policy = "policy.toml"\n')
    (tmp_path / "policy.toml").write_text("[default]\nsmallest_effect = 7\n")
    assert [note for note in reading.history(results).notes if "is not known" in note and "policy.toml" in note]
