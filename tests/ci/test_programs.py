"""`ab --program`, from the settings of a repository to the verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

from ci import programs
from ci.judging import policy
from kernels import project
from tests.kit import commit, repository, ridgeline, said

SETTINGS = """
[[program]]
name = "bench"
build = "echo {factor} > factor.txt"
run = "python3 bench.py"
reads = "mine"
[[reader]]
name = "mine"
rows = "json lines"
case = "size"
time = {{ field = "us", unit = "us" }}
"""
BENCH = """
import json
factor = float(open("factor.txt").read())
for size in (1, 2):
    print(json.dumps({"size": size, "us": 10 * size * factor}))
"""


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a program: a commit, the same speed by other code, and one that is 30 % slower."""
    texts = {".gitignore": "factor.txt\n.ridgeline\n", "bench.py": BENCH}
    folder = repository(tmp_path / "clone", **texts, **{"ridgeline.toml": SETTINGS.format(factor=1)})
    commit(folder, "same", **{"bench.py": f"# as fast\n{BENCH}"})
    commit(folder, "slow", **{"ridgeline.toml": SETTINGS.format(factor=1.3)})
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.slow
def test_equal_speed_is_same_and_slower_is_slower(clone: Path) -> None:
    same = ridgeline("ab", "HEAD~2", "HEAD~1", "--program", "bench")
    assert (same.exit_code, "2 SAME" in said(same)) == (0, True), said(same)
    slow = BENCH.replace("* factor", "* 1.3 * factor")
    commit(clone, "slow", **{"bench.py": slow})
    slower = ridgeline("ab", "HEAD~1", "HEAD", "--program", "bench", "--record")
    assert slower.exit_code == 1, said(slower)
    assert "bench / mine: 2 shapes slower together, +30" in said(slower)
    crashed = ridgeline("ab", "HEAD~1", "HEAD", "--reads", "mine", "--", "false")
    assert crashed.exit_code == 3, "it prints a row on neither side"


def test_equal_files_are_not_run(clone: Path) -> None:
    commit(clone, "nothing")
    done = ridgeline("ab", "HEAD~1", "HEAD", "--program", "bench")
    assert done.exit_code == 0
    assert "the same files on both sides" in said(done)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--program", "bnech"), "declares no program 'bnech' (declared: bench)"),
        (("--program", "bench", "--", "./x"), "has a command of its own"),
        (("--program", "bench", "--backend", "triton"), "a program runs whole"),
        (("--reads", "mine"), "--reads is for a command behind --"),
        (("--reads", "xml", "--", "./x"), "there is no reader 'xml'; there are: nccl-tests"),
    ],
)
def test_what_cannot_be_run_is_refused_with_what_is_allowed(clone: Path, words: tuple[str, ...], told: str) -> None:
    done = ridgeline("ab", "HEAD~1", "HEAD", *words)
    assert done.exit_code == 3
    assert told in " ".join(said(done).split())


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ("rnu = 'x'", "unknown key 'rnu'"),
        ("run = ''", "says no command"),
        ("run = 3", "run is 3; a text is expected"),
        ("run = 'x'\nreads = 'xml'", "no reader 'xml'"),
    ],
)
def test_tables_of_programs_are_held_to_their_keys(tmp_path: Path, table: str, told: str) -> None:
    (tmp_path / "ridgeline.toml").write_text(f"[[program]]\nname = 'p'\n{table}\n")
    with pytest.raises(programs.ProgramError, match=told):
        programs.declared_program(project.around(tmp_path), "p")


def test_a_section_of_the_policy_for_a_program_counts() -> None:
    rules = policy.parse(
        {"kernel": {"p": {"looks": [4, 9], "smallest_effect": 0.001, "reason": "quiet", "date": "2026-11-28"}}}
    )
    found = programs.rules_for(rules, "p").settings("p", "cpu")
    assert (found.looks, found.smallest_effect, found.min_rounds) == ((4, 9), 0.001, programs.ROUNDS)
    assert programs.rules_for(policy.Policy(), "q").settings("q", "cpu").same_within == 0.03
