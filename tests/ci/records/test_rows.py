"""Stock asv, unpatched, in a real git repository with our plug-in and suite; and on what `record` writes."""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from asv.config import Config
from asv.repo import get_repo
from asv.util import UserError

from ci import asv_plugin
from ci.records import store
from ci.records import store as records
from tests import kit
from tests.ci.made_trials import HEAD, declaration, ok, tree, trial, write
from tests.kit import git, repository

ROOT = Path(__file__).resolve().parents[3]
MACHINE, ENV = "toy-cpu2-0a1b2c3d", "py3.12-torch2.11.0-triton3.6.0"

TOY = """
YARDSTICK = "{yardstick}"
CASES = {{"small": 1000, "middle": 2000, "big": 4000}}
def ours(n):
    return {work} * n * 1e-7
def library(n):
    return n * 1e-7
def narrow(n):
    if n > 1000:
        raise NotImplementedError("more than 1000 elements do not fit; split the row")
    return n * 1e-7
def wrong(n):
    raise ValueError("the first wrong element is at 7")
BACKENDS = {{"ours": ours, "library": library, "narrow": narrow, "wrong": wrong}}
"""


class Project:
    """A throw-away repository with commits of a toy kernel."""

    def __init__(self, root):
        self.root, self.home = root / "project", root / "home"
        self.home.mkdir()
        (self.root / "benchmarks").mkdir(parents=True)
        shutil.copytree(ROOT / "ci", self.root / "ci")  # with what is compiled
        shutil.copy(ROOT / "benchmarks/lifetime.py", self.root / "benchmarks/lifetime.py")
        shared = (f"benchmarks/{name}.py" for name in ("__init__", "suite", "trial_file", "shapes", "points"))
        for name in ("asv.conf.json", *shared):
            shutil.copy(ROOT / name, self.root / name)
        shutil.copy(Path(__file__).with_name("toy_harness.py"), self.root / "benchmarks" / "__main__.py")
        # asv imports every module of benchmarks/: one of these would count as a benchmark, the other end discovery
        (self.root / "benchmarks" / "clocks.py").write_text("def time_events(x):\n    return x\n")
        (self.root / "benchmarks" / "worker.py").write_text("raise RuntimeError('imported by asv')\n")
        (self.root / ".gitignore").write_text("__pycache__/\n.asv/\nresults/\n")
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments):
        return git(self.root, *arguments)

    def commit(self, message):
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message)
        return self.git("rev-parse", "HEAD")

    def asv(self, *arguments, code=0, **environment):
        env = {**os.environ, "HOME": str(self.home), "COLUMNS": "200", "RIDGELINE_ROUNDS": "40", **environment}
        command = [sys.executable, "-m", "asv", *arguments]
        done = subprocess.run(command, cwd=self.root, env=env, capture_output=True, text=True)
        output = done.stdout + done.stderr
        assert code is None or done.returncode == code, output
        return output

    def record(self, commit):
        return json.loads((self.root / "results" / MACHINE / f"{commit[:8]}-{ENV}.json").read_text())

    def measured(self):
        return (self.root / ".asv" / "env" / ENV / "measured.log").read_text().split("\n")[:-1]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Commits: before kernels/ existed; two kernels; one of them twice as slow (and a module that does not import)."""
    project = Project(tmp_path_factory.mktemp("asv"))
    project.old = project.commit("before there were kernels")
    (project.root / "kernels").mkdir()
    (project.root / "kernels" / "toy.py").write_text(TOY.format(work=1, yardstick="a" * 16))
    (project.root / "kernels" / "other.py").write_text(TOY.format(work=1, yardstick="c" * 16))
    project.fast = project.commit("fast")
    (project.root / "kernels" / "toy.py").write_text(TOY.format(work=2, yardstick="a" * 16))
    (project.root / "kernels" / "broken.py").write_text("import nothing_like_this\n")
    project.slow = project.commit("slow")
    project.output = project.asv("run", "--show-stderr", "main", "--bench", "toy", "--bench", "broken", code=2)
    return project


def table(project, commit, name="toy.track_time"):
    """Values by parameters, of the asv file of a commit."""
    row = project.record(commit)["results"][name]
    keys = itertools.product(*[[text[1:-1] for text in axis] for axis in row[1]])
    return dict(zip(keys, row[0], strict=True))


def lines_of(output, name):
    return [line for line in output.splitlines() if name in line]


# ---- asv run ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_range_of_commits_is_measured(project):
    fast, slow = table(project, project.fast), table(project, project.slow)
    assert slow["ours", "small"] / fast["ours", "small"] == pytest.approx(2, rel=1e-6)
    assert slow["library", "small"] / fast["library", "small"] == pytest.approx(1, rel=1e-6)
    assert table(project, project.fast, "toy.track_flops") == {("small",): 2000, ("middle",): 4000, ("big",): 8000}


@pytest.mark.slow
def test_a_kernel_is_measured_once_for_all_its_combinations(project):
    measured = project.measured()[:2]
    assert measured == [f"toy {project.slow[:8]}", f"toy {project.fast[:8]}"], "and `other` not at all"


@pytest.mark.slow
def test_what_is_unsupported_is_na_and_what_failed_is_null_and_both_say_why(project):
    values = table(project, project.fast)
    assert math.isnan(values["narrow", "middle"])
    assert values["wrong", "small"] is None
    assert "more than 1000 elements do not fit; split the row" in project.output
    assert "the first wrong element is at 7" in project.output


@pytest.mark.slow
def test_a_case_of_another_tier_is_na(project):
    assert math.isnan(table(project, project.fast)["ours", "big"])
    assert "has no time of it in tier 'pr' (RIDGELINE_TIER)" in project.output


@pytest.mark.slow
def test_a_commit_before_there_were_kernels_is_na(project):
    assert all(math.isnan(value) for value in table(project, project.old).values())
    assert f"commit {project.old[:8]} declares no kernel 'toy'" in project.output


@pytest.mark.slow
def test_broken_modules_are_counted_and_take_nothing_down(project):
    assert [project.record(c)["results"]["track_broken_modules"][0] for c in (project.fast, project.slow)] == [[0], [1]]
    assert "kernels.broken: ModuleNotFoundError" in project.output


@pytest.mark.slow
def test_nobody_ran_asv_machine_and_the_machine_has_its_own_name(project):
    assert [folder.name for folder in (project.root / "results").iterdir() if folder.is_dir()] == [MACHINE]
    assert json.loads((project.root / "results" / MACHINE / "machine.json").read_text()) == {
        "machine": MACHINE,
        "kind": "cpu",
        "arch": "cpu",
        "device": "toy cpu",
        "cpu_count": "2",
        "version": 1,
    }


@pytest.mark.slow
def test_the_trials_are_beside_the_result_and_both_agree(project):
    frame = records.load(project.root / "results")
    assert frame.attrs["problems"] == []
    found = frame.set_index(["commit", "kernel", "backend", "case"])
    for commit in (project.fast, project.slow):
        for key, value in table(project, commit).items():
            if value is not None and not math.isnan(value):
                assert found.loc[(commit, "toy", *key), "seconds"] == pytest.approx(value)
    assert found.loc[(project.fast, "toy", "narrow", "middle"), "status"] == "unsupported"
    assert found.loc[(project.fast, "toy", "wrong", "middle"), "why"] == "ValueError: the first wrong element is at 7"
    [notes] = records.trials(project.root / "results", records.Place(MACHINE, project.fast, ENV))
    assert notes.checkouts["head"].commit == project.fast


@pytest.mark.slow
def test_nothing_but_a_worktree_is_left(project):
    assert project.git("status", "--porcelain") == ""
    assert f".asv/env/{ENV}/project" in project.git("worktree", "list")


# ---- the other commands -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_compare_tells_the_right_direction(project):
    worse = project.asv("compare", project.fast, project.slow)
    [line] = lines_of(worse, "toy.track_time('ours', 'small')")
    assert re.match(r"\| \+ .*\| +(1\.[5-9]|2\.)\d+ ", line), worse
    better = project.asv("compare", project.slow, project.fast)
    assert lines_of(better, "toy.track_time('ours', 'small')")[0].startswith("| - ")
    [same] = lines_of(worse, "toy.track_time('library', 'small')")
    assert not same.startswith(("| + ", "| - "))
    [failed] = lines_of(worse, "toy.track_time('wrong', 'small')")
    assert "failed" in failed


@pytest.mark.slow
def test_show_and_publish(project):
    assert "toy.track_time" in project.asv("show", project.fast[:8])
    project.asv("publish", "--no-pull", "-o", str(project.home / "html"))
    index = json.loads((project.home / "html" / "index.json").read_text())
    assert index["benchmarks"]["toy.track_time"]["unit"] == "seconds"
    assert index["params"]["machine"] == [MACHINE]
    graphs = [
        path for path in (project.home / "html" / "graphs").rglob("toy.track_time.json") if "summary" not in path.parts
    ]
    assert len(graphs) == 1, "one series, not one for every commit"


@pytest.mark.slow
def test_continuous_measures_both_and_exits_with_1(project):
    before = len(project.measured())
    output = project.asv(
        "continuous", "--bench", r"toy.track_time\('(ours|library)'", project.fast, project.slow, code=1
    )
    assert "PERFORMANCE DECREASED" in output, output
    assert lines_of(output, "toy.track_time('ours', 'small')")[0].startswith("| + ")
    assert len(project.measured()) == before + 2
    assert len(records.trials(project.root / "results", records.Place(MACHINE, project.fast, ENV))) == 2, (
        "earlier trials are kept"
    )
    assert len(project.record(project.fast)["results"]["toy.track_time"][7]) == 12


@pytest.mark.nightly
def test_find_finds_it_and_a_dry_run_saves_nothing(project):
    before = {file: file.read_bytes() for file in (project.root / "results").rglob("*.notes.jsonl*")}
    output = project.asv("find", "--skip-save", f"{project.old}..main", "toy.track_time")
    assert f"Greatest regression found: {project.slow[:8]}" in output, output
    output = project.asv("run", "--dry-run", f"{project.fast}^!", "--bench", "other.track_time", code=2)
    assert "other.track_time" in output
    changed = {f for f in before if f.read_bytes() != before[f]}
    assert before
    assert not changed, "asv itself rewrites what it discovered, which is made of the records and not one of them"


@pytest.mark.slow
def test_an_existing_environment_is_refused(project):
    """asv find -E existing measures one and the same installed code under many commits' names, and saves it."""
    output = project.asv("find", "--verbose", "-E", "existing:same", f"{project.old}..main", "toy.track_time", code=1)
    assert "this suite runs in the environment type 'worktree'" in output, output
    assert "Failed to build the project and import the benchmark suite" in output


