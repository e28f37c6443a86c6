"""Exact series in asv's format: read back by asv itself, idempotent, beside the measured records."""

from __future__ import annotations

import itertools
import json
import math
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from asv.results import Results

from ci.commands import isa as series
from ci.commands.isa import commits_of, record_range
from ci.git.repository import Commit, RangeError, Repository
from ci.history import exact
from ci.isa.compiled import CompileError, Wanted
from ci.records.store import load
from tests.ci.isa.documents import document, entry
from tests.kit import commit as commit_of
from tests.kit import git
from tests.kit import repository as repository_of

COMMIT = Commit("0123456789abcdef0123456789abcdef01234567", 1_790_000_000_000, "subject")
DOCUMENT = document(
    entry("gemm", cases=["one", "two"]),
    entry("gemm", arch="gfx950", cases=["one"], vgpr=96),
    entry("gather", label="push", cases=["one"]),
    entry("gather", "b", label="pull", cases=["one"]),
    entry("gather", arch="gfx950", status="failed", cases=["one"], label="push"),
    entry("quiet", status="unsupported"),
    triton="3.8.0+git1",
)


def test_asv_reads_what_is_written(tmp_path):
    path = series.record(DOCUMENT, COMMIT, tmp_path)
    assert path == tmp_path / "isa" / "01234567-triton3.8.0.json"
    found = Results.load(str(path), machine_name="isa")
    params = found.get_result_params("gemm.track_isa_vgpr")
    assert params == [["'triton'"], ["'one'", "'two'"], ["'gfx942'", "'gfx950'"]]
    values = found.get_result_value("gemm.track_isa_vgpr", params)
    assert values[:3] == [86, 96, 86]
    assert math.isnan(values[3])


def test_several_compilations_of_a_case_are_told_apart_and_failures_are_null():
    _, params, found = series.tracks(DOCUMENT)["gather.track_isa_vgpr"]
    assert params == [["'triton'"], ["'one [push]'", "'one [pull]'", "'one'"], ["'gfx942'", "'gfx950'"]]
    values = dict(zip([(c, a) for c in params[1] for a in params[2]], found, strict=True))
    assert values["'one'", "'gfx950'"] is None
    assert values["'one [pull]'", "'gfx942'"] == 86
    assert math.isnan(values["'one [pull]'", "'gfx950'"])


def test_twice_is_once_and_other_kernels_are_kept(tmp_path):
    path = series.record(DOCUMENT, COMMIT, tmp_path)
    before = {file: file.read_bytes() for file in tmp_path.rglob("*.json")}
    series.record(DOCUMENT, COMMIT, tmp_path)
    assert {file: file.read_bytes() for file in tmp_path.rglob("*.json")} == before
    series.record(document(entry("other")), COMMIT, tmp_path)
    names = set(json.loads(path.read_text())["results"])
    assert {"gemm.track_isa_vgpr", "other.track_isa_vgpr"} <= names


def test_a_torn_file_is_made_anew(tmp_path):
    path = series.record(DOCUMENT, COMMIT, tmp_path)
    whole = path.read_text()
    path.write_text(whole[:100])
    series.record(DOCUMENT, COMMIT, tmp_path)
    assert path.read_text() == whole


def test_the_measured_records_do_not_mistake_them_for_times(tmp_path):
    series.record(DOCUMENT, COMMIT, tmp_path)
    frame = load(tmp_path)
    assert len(frame) == 0
    assert frame.attrs["problems"] == []


# The history of the code: which commits of a range are compiled, going on where it broke off, and the steps.


ROOT = Path(__file__).resolve().parents[3]
ASKED = series.asked_of(Wanted(), "3.8.0")


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """Commits: start (no kernels), first (a kernel), notes (nothing of it), second (another kernel)."""
    folder = repository_of(tmp_path_factory.mktemp("repository") / "clone", **{"README.md": "start"})
    git(folder, "commit", "-q", "--amend", "-m", "start")
    for name, message in (("kernels/one.py", "first"), ("NOTES.md", "notes"), ("kernels/two.py", "second")):
        commit_of(folder, message, **{name: message})
    return Repository(folder)


@pytest.mark.parametrize(
    ("span", "subjects"),
    [
        ("main~3..main", ["first", "second"]),
        ("..main", ["first", "second"]),
        ("main~2..", ["second"]),
        ("main..main", []),
    ],
)
def test_a_range_is_the_commits_that_touch_kernels_oldest_first(repository, span, subjects):
    assert [commit.subject for commit in commits_of(repository, span)] == subjects


@pytest.mark.parametrize("span", ["main", "a...b", "", "a"])
def test_another_form_is_not_a_range(repository, span):
    with pytest.raises(RangeError, match=r"for instance v1\.0\.\.HEAD, or \.\.HEAD for all commits"):
        commits_of(repository, span)


class Compiler:
    """Stands for TreeCompiler.compile: answers from a script by subject, and keeps what it was asked."""

    def __init__(self, answers):
        self.answers, self.trees = answers, []

    def __call__(self, tree, what):
        self.trees.append(tree)
        answer = self.answers[git(tree, "show", "-s", "--format=%s", "HEAD")]
        if isinstance(answer, BaseException):
            raise answer
        return answer


def fill(repository, results, answers, span=".."):
    told = []
    compiler = Compiler(answers)
    commits = repository.commits(*repository.ends(span))
    filled = record_range(repository, commits, results, ASKED, compiler, told.append)
    return filled, compiler, told


GOOD = {
    "start": document(),
    "first": document(entry("gemm")),
    "notes": document(entry("gemm")),
    "second": document(entry("gemm", code="b", vgpr=128), entry("gather")),
}


