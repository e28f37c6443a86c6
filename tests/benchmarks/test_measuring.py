"""Whole trials on real processes: what is measured, in which order, and what becomes of each fault."""

from __future__ import annotations

import itertools
import json
import random
import re
import sys

import pytest

from benchmarks.coordinator import ranks, samples
from benchmarks.coordinator.checkouts import Checkout, CheckoutError
from benchmarks.coordinator.samples import shuffled
from benchmarks.coordinator.trial import Session, measure
from benchmarks.plan import PlannedArm, Protocol, Selection, UsageError
from benchmarks.worker import declare
from tests.benchmarks.conftest import processes_with

QUICK = Protocol(rounds=6, trials=1, deadline_s=30.0)


def one_line(tree, kernel, protocol=QUICK, selection=None):
    lines = list(measure([kernel], [Checkout("head", tree)], protocol, None, selection))
    assert len(lines) == 1
    json.dumps(lines, allow_nan=False)
    return lines[0]


@pytest.mark.slow
def test_a_trial_of_a_sound_kernel(toy_tree, toy_log):
    tree, events = toy_tree("tree"), []
    selection = Selection(tier="sweep", knobs={"order": "columns"})
    [line] = measure(
        ["steady"], [Checkout("head", tree, commit="c" * 40, date_ms=1, dirty=False)], QUICK, events.append, selection
    )
    assert {name: {a["status"] for a in case["arms"].values()} for name, case in line["cases"].items()} == {
        "small": {"ok", "unsupported"},
        "other": {"ok", "unsupported"},
        "huge": {"skipped"},
        "crowd": {"skipped"},
        "costless": {"error"},
    }
    small = line["cases"]["small"]
    assert small["method"] == "clock"
    for arm in ("head/ours", "head/library"):
        assert len(small["arms"][arm]["seconds"]) == 6
        assert all(0 < s < 0.1 for s in small["arms"][arm]["seconds"])
        assert small["arms"][arm]["error"] == {"norm": 0.0, "peak": 0.0}
        assert small["arms"][arm]["skew_s"] is None
    assert small["arms"]["head/ours"]["knobs"] == {"tile": 16, "order": "columns"}
    assert small["arms"]["head/elsewhere"] == {
        "status": "unsupported",
        "why": "needs a device of the next decade",
        "detail": "",
    }
    assert "too large for a CPU" in line["cases"]["huge"]["arms"]["head/ours"]["why"]
    assert "needs 512 ranks" in line["cases"]["crowd"]["arms"]["head/ours"]["why"]
    assert "no cost below zero" in line["cases"]["costless"]["arms"]["head/ours"]["why"]
    assert line["trees"]["head"]["commit"] == "c" * 40
    assert line["trees"]["head"]["declaration"]["baselines"] == ["library"]
    assert line["machine"]["kind"] == "cpu"
    assert line["state"]["before"] is None
    assert line["state"]["why_absent"]
    assert line["preflight"]["facts"]["gpus"] == []
    logged = toy_log.read_text().splitlines()
    assert "tree reference small 0 cpu cpu" in logged
    assert "tree knobs 16 columns" in logged
    assert events[-1] == {"done": 5, "total": 5, "what": "done"}
    assert processes_with(tree) == []


@pytest.mark.slow
def test_every_fault_costs_its_own_arm_only(toy_tree, monkeypatch):
    tree = toy_tree("tree")
    line = one_line(tree, "faults", Protocol(rounds=12, trials=1, deadline_s=3.0), Selection(cases=("one",)))
    case = line["cases"]["one"]
    arms = {name.removeprefix("head/"): arm for name, arm in case["arms"].items()}
    assert {name: arm["status"] for name, arm in arms.items()} == {
        **dict.fromkeys(("good", "searches", "functional"), "ok"),
        **dict.fromkeys(("wrong", "wrong_later", "functional_wrong"), "wrong"),
        **dict.fromkeys(("raises", "fails_to_build", "not_callable", "allocates"), "error"),
        "hangs": "unsupported",
        "hangs_later": "hang",
        "dies_later": "crash",
        "falls": "crash",
    }
    assert all("seconds" not in arm for arm in arms.values() if arm["status"] != "ok")
    assert "[63]" in arms["wrong"]["why"]
    assert arms["wrong_later"]["why"].startswith(
        ("check after timing: ", "in a spot check during timing its output was")
    )
    assert "KeyError" in arms["raises"]["why"]
    assert "faults.py:" in arms["raises"]["why"]
    assert "what it led to" in arms["raises"]["detail"]
    assert "set-up: ValueError: no such tile" in arms["fails_to_build"]["why"]
    assert "zero-argument callable" in arms["not_callable"]["why"]
    assert "allocate the output in the set-up" in arms["allocates"]["why"]
    assert "return functional(lambda: ...)" in arms["allocates"]["why"]
    assert "in step: timing of head/hangs_later" in arms["hangs_later"]["why"]
    assert "exit code 7 in step: timing of head/dies_later" in arms["dies_later"]["why"]
    assert "in fall" in arms["falls"]["detail"]
    assert any("head/searches: first call ran" in w and "set-up" in w for w in case["warnings"])
    assert processes_with(tree) == []


