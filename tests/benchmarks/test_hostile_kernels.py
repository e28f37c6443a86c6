"""Whatever a kernel does costs that kernel: it gets a status and a sentence, and the healthy one beside it is measured.

All of them are measured in one session, as in a run of all operators, so that what one does could reach every other.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from benchmarks.coordinator import ranks
from benchmarks.coordinator.checkouts import Checkout
from benchmarks.coordinator.trial import measure
from benchmarks.plan import Protocol, Selection
from benchmarks.program import Tally
from tests.benchmarks.conftest import TOY, lines_of, processes_with, program
from tests.benchmarks.hostile_kernels import HEALTHY, KERNELS, ORPHAN, WRITERS, HostileKernel
from tests.kit import mostly_nightly

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("hostile")]

MARK = f"86400.{os.getpid():07d}"
"""Seconds of sleep, in the command line of every process that a hostile kernel of these tests starts."""

QUICK = Protocol(rounds=3, trials=1, deadline_s=6.0)
LONGEST_SENTENCE = 1000
SHORT = ("--rounds", 2, "--progress", "none")

REPRESENTATIVES = (
    *("patches_dumps", "answers_itself", "writes_everywhere", "patches_compare", "finds_expected", "leaves_with_0"),
    *("falls", "kills_parent", "outlives_parent", "hangs_in_call", "leaves_children", "changes_folder", "disk_full"),
    *("endless_output", "import_exits", "import_endless_text"),
)
"""One of each kind; all of them are of the nightly set."""

IMPORTED = [kernel for kernel in KERNELS if kernel.status != "broken"]
BROKEN = [kernel for kernel in KERNELS if kernel.status == "broken"]
MANY = pytest.mark.parametrize("run", mostly_nightly(["few", "all"], "few"), indirect=True)


def tree_of(folder: Path, kernels: list[HostileKernel]) -> Path:
    """The toy tree, with these kernels."""
    shutil.copytree(TOY, folder, ignore=shutil.ignore_patterns("__pycache__"))
    for kernel in kernels:
        (folder / "toy" / f"{kernel.name}.py").write_text(kernel.source())
    return folder


def measured(tree: Path, names: list[str]) -> dict[str, dict[str, Any]]:
    """The lines of a run, by operator."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOY_SLEEP", MARK)
        patch.setattr(ranks, "MOST_PROCESSES", 40)
        cases = Selection(cases=("one", "small") if names != [HEALTHY] else ("small",))
        lines = list(measure(names, [Checkout("head", tree)], QUICK, None, cases))
    json.dumps(lines, allow_nan=False)
    return {line["kernel"]: line for line in lines}


def among(kernels: list[HostileKernel], which: str) -> list[HostileKernel]:
    """All of them, or the representatives ("few")."""
    return [kernel for kernel in kernels if which == "all" or kernel.name in REPRESENTATIVES]


@dataclasses.dataclass(frozen=True)
class HostileRun:
    """What came of kernels that can be imported, by operator, and of the healthy one beside modules that cannot."""

    called: list[HostileKernel]
    lines: dict[str, dict[str, Any]]
    broken: list[HostileKernel]
    described: dict[str, Any]


@pytest.fixture(scope="module")
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> HostileRun:
    """The healthy kernel comes last."""
    called, broken = among(IMPORTED, request.param), among(BROKEN, request.param)
    trees = [tree_of(tmp_path_factory.mktemp("hostile") / "tree", kernels) for kernels in (called, broken)]
    lines = measured(trees[0], [*(kernel.name for kernel in called), HEALTHY])
    return HostileRun(called, lines, broken, measured(trees[1], [HEALTHY])[HEALTHY])


def fit_to_be_shown(sentence: str) -> bool:
    return len(sentence) < LONGEST_SENTENCE and sentence.isprintable()


@MANY
def test_what_it_does_costs_itself(run):
    for kernel in run.called:
        line = run.lines[kernel.name]
        arm = line["cases"]["one"]["arms"]["head/hostile"]
        said = [arm.get("why", ""), *line["warnings"]]
        assert arm["status"] == kernel.status, (kernel.name, said)
        assert any(kernel.says in sentence for sentence in said), (kernel.name, said)
        assert all(map(fit_to_be_shown, said)), kernel.name
        assert ("seconds" in arm) == (kernel.status == "ok"), kernel.name