def test_every_commit_is_reported_and_one_without_kernels_is_not_a_failure(repository, tmp_path):
    filled, compiler, told = fill(repository, tmp_path, GOOD)
    assert len(filled.recorded) == 4
    assert [line.split(": ")[-1] for line in told] == [
        "declares nothing to compile",
        "1 configuration",
        "1 configuration",
        "2 configurations",
    ]
    assert told[0].startswith("1/4 ")
    assert not any(tree.exists() for tree in compiler.trees), "worktrees of a long range must not stay"


def test_a_range_goes_on_where_it_broke_off(repository, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        fill(repository, tmp_path, {**GOOD, "notes": KeyboardInterrupt()})
    filled, compiler, told = fill(repository, tmp_path, GOOD)
    assert [path.name for path in filled.recorded] == [
        f"{repository.resolve(name).short}-triton3.8.0.json" for name in ("main~1", "main")
    ]
    assert len(filled.known) == 2
    assert len(compiler.trees) == 2
    assert told[1].endswith("recorded already")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.json")}
    filled, compiler, _ = fill(repository, tmp_path, GOOD)
    assert (filled.recorded, compiler.trees, len(filled.known)) == ([], [], 4)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.json")} == before


def test_what_was_asked_otherwise_or_failed_to_list_is_compiled_again(repository, tmp_path):
    fill(
        repository,
        tmp_path,
        {**GOOD, "second": document(entry("gemm"), failures={"gfx950": "the kernels could not be listed for gfx950"})},
    )
    commit = repository.resolve("main")
    series.record(GOOD["first"], repository.resolve("main~2"), tmp_path, {**ASKED, "tier": "nightly"})
    filled, _, _ = fill(repository, tmp_path, GOOD)
    assert {path.name[:8] for path in filled.recorded} == {commit.short, repository.resolve("main~2").short}


def test_a_commit_that_cannot_be_compiled_is_reported_and_the_others_go_on(repository, tmp_path):
    broken = document(
        entry("gemm"), entry("gather", status="failed"), broken={"kernels.three": "ModuleNotFoundError: no iris"}
    )
    filled, _, told = fill(repository, tmp_path, {**GOOD, "first": CompileError("it said nothing"), "notes": broken})
    assert len(filled.recorded) == 3
    first, notes = (repository.resolve(name).short for name in ("main~2", "main~1"))
    assert filled.problems == [
        f"{first}: it said nothing",
        f"{notes}: module kernels.three cannot be imported: ModuleNotFoundError: no iris",
    ]
    assert told[2].endswith("2 configurations, 1 of them not compiled")
    filled, _, _ = fill(repository, tmp_path / "none", {**GOOD, "first": CompileError("no")}, span="main~3..main~2")
    assert (filled.recorded, filled.known) == ([], [])


# ---- reading -------------------------------------------------------------------------------------------------------


def recorded(folder, *documents):
    for day, one in enumerate(documents):
        commit = Commit(f"{day}" * 40, 1_790_000_000_000 + day * 86_400_000, f"day {day}")
        series.record(one, commit, folder, ASKED)
    return folder


def changes(folder):
    return [
        exact.changes(before.values, after.values, "gemm")
        for before, after in itertools.pairwise(exact.records(folder))
    ]


def test_steps_are_shown_commit_by_commit(tmp_path):
    recorded(
        tmp_path,
        document(entry("gemm", cases=["one", "two"])),
        document(entry("gemm", cases=["one", "two"], code_bytes=3500)),
        document(entry("gemm", cases=["one", "two"], code_bytes=3500)),
        document(
            entry("gemm", cases=["one"], vgpr=128, vgpr_spills=4, code_bytes=3500),
            entry("gemm", cases=["two"], vgpr=256, code_bytes=3500),
            entry("gather", status="failed"),
        ),
    )
    assert changes(tmp_path) == [
        ["gemm/triton on gfx942, 2 configurations: code bytes 3400 → 3500"],
        [],
        ["gemm/triton on gfx942, 2 configurations: vgpr 86 → 128 to 256, spills 0 → 4"],
    ]


def test_a_failure_and_its_end_are_steps(tmp_path):
    recorded(tmp_path, document(entry()), document(entry(status="failed")), document(entry()))
    broken, mended = (" ".join(sentences) for sentences in changes(tmp_path))
    assert "vgpr 86 → failed" in broken
    assert "vgpr failed → 86" in mended


def test_asv_compares_without_a_machine_and_times_beside_it_too(tmp_path):
    """The counts lie where asv finds one machine; beside it the measured records of another machine stay alone too."""
    shutil.copy(ROOT / "asv.isa.json", tmp_path)
    git(tmp_path, "init", "-q", "-b", "main")
    commits = []
    for number, one in enumerate((document(entry(vgpr=86)), document(entry(vgpr=90, code="b")))):
        git(tmp_path, "commit", "-q", "--allow-empty", "-m", f"{number}")
        commits.append(Repository(tmp_path).resolve("HEAD"))
        series.record(one, commits[-1], tmp_path / "results_isa", ASKED)
    (tmp_path / "results" / "mi300x").mkdir(parents=True)
    (tmp_path / "results" / "mi300x" / "machine.json").write_text(json.dumps({"machine": "mi300x", "version": 1}))
    command = ["asv", "--config", "asv.isa.json", "compare", "-f", "1", *(commit.hash for commit in commits)]
    done = subprocess.run([sys.executable, "-m", *command], cwd=tmp_path, capture_output=True, text=True, check=True)
    rows = [line.split("|")[1:6] for line in done.stdout.splitlines() if "gemm.track_isa_vgpr(" in line]
    assert [[cell.strip() for cell in row[:4]] for row in rows] == [["+", "86", "90", "1.05"]]
