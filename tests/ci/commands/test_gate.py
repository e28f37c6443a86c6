"""`ridgeline gate --trials`: what a leg handed over, judged in a clone of the default branch."""

from __future__ import annotations

import dataclasses
import json

import pytest

from ci.commands import gate
from ci.judging import recorded
from ci.records import store
from ci.records.ledger import CAUSES, Explanation, RecordedCause
from ci.report import json_report
from tests.ci import made_trials
from tests.ci import made_trials as made
from tests.ci.isa.documents import document_json, entry_json
from tests.ci.judging.test_claims import sealed
from tests.ci.judging.test_live import Player, play
from tests.ci.made_trials import declaration, ok, tree
from tests.kit import commit, git, repository, ridgeline

GATE = "gate --pool h200 --gpus 1 --trials trials.jsonl --report out"
MACHINE = {**made.MACHINE, "name": "h200x1-1a2b3c4d", "count": 1}
ONE = "a" * 40
PROJECT = '[tool.ridgeline]\nkernels = ["kernels"]\n'


class Scene:
    """A clone of the default branch, a hub with a fork's commit, and the trial file of the leg that measured it."""

    def __init__(self, folder, monkeypatch):
        self.hub, self.clone = folder / "hub", folder / "clone"
        self.hub.mkdir()
        git(self.hub, "init", "-q", "-b", "main")
        self.base = commit(self.hub, kernels__a="one", pyproject="")
        (self.hub / "pyproject.toml").write_text(PROJECT)
        declared = "from kernels.spec import Kernel\ngemm = Kernel('gemm')\n"
        commit(self.hub, **{"kernels__spec.py": "SPEC_VERSION = 1\n", "kernels__gemm.py": declared})
        self.base = commit(self.hub)
        git(self.hub, "checkout", "-q", "-b", "fork")
        self.head = commit(self.hub, kernels__a="two")
        self.same = commit(self.hub, kernels__a="one", notes="words")
        git(self.hub, "checkout", "-q", "main")
        commit(self.hub, readme="main went on")
        git(folder, "clone", "-q", "--single-branch", str(self.hub), str(self.clone))
        monkeypatch.chdir(self.clone)

    def measured(self, slower=0.0, change=lambda line: None):
        out = self.clone / "live.jsonl"
        out.unlink(missing_ok=True)
        play(Player(slower), out)
        lines = [json.loads(line) for line in out.read_text().splitlines()]
        for line in lines:
            line["machine"] = MACHINE
            line["trees"]["base"]["commit"], line["trees"]["head"]["commit"] = self.base, self.head
            change(line)
        made.write(self.clone / "trials.jsonl", *map(sealed, lines))

    def gate(self, *more, head=""):
        return ridgeline(*GATE.split(), "--head", head or self.head, *more)

    @property
    def report(self):
        return json_report.read(self.clone / "out.json")


@pytest.fixture
def scene(tmp_path, monkeypatch):
    return Scene(tmp_path, monkeypatch)


@pytest.mark.parametrize(("slower", "code"), [(0.0, 0), (0.03, 1)])
def test_a_forks_trials_are_judged_here(scene, slower, code):
    scene.measured(slower)
    done = scene.gate()
    assert done.exit_code == code, done.output
    report = scene.report
    assert (report.base.commit, report.head.commit) == (scene.base, scene.head)
    assert report.title == "pull request on h200, 1 GPU"


def test_the_report_says_which_trials_come_from_an_untrusted_tree(scene):
    scene.measured()
    scene.gate()
    (said, *_) = scene.report.warnings
    trials = (scene.clone / "trials.jsonl").read_text().count("\n")
    assert said.text.startswith(f"{trials} trials judged here; these trials come from an untrusted tree")
    assert "cannot be shown" in recorded.UNTRUSTED
    assert "untrusted tree" in (scene.clone / "out.md").read_text()


def test_a_commit_of_this_branch_is_no_stranger(scene):
    git(scene.clone, "fetch", "-q", "origin", "fork")
    git(scene.clone, "merge", "-q", "FETCH_HEAD")
    scene.measured()
    scene.gate("--base", scene.base)
    assert not any("untrusted" in str(warning) for warning in scene.report.warnings)


@pytest.mark.parametrize(
    ("change", "more", "said"),
    [
        (lambda line: line["trees"]["head"].update(commit="c" * 40), (), "is refused: it says its head is"),
        (lambda line: line.update(machine={**MACHINE, "market_name": "H100 SXM"}), (), "is refused: "),
        (lambda line: None, ("--base", "d" * 40), "is refused: it says its base is"),
    ],
    ids=("commit", "machine", "base"),
)
def test_trials_of_another_run_are_no_verdict(scene, change, more, said):
    scene.measured(0.0, change)
    assert scene.gate(*more).exit_code == 2
    assert said in (scene.clone / "out.md").read_text()


def test_a_hosted_machine_is_a_cpu(scene):
    hosted = ["gate", "--pool", "hosted", "--trials", "trials.jsonl", "--head", scene.head]
    scene.measured()
    assert ridgeline(*hosted).exit_code == 2
    scene.measured(0.05, lambda line: line.update(machine={**MACHINE, "kind": "cpu", "market_name": None}))
    assert ridgeline(*hosted).exit_code == 1