def test_too_few_rounds_and_unknown_tiers_are_refused():
    assert asv_plugin.chosen_tier({}) == "pr"
    assert asv_plugin.chosen_tier({"RIDGELINE_TIER": "sweep", "RIDGELINE_ROUNDS": "7"}) == "sweep"
    with pytest.raises(UserError, match="never calls anything different"):
        asv_plugin.chosen_tier({"RIDGELINE_ROUNDS": "6"})
    with pytest.raises(UserError, match="one of pr, nightly, sweep"):
        asv_plugin.chosen_tier({"RIDGELINE_TIER": "weekly"})


def test_commits_that_a_merge_brought_in_are_on_asvs_pages(tmp_path):
    folder = repository(tmp_path)
    git(folder, "checkout", "-q", "-b", "side")
    merged = kit.commit(folder, "of a branch")
    git(folder, "checkout", "-q", "main")
    kit.commit(folder, "meanwhile")
    git(folder, "merge", "-q", "--no-ff", "-m", "both", "side")
    conf = Config.load(str(ROOT / "asv.conf.json"))
    conf.repo = str(folder)
    assert merged in get_repo(conf).get_branch_commits("main")


@pytest.mark.parametrize(
    ("words", "saved"),
    [
        ("run main^!", True),
        ("continuous", True),
        ("run -n", False),
        ("run --dry-run", False),
        ("run --dry", False),
        ("find --skip-save a..b x", False),
    ],
)
def test_it_is_known_whether_asv_saves(words, saved):
    assert asv_plugin.saves(["asv", *words.split()]) is saved


