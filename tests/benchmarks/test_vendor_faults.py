"""A library that hangs, ends the process, raises, returns the wrong shape or compiles for long: one clear line, and the
rest is measured."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.coordinator.checkouts import Checkout
from benchmarks.coordinator.trial import measure
from benchmarks.plan import Protocol, Selection
from benchmarks.worker import declare

DEADLINE_S = 3.0

LIBRARY = """
import ctypes, os, signal, time, torch

def double(x, how):
    if how == "hangs":
        time.sleep(3600)
    if how == "aborts":
        os.abort()
    if how == "falls":
        ctypes.string_at(0)
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
    if how == "nothing":
        return None
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

    def make(compiling_s: float) -> Path:
        (folder / "standin.py").write_text(LIBRARY.replace("COMPILING_S", str(compiling_s)))
        return folder

    return make


def measured(tree, deadline_s=DEADLINE_S, trials=1, case="one"):
    events: list[dict] = []
    protocol = Protocol(rounds=4, trials=trials, deadline_s=deadline_s)
    lines = list(
        measure(["with_library"], [Checkout("head", tree)], protocol, events.append, Selection("nightly", (case,)))
    )
    arms = [{key.removeprefix("head/"): arm for key, arm in line["cases"][case]["arms"].items()} for line in lines]
    return lines, arms, [event["what"] for event in events]


def tree_with(toy_tree, *hows, limit_s=0.0):
    source = KERNEL.replace("HOWS", repr(hows)).replace("COMPILING_LIMIT_S", str(limit_s))
    return toy_tree("tree", {"toy/with_library.py": source})


@pytest.mark.slow
def test_each_fault_of_a_library_is_one_line_with_its_version_and_costs_no_other_arm(toy_tree, vendor):
    vendor(0)
    hows = ("hangs", "aborts", "falls", "leaves", "loses", "raises", "shape", "nothing")
    lines, [arms], _ = measured(tree_with(toy_tree, *hows))
    assert {name: arm["status"] for name, arm in arms.items()} == {
        "ours": "ok",
        "hangs": "hang",
        "aborts": "crash",
        "falls": "crash",
        "leaves": "crash",
        "loses": "error",
        "raises": "error",
        "shape": "wrong",
        "nothing": "error",
        "compiles": "ok",
        "autotune": "ok",
    }
    known = "(standin-vendor 1.2.3 (github.com/a/b, 01234567))"
    assert (
        arms["hangs"]["why"] == f"the process gave no answer within 3 s in step: set-up of head/hangs; killed {known}"
    )
    assert arms["aborts"]["why"] == f"the process was killed by SIGABRT in step: set-up of head/aborts {known}"
    assert arms["falls"]["why"] == f"the process was killed by SIGSEGV in step: set-up of head/falls {known}"
    assert arms["leaves"]["why"] == f"the process ended with exit code 3 in step: set-up of head/leaves {known}"
    assert "HIP error: an illegal memory access was encountered (standin.py:" in arms["loses"]["why"]
    assert arms["raises"]["why"].startswith("set-up: RuntimeError: CK: no instance for this shape (standin.py:")
    for name in hows:
        assert arms[name]["why"].endswith(known), name
        assert "\n" not in arms[name]["why"]
    assert len(arms["ours"]["seconds"]) == 4
    head = lines[0]["trees"]["head"]
    assert head["environment"]["libraries"] == {"standin-vendor": "1.2.3 (github.com/a/b, 01234567)"}
    assert head["declaration"]["libraries"]["ours"] == {}


@pytest.mark.slow
def test_what_compiles_on_first_use_has_a_limit_of_its_own_and_says_so(toy_tree, vendor):
    vendor(DEADLINE_S + 1.5)
    _, [arms], said = measured(tree_with(toy_tree, limit_s=30.0))
    assert {name: arms[name]["status"] for name in ("ours", "compiles")} == {"ours": "ok", "compiles": "ok"}
    assert "with_library one trial 1: head/compiles compiling, allowed 30 s" in said
    assert said.index("with_library one trial 1: head/compiles compiling, allowed 30 s") < len(said) - 2, said


@pytest.mark.slow
def test_compiling_without_end_is_a_hang_too_and_is_not_tried_in_the_next_trial(toy_tree, vendor):
    vendor(3600)
    lines, (first, second), said = measured(tree_with(toy_tree, limit_s=DEADLINE_S + 1), trials=2)
    assert first["compiles"]["status"] == second["compiles"]["status"] == "hang"
    assert (
        "gave no answer within 4 s in step: set-up of head/compiles; killed (standin-vendor 1.2.3"
        in (first["compiles"]["why"])
    )
    assert second["compiles"]["why"].startswith("not tried again: in an earlier trial the process gave no answer")
    assert first["ours"]["status"] == second["ours"]["status"] == "ok"
    assert first["autotune"]["status"] == second["autotune"]["status"] == "ok", "it does not try what hung"
    assert sum("compiling, allowed 4 s" in words for words in said) == 1


@pytest.mark.slow
def test_a_library_that_is_absent_is_unsupported_in_no_more_words(toy_tree):
    source = (
        KERNEL.replace("HOWS", "()").replace("COMPILING_LIMIT_S", "0").replace("import torch, standin", "import torch")
    )
    source = source.replace(
        '        standin.double(x["x"], how)', '        raise Unsupported("standin is not installed")'
    )
    _, [arms], _ = measured(toy_tree("tree", {"toy/with_library.py": source}))
    assert arms["compiles"] == {"status": "unsupported", "why": "standin is not installed", "detail": ""}


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