@pytest.mark.slow
def test_what_hung_once_is_not_tried_again(toy_tree):
    tree = toy_tree("tree")
    lines = list(
        measure(
            ["faults"],
            [Checkout("head", tree)],
            Protocol(rounds=2, trials=2, deadline_s=3.0),
            None,
            Selection("nightly", backends=("hangs",), cases=("endless",)),
        )
    )
    first, second = (line["cases"]["endless"]["arms"]["head/hangs"] for line in lines)
    assert first["status"] == second["status"] == "hang"
    assert "within 3 s in step: first call of head/hangs" in first["why"]
    assert "in hang" in first["detail"], "the traceback of the hanging process is quoted"
    assert "not tried again" in second["why"]
    assert "not tried again" not in first["why"]
    assert lines[1]["duration_s"] < lines[0]["duration_s"]
    assert lines[0]["id"] != lines[1]["id"]


@pytest.mark.slow
def test_two_ranks_and_the_faults_between_them(toy_tree, monkeypatch):
    monkeypatch.setattr(ranks, "GRACE_S", 1.0)
    tree = toy_tree("tree")
    line = one_line(tree, "pairs", Protocol(rounds=4, trials=1, deadline_s=20.0))
    arms = {name.removeprefix("head/"): arm for name, arm in line["cases"]["two"]["arms"].items()}
    assert {name: arm["status"] for name, arm in arms.items()} == {
        "library": "ok",
        "heap": "ok",
        "one_raises": "error",
        "one_dies": "crash",
        "one_unsupported": "unsupported",
        "one_wrong": "wrong",
    }
    for name in ("library", "heap"):
        assert len(arms[name]["seconds"]) == len(arms[name]["skew_s"]) == 4
        assert all(0 <= skew <= s for skew, s in zip(arms[name]["skew_s"], arms[name]["seconds"], strict=True))
        assert len(arms[name]["rank_s"]) == 2
        assert max(arms[name]["rank_s"]) <= max(arms[name]["seconds"])
    assert "rank 1 has no plan" in arms["one_raises"]["why"]
    assert "rank 1 of 2 ended with exit code 9" in arms["one_dies"]["why"]
    assert processes_with(tree) == []


@pytest.mark.slow
def test_two_trees_work_in_turns_in_shuffled_rounds(toy_tree, toy_log, monkeypatch):
    monkeypatch.setattr(samples, "OF_AN_ARM", ())
    other = {'torch.mul(inputs["x"], 2': 'torch.add(inputs["x"], inputs["x"]'}
    trees = [Checkout("head", toy_tree("head_tree")), Checkout("base", toy_tree("base_tree", replace=other))]
    [line] = measure(
        ["steady"], trees, Protocol(rounds=10, trials=1, schedule_seed=3), None, Selection(cases=("small",))
    )
    arms = line["cases"]["small"]["arms"]
    assert sorted(arms) == [f"{role}/{name}" for role in ("base", "head") for name in ("elsewhere", "library", "ours")]
    assert all(len(arms[name]["seconds"]) == 10 for name in arms if "elsewhere" not in name)
    assert line["trees"]["head"]["kernel_digest"] != line["trees"]["base"]["kernel_digest"]
    assert line["trees"]["head"]["declaration"]["yardstick"] == line["trees"]["base"]["declaration"]["yardstick"]
    calls = [entry.split() for entry in toy_log.read_text().splitlines() if " call " in entry]
    checks_after = 4
    timed = [f"{tree}/{arm}" for tree, _, arm in calls[-40 - checks_after : -checks_after]]
    rounds = [tuple(timed[i : i + 4]) for i in range(0, 40, 4)]
    everything = {"head_tree/ours", "head_tree/library", "base_tree/ours", "base_tree/library"}
    assert all(set(one) == everything for one in rounds), "every arm once a round"
    assert len(set(rounds)) >= 5, "the order differs from round to round"
    changes = sum(a.split("/")[0] != b.split("/")[0] for a, b in itertools.pairwise(timed))
    assert changes >= 10, "the trees alternate"


def test_the_schedule_depends_on_its_seed_only():
    arms = [PlannedArm("head", name) for name in "abcde"]
    first, again, other = (list(shuffled(arms, 4, random.Random(seed))) for seed in ("1/0", "1/0", "2/0"))
    assert first == again != other
    assert all(set(first[i : i + 5]) == set(arms) for i in range(0, 20, 5))


