"""`ridgeline gate BASE HEAD` in a repository: what was recorded, what was not, and names that head gave up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ci.records import store
from tests.ci import made_trials
from tests.ci.made_trials import declaration, ok, tree
from tests.kit import commit, git, repository, ridgeline

SETTINGS = 'kernels = ["perf"]\n'
GEMM = "from ridgeline.spec import Kernel\ngemm = Kernel('gemm')\n"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = repository(tmp_path / "r", **{"ridgeline.toml": SETTINGS, "perf/gemm.py": GEMM, "perf/__init__.py": ""})
    monkeypatch.chdir(folder)
    return folder


def record(root: Path, *kernels: str, cases: tuple[str, ...] = ("m16",), count: int = 4) -> None:
    """Trials of operators at HEAD, as `ridgeline run` records them; all of one speed."""
    head = git(root, "rev-parse", "HEAD")
    lines = []
    for kernel in kernels:
        declared = declaration(kernel, cases=cases)
        arms = {"head/triton": ok([1e-3] * 40), "head/blas": ok([1e-3] * 40)}
        given = {"trees": {"head": tree(head, declared=declared)}, "session": f"{abs(hash((head, kernel))):016x}"[:16]}
        lines += [
            {**made_trials.trial(dict.fromkeys(cases, arms), number=n, **given), "kernel": kernel} for n in range(count)
        ]
    file = made_trials.write(root.parent / f"{head[:8]}.jsonl", *lines)
    assert not store.record([file], root / "results").problems


def test_what_differs_and_was_not_recorded_is_no_pass(root: Path) -> None:
    record(root, "gemm")
    commit(root, **{"perf/gemm.py": f"{GEMM}a = 1\n", "perf/scan.py": GEMM.replace("gemm", "scan")})
    record(root, "gemm")
    done = ridgeline("gate", "HEAD^", "HEAD")
    assert (done.exit_code, "scan differs and is not recorded of both commits" in " ".join(done.stdout.split())) == (
        2,
        True,
    )
    record(root, "scan")
    assert ridgeline("gate", "HEAD^", "HEAD").exit_code == 0, "scan is new, and right"
    commit(root, **{"perf/gemm.py": f"{GEMM}a = 2\n", "perf/scan.py": "a = 1\n"})
    record(root, "gemm")
    done = ridgeline("gate", "HEAD^", "HEAD")
    assert (done.exit_code, 'renamed = {"scan" = "NEW NAME"}' in " ".join(done.stdout.split())) == (2, True)
    commit(root, **{"ridgeline.toml": f'{SETTINGS}renamed = {{"scan" = ""}}\n'})
    record(root, "gemm")
    assert ridgeline("gate", "HEAD~2", "HEAD").exit_code == 0


def test_a_case_that_head_calls_otherwise_is_compared_with_itself(root: Path) -> None:
    record(root, "gemm", cases=("m16", "m64"))
    commit(root, **{"perf/gemm.py": f"{GEMM}a = 1\n"})
    record(root, "gemm", cases=("decode", "m64"))
    assert ridgeline("gate", "HEAD^", "HEAD").exit_code == 2, "m16 is gone"
    commit(root, **{"ridgeline.toml": f'{SETTINGS}renamed = {{"gemm/m16" = "gemm/decode"}}\n'})
    record(root, "gemm", cases=("decode", "m64"))
    done = ridgeline("gate", "HEAD~2", "HEAD", "--json")
    [one] = json.loads(done.stdout)
    verdicts = {case["case"]: case["verdict"] for case in one["cases"]}
    assert (done.exit_code, verdicts) == (0, {"gemm/triton/decode": "SAME", "gemm/triton/m64": "SAME"})


def test_a_record_that_cannot_be_read_is_named_and_is_no_pass(root: Path) -> None:
    record(root, "gemm")
    commit(root, **{"perf/gemm.py": f"{GEMM}a = 1\n"})
    record(root, "gemm")
    assert ridgeline("gate", "HEAD^", "HEAD").exit_code == 0
    head = git(root, "rev-parse", "HEAD")
    [notes] = (root / "results").glob(f"*/{head[:8]}*.notes.jsonl.gz")
    notes.write_text("<<<<<<< ours\n")
    done = ridgeline("gate", "HEAD^", "HEAD")
    assert (done.exit_code, notes.name in done.stderr) == (2, True)
    done = ridgeline("events")
    assert (done.exit_code, notes.name in done.output.replace("\n", "")) == (2, True)
    done = ridgeline("doctor")
    assert notes.name in done.output.replace("\n", "")


def test_commits_with_equal_files_are_the_same_whatever_is_recorded(root: Path) -> None:
    commit(root, **{"notes.md": "a word"})
    done = ridgeline("gate", "HEAD^", "HEAD")
    assert (done.exit_code, "SAME the same kernel files on both sides" in " ".join(done.stdout.split())) == (0, True)
