"""`ab --program`, from the settings of a repository to the verdict."""

from __future__ import annotations

import shutil

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
def clone(tmp_path, monkeypatch):
    """A repository with a program: a commit, the same speed by other code, and one that is 30 % slower."""
    texts = {".gitignore": "factor.txt\n.ridgeline\n", "bench.py": BENCH}
    folder = repository(tmp_path / "clone", **texts, **{"ridgeline.toml": SETTINGS.format(factor=1)})
    commit(folder, "same", **{"bench.py": f"# as fast\n{BENCH}"})
    commit(folder, "slow", **{"ridgeline.toml": SETTINGS.format(factor=1.3)})
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.slow
def test_equal_speed_is_same_and_slower_is_slower(clone):
    same = ridgeline("ab", "HEAD~2", "HEAD~1", "--program", "bench")
    assert (same.exit_code, "2 SAME" in said(same)) == (0, True), said(same)
    slow = BENCH.replace("* factor", "* 1.3 * factor")
    commit(clone, "slow", **{"bench.py": slow})
    slower = ridgeline("ab", "HEAD~1", "HEAD", "--program", "bench", "--record")
    assert slower.exit_code == 1, said(slower)
    assert "bench / mine: 2 shapes slower together, +30" in said(slower)
    crashed = ridgeline("ab", "HEAD~1", "HEAD", "--reads", "mine", "--", "false")
    assert crashed.exit_code == 3, "it prints a row on neither side"


@pytest.mark.slow
def test_check_runs_the_programs_that_a_change_can_reach(clone):
    commit(clone, "docs", **{"README.md": "as fast"})
    untouched = ridgeline("check", "--base", "HEAD~1")
    assert (untouched.exit_code, "no changed file can reach bench" in said(untouched)) == (0, True), said(untouched)
    commit(clone, "slow", **{"bench.py": BENCH.replace("* factor", "* 1.3 * factor")})
    slower = ridgeline("check", "--base", "HEAD~1", "--out", "trials.jsonl")
    assert slower.exit_code == 1, said(slower)
    assert "2 SLOWER" in said(slower)
    assert "--kernel bench" not in said(slower), "what shows it again names no operator"
    replayed = ridgeline("ab", "--replay", "trials.jsonl")
    assert (replayed.exit_code, "2 SLOWER" in said(replayed)) == (1, True), said(replayed)
    crashes = commit(clone, "crash", **{"bench.py": "import os; os.abort()"})
    assert ridgeline("check", "--base", crashes, "--all-cases").exit_code == 2, "neither side can be run"


@pytest.mark.slow
def test_a_build_that_git_does_not_ignore_is_kept_and_made_again_with_its_checkout(clone):
    settings = SETTINGS.format(factor=1).replace('build = "', 'build = "echo built >> made.txt; ')
    base = commit(clone, "build", **{"ridgeline.toml": settings})
    commit(clone, "same", **{"bench.py": f"# again\n{BENCH}"})
    for _ in range(2):
        assert ridgeline("ab", base, "HEAD", "--program", "bench").exit_code == 0
    made = [tree / "made.txt" for tree in (clone / ".ridgeline" / "trees").iterdir() if tree.is_dir()]
    assert [path.read_text() for path in made] == ["built\n"] * 2, "once a commit"
    shutil.rmtree(made[0].parent)
    assert ridgeline("ab", base, "HEAD", "--program", "bench").exit_code == 0
    assert made[0].read_text() == "built\n", "it was made anew"


def test_what_needs_a_gpu_is_named_and_not_run_without_one(clone, monkeypatch):
    monkeypatch.setattr("ci.commands.ab.machine_kind", lambda: "cpu")
    monkeypatch.setattr(programs, "machine_kind", lambda: "cpu")
    settings = SETTINGS.format(factor=1).replace('reads = "mine"', 'reads = "mine"\ngpu = true')
    commit(clone, "gpu", **{"ridgeline.toml": settings, "bench.py": "1"})
    checked = ridgeline("check", "--base", "HEAD~1", "--dry-run")
    assert "not run, because they need a GPU: bench" in said(checked)
    asked = ridgeline("ab", "HEAD~1", "HEAD", "--program", "bench")
    assert (asked.exit_code, "bench needs a GPU" in said(asked)) == (3, True), said(asked)


