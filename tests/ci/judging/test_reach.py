"""What is left out of a comparison: read from folders and from git alike, named, and never a pass by itself."""

from __future__ import annotations

from importlib import metadata
from types import SimpleNamespace

import pytest

from benchmarks.reach import Reach
from ci.harness import MeasurePlan
from ci.judging import reach
from ci.judging.types import Judgement, Verdict, to_json
from tests.benchmarks.test_reach import SOURCES, sources_in
from tests.kit import commit, git, repository

FOUND = Reach(("all_gather", "softmax"), {"gemm": ("kernels/gemm/launch.py",)})


def test_commits_are_read_from_git_as_from_their_folders(tmp_path):
    sources_in(tmp_path, {})
    base = git(repository(tmp_path), "rev-parse", "HEAD")
    [before] = reach.trees_of(tmp_path, [base])
    assert before.layout == sources_in(tmp_path, {}).layout
    assert before.files == {path: sources_in(tmp_path, {}).digest(path) for path in sources_in(tmp_path, {}).files}
    changed = {
        "kernels/gemm/launch.py": SOURCES["kernels/gemm/launch.py"] + "more = 'é'\n",
        "kernels/gemm/data.bin": "\x00",
    }
    sources_in(tmp_path, changed)
    head = commit(tmp_path)
    assert reach.of_commits(tmp_path, base, head).differing == {"gemm": tuple(sorted(changed))}
    assert set(reach.of_commits(tmp_path, base, base).same) == {"gemm", "gather", "reduce"}


@pytest.mark.parametrize("name", ["ridgeline.toml", "pyproject.toml"])
def test_packages_are_those_that_the_commit_lists_in_either_file(tmp_path, name):
    (tmp_path / name).write_text(
        'kernels = ["perf"]' if name == "ridgeline.toml" else '[tool.ridgeline]\nkernels = ["perf"]'
    )
    assert reach.trees_of(repository(tmp_path), ["HEAD"])[0].layout.packages == ("perf",)


@pytest.mark.parametrize(
    ("asked", "measured", "out"),
    [
        ((), ("gemm",), ("all_gather", "softmax")),
        (("gemm",), ("gemm",), ()),
        (("softmax",), (), ("softmax",)),
        (("softmax", "misspelt"), ("misspelt",), ("softmax",)),
    ],
)
def test_a_plan_keeps_what_can_differ(asked, measured, out):
    plan = MeasurePlan(kernels=asked)
    assert reach.narrowed(plan, FOUND).kernels == measured
    assert reach.left_out(plan, FOUND) == out
    assert all(name in reach.sentence(plan, FOUND) for name in (*measured, *out))


def test_nothing_is_left_out_where_nothing_is_known():
    plan, unknown = MeasurePlan(), Reach(unknown="a name cannot be read")
    assert reach.narrowed(plan, unknown) == plan
    assert reach.left_out(plan, unknown) == ()
    assert reach.sentence(plan, unknown) == "a name cannot be read: everything is measured"


def test_what_is_left_out_does_not_change_a_verdict_but_is_told():
    doubt = Judgement(Verdict.CANNOT_TELL, "no trial fits the run")
    found = reach.with_left_out(doubt, ("softmax",))
    assert (found.verdict, found.unreached) == (Verdict.CANNOT_TELL, ("softmax",))
    assert "softmax" in to_json(found)["unreached"]
    alone = reach.with_left_out(Judgement(Verdict.SAME, "nothing differs"), ("softmax",))
    assert (alone.verdict, alone.why) == (Verdict.SAME, "no changed file can reach softmax")
    assert reach.with_left_out(doubt, ()) is doubt


@pytest.mark.parametrize(
    ("reach", "nothing"), [(Reach(("a",)), True), (Reach((), {"a": ("f",)}), False), (Reach((), {}, "no file"), False)]
)
def test_no_operator_can_differ_where_none_does_and_that_is_known(reach, nothing):
    assert reach.nothing is nothing


def test_a_file_of_a_submodule_that_head_lacks_is_named(tmp_path):
    sides = [SimpleNamespace(role=role, path=tmp_path, missing={}) for role in ("base", "head")]
    sides[1].missing["lib/"] = "lib/ is empty"
    inside = Reach((), {"gemm": ("lib/tile.py",)})
    assert reach.doubts(MeasurePlan(), inside, sides, ()) == ["head lacks what base has: lib/ is empty"]


# A pin that the environment does not follow is named; one that changes nothing here is not.


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("requirements.txt", "numpy==1.0", "numpy==2.0", "base asks"),
        ("requirements.txt", "no-such-package==1.0", "no-such-package==2.0", ""),
        (
            "requirements.lock",
            "numpy==1.0 \\\n --hash=sha256:ab",
            "numpy==2.0 \\\n --hash=sha256:cd",
            "head asks for numpy==2.0",
        ),
        (
            "pyproject.toml",
            '[project]\ndependencies = ["numpy==1.0"]',
            "[project]\ndependencies = []",
            "base asks for numpy==1.0",
        ),
        (
            "uv.lock",
            '[[package]]\nname = "numpy"\nversion = "1.0"',
            '[[package]]\nname = "numpy"\nversion = "2.0"',
            "1.0",
        ),
        ("requirements.txt", "numpy==1.0\ntorch>=99", "numpy==1.0\ntorch>=99\nno such line\nnumpy>=1.0", ""),
        ("requirements.txt", "-r other.txt\nnumpy==1.0", "-e .\nnumpy==2.0  # newer", "head asks"),
    ],
)
def test_a_pin(tmp_path, file, old, new, said):
    for side, text in (("base", old), ("head", new)):
        (tmp_path / side).mkdir()
        (tmp_path / side / file).write_text(text)
    found = reach.pins_not_installed(tmp_path / "base", tmp_path / "head")
    assert len(found) == bool(said)
    for sentence in found:
        assert said in sentence
        assert f"{metadata.version('numpy')} is installed" in sentence
        assert "--env-base" in sentence


def test_a_file_that_git_ignores_pins_nothing(tmp_path):
    (tmp_path / "base").mkdir()
    repository(tmp_path / "head", **{".gitignore": "*.lock\n"})
    (tmp_path / "head" / "uv.lock").write_text('[[package]]\nname = "numpy"\nversion = "1.0"\n')
    assert reach.pins_not_installed(tmp_path / "base", tmp_path / "head") == []
    (tmp_path / "head" / ".gitignore").write_text("")
    assert "head asks for numpy==1.0 " in reach.pins_not_installed(tmp_path / "base", tmp_path / "head")[0]