# ---- yardsticks and grids that move with the commit ---------------------------------------------------------------


@pytest.mark.slow
def test_rows_of_another_version_are_marked_by_asv(project, tmp_path):
    """The trap behind explicit versions: asv marks the pair with x and leaves the older one out of its pages."""
    results = tmp_path / "results"
    for commit, digit, date in ((project.fast, "1", 1_000), (project.slow, "2", 2_000)):
        trees = {"head": tree(commit, declared=declaration(yardstick=digit * 16), date_ms=date)}
        records.record([write(tmp_path / f"{digit}.jsonl", trial(trees=trees))], results)
    config = {
        "version": 1,
        "repo": str(project.root),
        "project": "p",
        "results_dir": str(results),
        "environment_type": "virtualenv",
    }
    (tmp_path / "asv.conf.json").write_text(json.dumps(config))
    output = project.asv("--config", str(tmp_path / "asv.conf.json"), "compare", project.fast, project.slow)
    assert lines_of(output, "gemm.track_time('triton', 'm16')")[0].startswith("| x ")


# The ratio to the fastest baseline of the same trial, against a plain calculation, and what of a record it needs.


CASE = "m16"


def two_baselines():
    return declaration(backends=("triton", "blas", "other")) | {"baselines": ["blas", "other"]}