@MANY
def test_what_its_import_does_costs_its_module(run):
    reasons = {one["module"]: one["reason"] for one in run.described["trees"]["head"]["broken"]}
    for kernel in run.broken:
        assert kernel.says in reasons[f"toy.{kernel.name}"]
        assert fit_to_be_shown(reasons[f"toy.{kernel.name}"]), kernel.name


@MANY
def test_the_healthy_one_is_measured_and_right(run):
    for line in (run.lines[HEALTHY], run.described):
        arms = line["cases"]["small"]["arms"]
        for name in ("head/ours", "head/library"):
            assert arms[name]["status"] == "ok"
            assert arms[name]["error"] == {"norm": 0.0, "peak": 0.0}
            assert len(arms[name]["seconds"]) == QUICK.rounds
            assert all(0 < seconds < 0.1 for seconds in arms[name]["seconds"])


@MANY
def test_no_sound_module_is_taken_for_a_broken_one(run):
    found = {one["module"] for one in run.described["trees"]["head"]["broken"]}
    assert found == {f"toy.{one.name}" for one in run.broken}
    assert run.lines[HEALTHY]["trees"]["head"]["broken"] == []


@MANY
def test_the_run_ends_with_the_exit_code_of_a_fault(run):
    tally = Tally()
    for line in run.lines.values():
        tally.add_trial(line)
    assert tally.exit_code([]) == 1
    faults = {kernel.name for kernel in run.called if kernel.status not in ("ok", "unsupported")}
    assert {fault.kernel for fault in tally.faults} == faults
    assert all(map(fit_to_be_shown, tally.not_measured()))


@MANY
def test_nothing_is_left_running(run):
    assert processes_with(MARK) == []


STARTS = (("fork", ("long_text", "leaves_children")), ("spawn", ()))


@pytest.mark.parametrize(("start", "more"), mostly_nightly(STARTS, STARTS[0]))
def test_a_command_says_what_happened_and_prints_no_more_than_can_be_read(tmp_path, start, more):
    kernels = [ORPHAN, *(one for one in KERNELS if one.name in more)]
    names = [one.name for one in kernels]
    tree, out = tree_of(tmp_path / "tree", kernels), tmp_path / "trials.jsonl"
    asked = [word for name in (*names, HEALTHY) for word in ("--kernel", name)]
    what = (*SHORT, "--tree", f"head={tree}", "--out", out, "--trials", 1)
    ended = program("run", *what, *asked, RIDGELINE_START=start, TOY_SLEEP=MARK)
    assert ended.returncode == 1
    assert len(lines_of(out)) == len(names) + 1
    assert len(ended.stderr) < 5_000
    assert all(map(fit_to_be_shown, ended.stderr.splitlines()))
    assert "its parent was killed" in ended.stderr
    for name in (one for one in names if one != "long_text"):
        assert f"{name}: head: processes that a backend left running were ended: sleep" in ended.stderr
    assert processes_with(MARK) == []


@pytest.mark.nightly
def test_a_side_that_kills_the_parent_of_both_costs_the_other_side_nothing(tmp_path):
    killer = HostileKernel("twice", "crash", "its parent was killed", at_set_up="os.kill(os.getppid(), signal.SIGKILL)")
    sides = {"base": HostileKernel("twice", "ok"), "head": killer}
    trees = [Checkout(role, tree_of(tmp_path / role, [kernel])) for role, kernel in sides.items()]
    [line] = measure(["twice"], trees, QUICK)
    arms = line["cases"]["one"]["arms"]
    assert arms["base/hostile"]["status"] == "ok", arms["base/hostile"]["why"]
    assert len(arms["base/hostile"]["seconds"]) == QUICK.rounds
    assert arms["head/hostile"]["status"] == "crash"
    assert killer.says in arms["head/hostile"]["why"]


@pytest.mark.parametrize("written", WRITERS)
def test_nothing_is_measured_after_a_kernel_that_changes_what_later_processes_read(tmp_path, written):
    tree, out = tree_of(tmp_path / "tree", [WRITERS[written]]), tmp_path / "trials.jsonl"
    asked = [word for name in (HEALTHY, WRITERS[written].name) for word in ("--kernel", name)]
    cases = ("--case", "small", "--case", "one", "--trials", 2)
    ended = program("run", *SHORT, "--tree", f"head={tree}", "--out", out, *asked, *cases, HOME=str(tmp_path / "home"))
    assert ended.returncode == 3
    [said] = ended.stderr.splitlines()
    assert f"{written} changed while {WRITERS[written].name} was measured: by a kernel, or by somebody" in said
    assert [line["kernel"] for line in lines_of(out)] == [HEALTHY]