def with_cause(scene, **changes):
    """Trials of a slower head, and what the leg says why."""
    scene.measured(0.03)
    cases = ("gemm/triton/m16", "gemm/triton/m64")
    cause = Explanation(cases, cases[0], "proven", "knob num_stages 3 → 2: proven", code=("LDS bytes: 3 → 2",))
    told = RecordedCause(MACHINE["name"], scene.base, scene.head, cause)
    with (scene.clone / "trials.jsonl").open("a") as file:
        file.write(f"{CAUSES.line(dataclasses.replace(told, **changes))}\n")


def test_a_cause_is_what_the_leg_says_and_the_report_says_so(scene):
    with_cause(scene)
    assert scene.gate().exit_code == 1
    (why,) = scene.report.explanations
    assert (why.state, why.code) == ("proven", ("LDS bytes: 3 → 2",))
    assert gate.CAUSES_OF_HOST in map(str, scene.report.warnings)
    assert "### Why: 2 cases" in (scene.clone / "out.md").read_text()


@pytest.mark.parametrize("change", [{"machine": "h200x1-ffffffff"}, {"base": "c" * 40}, {"head": "c" * 40}])
def test_a_cause_of_another_run_is_none_and_changes_no_verdict(scene, change):
    with_cause(scene, **change)
    assert scene.gate().exit_code == 1
    assert scene.report.explanations == ()


def test_a_leg_without_trials_is_told(scene):
    assert scene.gate().exit_code == 2
    assert "handed over no trial file" in scene.report.judgement.why


# ---- what the run says that it compiled ------------------------------------------------------------------------------


def code(scene, base, head):
    (scene.clone / "code").mkdir()
    (scene.clone / "code/base.json").write_text(base)
    (scene.clone / "code/head.json").write_text(head)


def test_compiled_code_that_spills_is_a_regression_by_our_rules(scene):
    scene.measured()
    spilling = entry_json("gemm", "b", vgpr_spills=65, scratch_bytes=260, scratch_ops=130, scratch_ops_in_loops=40)
    code(scene, *(json.dumps(document_json(one)) for one in (entry_json("gemm", "a"), spilling)))
    assert scene.gate("--code", "code").exit_code == 1
    assert any("gemm/triton on gfx942" in one and "SLOWER" in one for one in scene.report.judgement.machine_code)
    assert gate.CLAIMED_CODE in scene.report.judgement.warnings


@pytest.mark.parametrize("head", ["{}", "no JSON", "[" * 100_000, '{"format": "ridgeline-isa", "version": 1}'])
def test_compiled_code_that_cannot_be_read_is_told_and_hides_nothing(scene, head):
    scene.measured(0.03)
    code(scene, json.dumps(document_json(entry_json())), head)
    assert scene.gate("--code", "code").exit_code == 1
    assert any("could not be compared" in one for one in scene.report.judgement.warnings)


# ---- usage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("gate --trials t.jsonl --pool h200", "--trials needs --head SHA and --pool NAME"),
        ("gate a b --trials t.jsonl --pool h200 --head " + ONE, "takes no BASE HEAD"),
        ("gate --trials t.jsonl --pool h200 --head main", "not a full commit hash"),
        ("gate --trials t.jsonl --pool h200 --head " + ONE, "left this branch is not known"),
        ("gate", "BASE and HEAD are missing"),
    ],
)
def test_what_was_asked_wrongly_leaves_with_3(scene, arguments, said):
    done = ridgeline(*arguments.split())
    assert done.exit_code == 3, done.output
    assert said in done.output


# `ridgeline gate BASE HEAD` in a repository: what was recorded, what was not, and names that head gave up.

SETTINGS = 'kernels = ["perf"]\n'
GEMM = "from ridgeline.spec import Kernel\ngemm = Kernel('gemm')\n"


@pytest.fixture
def root(tmp_path, monkeypatch):
    folder = repository(tmp_path / "r", **{"ridgeline.toml": SETTINGS, "perf/gemm.py": GEMM, "perf/__init__.py": ""})
    monkeypatch.chdir(folder)
    return folder


def record(root, *kernels, cases=("m16",), count=4):
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


def test_what_differs_and_was_not_recorded_is_no_pass(root):
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


def test_a_renamed_case_that_was_recorded_apart_is_no_pass(root):
    record(root, "gemm", cases=("m16", "m64"))
    settings = f'{SETTINGS}renamed = {{"gemm/m16" = "gemm/decode"}}\n'
    commit(root, **{"perf/gemm.py": f"{GEMM}a = 1\n", "ridgeline.toml": settings})
    record(root, "gemm", cases=("decode", "m64"))
    done = ridgeline("gate", "HEAD^", "HEAD", "--json")
    [one] = json.loads(done.stdout)
    verdicts = {case["case"]: case["verdict"] for case in one["cases"]}
    renamed = {"gemm/triton/m16": "GONE", "gemm/triton/decode": "NEW"}
    assert (done.exit_code, verdicts) == (2, {**renamed, "gemm/triton/m64": "SAME"})
    assert "`ridgeline ab`" in done.stdout


def test_a_record_that_cannot_be_read_is_named_and_is_no_pass(root):
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


def test_commits_with_equal_files_are_the_same_whatever_is_recorded(root):
    commit(root, **{"notes.md": "a word"})
    done = ridgeline("gate", "HEAD^", "HEAD")
    assert (done.exit_code, "SAME the same kernel files on both sides" in " ".join(done.stdout.split())) == (0, True)
