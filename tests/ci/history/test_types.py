"""Commits from git: who, what, which pull request, in which order, and how many lie between."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from ci.history.types import CommitFacts, CommitOrder, read_commits
from tests.kit import Repo


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo(tmp_path)


@pytest.mark.parametrize(
    ("subject", "number"),
    [
        ("Faster tiles (#123)", 123),
        ("Merge pull request #77 from a/b", 77),
        ("Revert (#5) for now", None),
        ("fixes #9", None),
        ("", None),
    ],
)
def test_author_subject_and_pull_request(repo: Repo, subject: str, number: int | None) -> None:
    name = repo.commit(subject, author="Ä. <b>Author</b>")
    (facts,) = read_commits(repo.folder).values()
    assert (facts.hash, facts.subject, facts.pull_request) == (name, subject, number)
    assert facts.date_ms == 1_793_534_400_000


def test_hostile_subjects_stay_in_their_commit(repo: Repo) -> None:
    subjects = ["a\x1eb", "\u202e%H%x00", "x" * 5000, "", "last"]
    names = [repo.commit(subject) for subject in subjects]
    found = read_commits(repo.folder)
    assert list(found) == names
    assert [one.subject[:9] for one in found.values()] == [subject[:9] for subject in subjects]
    assert max(len(one.subject) for one in found.values()) == 300


def test_one_call_knows_branches_and_skips_what_git_does_not_know(repo: Repo) -> None:
    first = repo.commit("first", 1)
    repo.git("checkout", "-q", "-b", "side")
    side = repo.commit("side", 2)
    repo.git("checkout", "-q", "main")
    main = repo.commit("main", 3)
    assert list(read_commits(repo.folder)) == [first, main]
    assert list(read_commits(repo.folder, [side, "f" * 40, "nonsense", "--all"])) == [first, side, main]


def test_no_repository_no_facts(tmp_path: Path) -> None:
    assert read_commits(tmp_path) == {}
    assert read_commits(tmp_path / "nowhere") == {}
    Repo(tmp_path)
    assert read_commits(tmp_path) == {}


def test_between_is_what_git_counts(repo: Repo) -> None:
    random.seed(3)
    for number in range(12):
        repo.commit(f"main {number}", 1 + number)
        if number % 4 == 1:
            repo.git("checkout", "-q", "-b", f"side{number}", "HEAD~1" if number > 1 else "HEAD")
            repo.commit(f"side {number}", 1 + number)
            repo.git("checkout", "-q", "main")
            repo.git("merge", "-q", "--no-ff", "-m", f"Merge {number}", f"side{number}")
    known = read_commits(repo.folder)
    order = CommitOrder({}, known)
    for _ in range(30):
        good, bad = random.sample(list(known), 2)
        counted = int(repo.git("rev-list", "--count", f"{good}..{bad}"))
        assert order.between(good, bad) == max(counted - 1, 0)


def test_the_order_is_gits_before_dates() -> None:
    known = {name: CommitFacts(name, date) for name, date in (("a", 10), ("b", 5), ("c", 30))}  # b: a clock set back
    order = CommitOrder({"c": 1, "b": 2, "a": 3, "x": 12, "y": 40, "z": 0}, known)
    assert order.names == ("z", "a", "b", "x", "c", "y")
    assert order.unknown == ("z", "x", "y")
    assert order.facts("x") == CommitFacts("x", 12)
    assert order.between("a", "y") == 3
    assert CommitOrder({"q": 2, "p": 1}, {}).names == ("p", "q")
    assert CommitOrder({"q": 2, "p": 1}, {}).unknown == ()