@pytest.mark.slow
def test_floors_hold_a_program_to_the_rows_of_its_library(clone, tmp_path):
    rows = "print('case,backend,seconds\\na,lib,1\\na,ours,{}')"
    settings = '[[program]]\nname = "p"\nrun = "python3 p.py"\nreads = "csv"\nbaselines = ["lib"]\n'
    base = commit(clone, "base", **{"ridgeline.toml": settings, "p.py": rows.format(1.0)})
    commit(clone, "slower", **{"p.py": rows.format(1.5)})
    floor = 'kernel = "p"\nshare = 0.95\nbaseline = "lib"\nreason = "no slower"\ndate = 2026-11-28\n'
    (tmp_path / "policy.toml").write_text(f"[[floor]]\n{floor}")
    done = ridgeline("ab", base, "HEAD", "--program", "p", "--policy", str(tmp_path / "policy.toml"))
    assert (done.exit_code, "1 below the floor" in said(done)) == (1, True), said(done)


@pytest.mark.slow
def test_bisect_finds_the_commit_in_which_a_program_became_slower(clone):
    slow = BENCH.replace("* factor", "* 1.1 * factor")
    for number, text in enumerate((BENCH, slow, slow, slow)):
        commit(clone, f"step {number}", **{"bench.py": f"# {number}\n{text}"})
    found = ridgeline("bisect", "HEAD~4", "HEAD", "--program", "bench", "--case", "bench/1")
    assert found.exit_code == 0, said(found)
    assert "step 1: +1" in said(found)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("run", "--program", "bench", "--kernel", "gemm"), "leave out --kernel"),
        (("run", "--program", "bench", "--tier", "nightly"), "leave out --tier"),
        (("run", "..HEAD", "--program", "bench"), "leave out A..B"),
        (("bisect", "HEAD~1", "HEAD", "--program", "bench", "--axis", "knob"), "leave out --axis"),
    ],
)
def test_verbs_refuse_what_a_program_has_no_use_for(clone, words, told):
    done = ridgeline(*words)
    assert (done.exit_code, told in " ".join(said(done).split())) == (3, True), said(done)


def test_equal_files_are_not_run(clone):
    commit(clone, "nothing")
    done = ridgeline("ab", "HEAD~1", "HEAD", "--program", "bench")
    assert done.exit_code == 0
    assert "no changed file can reach bench" in said(done)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--program", "bnech"), "declares no program 'bnech' (declared: bench)"),
        (("--program", "bench", "--", "./x"), "has a command of its own"),
        (("--program", "bench", "--backend", "triton"), "a program runs whole"),
        (("--reads", "mine"), "--reads is for a command behind --"),
        (("--reads", "xml", "--", "./x"), 'reads is "xml"; allowed: nccl-tests'),
    ],
)
def test_what_cannot_be_run_is_refused_with_what_is_allowed(clone, words, told):
    done = ridgeline("ab", "HEAD~1", "HEAD", *words)
    assert done.exit_code == 3
    assert told in " ".join(said(done).split())


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ("rnu = 'x'", "unknown key 'rnu'"),
        ("run = ''", 'run is ""; allowed: a command'),
        ("run = 3", "run is 3; allowed: a command"),
        ("run = 'x'\nreads = 'xml'", 'reads is "xml"; allowed: nccl-tests'),
    ],
)
def test_tables_of_programs_are_held_to_their_keys(tmp_path, table, told):
    (tmp_path / "ridgeline.toml").write_text(f"[[program]]\nname = 'p'\n{table}\n")
    with pytest.raises(programs.ProgramError, match=told):
        programs.declared_program(project.around(tmp_path), "p")


def test_a_section_of_the_policy_for_a_program_counts():
    rules = policy.parse(
        {"kernel": {"p": {"looks": [4, 9], "smallest_effect": 0.001, "reason": "quiet", "date": "2026-11-28"}}}
    )
    found = rules.settings("p", "cpu_program")
    assert (found.looks, found.smallest_effect, found.min_rounds) == ((4, 9), 0.001, policy.PROGRAM_ROUNDS)
    assert (rules.settings("q", "cpu_program").same_within, rules.settings("q", "gpu_program").same_within) == (
        0.03,
        0.02,
    )