BROKEN = {
    "toy/refuses.py": "raise ImportError('no such library')",
    "toy/interrupts.py": "raise KeyboardInterrupt",
    "toy/syntax.py": "def broken(:",
    "toy/partial.py": "from kernels.spec import *\nk = Kernel('partial', cases=[Case('c')], tolerance=Tolerance())",
}


@pytest.mark.slow
def test_modules_that_do_not_import_take_nobody_down(toy_tree):
    tree = toy_tree("tree", BROKEN)
    line = one_line(tree, "steady", Protocol(rounds=1, trials=1, deadline_s=4.0), Selection(cases=("small",)))
    assert line["cases"]["small"]["arms"]["head/ours"]["status"] == "ok"
    with Session([Checkout("head", tree)], QUICK, Selection()) as session:
        broken = {entry["module"]: entry["reason"] for entry in session.descriptions["head"].broken}
    said = {
        "toy.refuses": "no such library",
        "toy.interrupts": "KeyboardInterrupt",
        "toy.syntax": "SyntaxError",
        "toy.partial": "declares no inputs",
    }
    assert broken.keys() == said.keys()
    assert all(words in broken[module] for module, words in said.items())


def test_another_contract_is_refused_by_its_version(toy_tree):
    tree = toy_tree("tree", {"kernels/__init__.py": "", "kernels/spec.py": "SPEC_VERSION = 99"})
    with pytest.raises(CheckoutError, match="contract version 99; this harness measures 1"):
        one_line(tree, "steady")


def test_what_does_not_exist_is_a_usage_error_that_lists_what_does(toy_tree):
    unknown = [
        (["absent"], Selection(), "no kernel 'absent'; known: faults, pairs, steady"),
        (["steady"], Selection(cases=("x*",)), "no case fits 'x*'; of 5 the nearest are "),
        (["steady"], Selection(backends=("cutlass",)), "no backend 'cutlass'; known: elsewhere, library, ours"),
        (["steady"], Selection(knobs={"warps": 4}), "no backend has a knob 'warps'; known: order, tile"),
    ]
    with Session([Checkout("head", toy_tree("tree"))], QUICK, Selection()) as session:
        for kernels, selection, message in unknown:
            session.selection = selection
            with pytest.raises(UsageError, match=re.escape(message)):
                session.choose(kernels)


@pytest.mark.slow  # the first to start processes pays for importing torch there
def test_a_python_that_cannot_run_is_a_checkout_error(toy_tree):
    with pytest.raises(CheckoutError, match="no-such-python"):
        list(measure([], [Checkout("head", toy_tree("tree"), python="/nowhere/no-such-python")], QUICK))


# A library that hangs, ends the process, raises, returns the wrong shape or compiles for long: one clear line, and the
# rest is measured.


DEADLINE_S = 8.0

LIBRARY = """
import ctypes, os, signal, time, torch

def double(x, how):
    if how == "hangs":
        time.sleep(3600)
    if how == "leaves":
        os._exit(3)
    if how == "loses":  # as after an illegal access: every later call of the process fails

        def lost():
            raise RuntimeError("HIP error: an illegal memory access was encountered")

        torch.cuda._initialized, torch.cuda._lazy_init = True, lost  # what every function of torch.cuda asks first
        lost()
    if how == "raises":
        raise RuntimeError("CK: no instance for this shape\\nsecond line")
    if how == "shape":
        return (x * 2)[:-1]
    if how == "compiles":
        time.sleep(COMPILING_S)
    return x * 2
"""

KERNEL = '''
import torch, standin
from kernels.spec import Case, Cost, Kernel, Tolerance, Unsupported, functional

with_library = Kernel("with_library", cases=[Case("one", n=8, dtype="fp32"), Case("two", n=8, dtype="fp32")],
                      tolerance=Tolerance(1e-6, 1e-6))
with_library.inputs(lambda case, seed: {"x": torch.randn(case.n)})
with_library.cost(lambda case: Cost(flops=case.n, hbm_bytes=8 * case.n))
with_library.reference(lambda case, x: x["x"] * 2)


@with_library.backend("ours")
def ours(case, x):
    out = torch.empty_like(x["x"])
    return lambda: torch.mul(x["x"], 2, out=out)


def calls(how, first_call_s=0.0):
    @with_library.baseline(how, libraries=("standin-vendor", "not-installed"), first_call_s=first_call_s)
    def build(case, x):
        if how in ("compiles", "hangs") and case.name == "two":
            raise Unsupported("only in the other case")
        standin.double(x["x"], how)  # as an adapter does, so that what compiles, compiles in set-up
        return functional(lambda: standin.double(x["x"], "" if how == "compiles" else how))


for how in HOWS:
    calls(how)
calls("compiles", COMPILING_LIMIT_S)


@with_library.backend("autotune")
def autotune(case, x):
    """The first of the others that can be set up and called, as grouped_gemm's does."""
    for name, backend in with_library.backends.items():
        if name not in ("ours", "autotune"):
            try:
                call = backend.build(case, x)
                if call().shape == x["x"].shape:
                    return call
            except Exception:
                continue
    return with_library.backends["ours"].build(case, x)
'''