def rows(tmp_path, *trials):
    store.record([write(tmp_path / "trials.jsonl", *trials)], tmp_path / "results")
    return store.load(tmp_path / "results").set_index(["backend", "case"])


def drifting(number, ours, blas, other):
    """A trial whose clock drifts by 30 %: all arms alike, round by round."""
    drift = np.linspace(1, 1.3, 9)
    arms = {f"head/{name}": ok(list(s * drift)) for name, s in (("triton", ours), ("blas", blas), ("other", other))}
    return trial({CASE: arms}, number, trees={"head": tree(HEAD, declared=two_baselines())})


def test_the_median_over_trials_of_the_ratio_to_the_fastest_baseline(tmp_path):
    found = rows(tmp_path, *(drifting(n, 1e-3, blas * 1e-3, 9e-4) for n, blas in enumerate((1.5, 1.6, 1.7))))
    row = found.loc[("triton", CASE)]
    assert row["paired_with"] == "other"
    assert row["paired_ratio"] == pytest.approx(0.9)
    assert row["paired_low"] == pytest.approx(0.9 * 0.999), "no narrower than a ratio repeats"
    assert found.loc[("blas", CASE), "paired_with"] == ""
    assert math.isnan(found.loc[("blas", CASE), "paired_ratio"])


def test_the_interval_is_over_trials(tmp_path):
    levels = (0.90, 0.91, 0.93)
    row = rows(tmp_path, *(drifting(n, 1e-3, level * 1e-3, 1) for n, level in enumerate(levels))).loc[("triton", CASE)]
    logs = np.log(levels)
    reach = 9.925 * np.std(logs, ddof=1) / math.sqrt(3)  # Student's t, 2 degrees, 99 %
    assert row["paired_ratio"] == pytest.approx(0.91)
    assert (row["paired_low"], row["paired_high"]) == pytest.approx(
        (math.exp(logs.mean() - reach), math.exp(logs.mean() + reach)), rel=1e-4
    )


def test_versions_and_machine_code_stand_beside_the_time(tmp_path):
    coded, trees = ok() | {"code_hash": "c0de" * 4}, {"head": tree() | {"kernel_digest": "f11e" * 4}}
    found = rows(tmp_path, trial({CASE: {"head/triton": coded, "head/blas": ok()}}, trees=trees))
    row = found.loc[("triton", CASE)]
    said = (row["driver"], row["runtime"], row["library"], row["torch"], row["triton"])
    assert said == ("570.1", "CUDA 13.0", "NCCL 2.28", "2.11.0+cu130", "3.6.0")
    assert row["code"] == "c0de" * 4 + " BLOCK_M=128"
    assert found.loc[("blas", CASE), "code"] == "f11e" * 4 + " BLOCK_M=128", "its files, where no machine code is known"


def test_on_amd_the_runtime_is_hip_and_the_library_rccl(tmp_path):
    versions = {"python": "3.12.3", "torch": "2.9", "triton": "3.5", "hip": "7.1.2", "nccl": "2.27.7"}
    row = rows(tmp_path, trial(trees={"head": tree(environment=versions)})).loc[("triton", CASE)]
    assert (row["runtime"], row["library"]) == ("HIP 7.1.2", "RCCL 2.27.7")
