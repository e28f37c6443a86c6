"""What a pool does for a pull request: two commands on one trial file, and the exit code of the comparison."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from ci.__main__ import main
from ci.commands.leg import steps, through
from ci.git.repository import Commit

HEAD = Commit("0123456789abcdef0123456789abcdef01234567", 1_700_000_000_000, "head")


def test_the_change_is_compared_and_its_tuned_entries_are_verified_into_one_file() -> None:
    compare, verify = steps("HEAD...x", HEAD, "tree", Path("t.jsonl"))
    assert compare == ("ab", "HEAD...x", HEAD.hash, "--out=t.jsonl", "--why-seconds=180")
    assert verify[:3] == ("tune", "all", "--verify")
    assert {"--out=t.jsonl", "--tree=tree", f"--commit={HEAD.hash}", f"--commit-date={HEAD.date_ms}"} < set(verify)


@pytest.mark.parametrize(("compared", "verified"), [(0, 1), (1, 0), (3, 2)])
def test_the_exit_code_is_that_of_the_comparison(compared: int, verified: int) -> None:
    ran: list[str] = []

    def play(words: Sequence[str]) -> int:
        ran.append(words[0])
        return {"ab": compared, "tune": verified}[words[0]]

    assert through(steps("b", HEAD, "tree", Path("t")), play) == compared
    assert ran == ["ab", "tune"]


def test_an_unknown_commit_is_named_and_a_dry_run_checks_nothing_out(tmp_path: Path) -> None:
    out = str(tmp_path / "t.jsonl")
    done = CliRunner().invoke(main, ["leg", "HEAD", "HEAD", "--out", out, "--dry-run"])
    assert done.exit_code == 0
    assert "would run: ridgeline tune all --verify" in done.output
    failed = CliRunner().invoke(main, ["leg", "HEAD", "nowhere", "--out", out])
    assert failed.exit_code == 3
    assert "'nowhere'" in failed.output