@pytest.fixture
def vendor(tmp_path, monkeypatch):
    """A stand-in library on the path, with metadata: vendor(seconds of compiling)."""
    folder = tmp_path / "site"
    about = folder / "standin_vendor-1.2.3.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: standin-vendor\nVersion: 1.2.3\n")
    (about / "direct_url.json").write_text(
        '{"url": "https://someone@github.com/a/b.git", "vcs_info": {"vcs": "git", "commit_id": "0123456789ab"}}'
    )
    monkeypatch.setenv("PYTHONPATH", str(folder))

    def make(compiling_s):
        (folder / "standin.py").write_text(LIBRARY.replace("COMPILING_S", str(compiling_s)))
        return folder

    return make


def measured(tree):
    events = []
    protocol, one = Protocol(rounds=4, trials=1, deadline_s=DEADLINE_S), Selection("nightly", ("one",))
    [line] = measure(["with_library"], [Checkout("head", tree)], protocol, events.append, one)
    arms = {key.removeprefix("head/"): arm for key, arm in line["cases"]["one"]["arms"].items()}
    return line, arms, [event["what"] for event in events]


def tree_with(toy_tree, *hows, limit_s=0.0):
    source = KERNEL.replace("HOWS", repr(hows)).replace("COMPILING_LIMIT_S", str(limit_s))
    return toy_tree("tree", {"toy/with_library.py": source})


@pytest.mark.slow
def test_each_fault_of_a_library_is_one_line_with_its_version_and_costs_no_other_arm(toy_tree, vendor):
    vendor(0)
    hows = {"hangs": "hang", "leaves": "crash", "loses": "error", "raises": "error", "shape": "wrong"}
    line, arms, _ = measured(tree_with(toy_tree, *hows))
    assert {name: arm["status"] for name, arm in arms.items()} == {
        **hows,
        **dict.fromkeys(("ours", "compiles", "autotune"), "ok"),
    }
    known = "(standin-vendor 1.2.3 (github.com/a/b, 01234567))"
    hung = f"the process gave no answer within {DEADLINE_S:g} s in step: set-up of head/hangs; killed {known}"
    assert arms["hangs"]["why"] == hung
    assert arms["leaves"]["why"] == f"the process ended with exit code 3 in step: set-up of head/leaves {known}"
    assert "HIP error: an illegal memory access was encountered (standin.py:" in arms["loses"]["why"]
    assert arms["raises"]["why"].startswith("set-up: RuntimeError: CK: no instance for this shape (standin.py:")
    for name in hows:
        assert arms[name]["why"].endswith(known), name
        assert "\n" not in arms[name]["why"]
    assert len(arms["ours"]["seconds"]) == 4
    head = line["trees"]["head"]
    assert head["environment"]["libraries"] == {"standin-vendor": "1.2.3 (github.com/a/b, 01234567)"}
    assert head["declaration"]["libraries"]["ours"] == {}


@pytest.mark.slow
def test_what_compiles_on_first_use_has_a_limit_of_its_own_and_says_so(toy_tree, vendor):
    vendor(DEADLINE_S + 1.5)
    _, arms, said = measured(tree_with(toy_tree, limit_s=30.0))
    assert {name: arms[name]["status"] for name in ("ours", "compiles")} == {"ours": "ok", "compiles": "ok"}
    assert said.index("with_library one trial 1: head/compiles compiling, allowed 30 s") < len(said) - 2, said


def test_the_origin_of_a_library_never_shows_a_path(tmp_path, monkeypatch):
    told = {
        "index": None,
        "editable": '{"url": "file:///home/someone/x", "dir_info": {"editable": true}}',
        "wheel": '{"url": "file:///home/someone/x.whl", "archive_info": {}}',
        "torn": "{",
    }
    for name, origin in told.items():
        about = tmp_path / f"v_{name}-1.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: v-{name}\nVersion: 1\n")
        if origin is not None:
            (about / "direct_url.json").write_text(origin)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert declare.installed([*(f"v-{name}" for name in told), "v-absent"]) == {
        "v-index": "1",
        "v-editable": "1 (built from a folder)",
        "v-wheel": "1 (from a file)",
        "v-torn": "1",
    }
