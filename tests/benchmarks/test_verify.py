"""Correctness alone: every arm is called and compared, nothing is timed, and what is known is not tried again."""

from __future__ import annotations

import json

import pytest

from benchmarks.coordinator.checkouts import Checkout
from benchmarks.plan import Selection
from benchmarks.program import Tally
from benchmarks.trial_file import append
from benchmarks.verify import settled, verify
from tests.benchmarks.conftest import lines_of, program


def verified(tree, out, kernel, selection=None, **options):
    """{(case, backend): status} and the number of new lines; new lines are appended to `out`."""
    found, new_lines = {}, 0
    for line, new in verify([kernel], Checkout("head", tree), out, selection or Selection("sweep"), **options):
        if new:
            append(out, line)
            new_lines += 1
        found |= {(line["case"], name): arm["status"] for name, arm in line["arms"].items()}
    return found, new_lines


def test_all_cases_are_called_and_none_is_timed(toy_tree, toy_log, tmp_path):
    tree, out = toy_tree("tree"), tmp_path / "checks.jsonl"
    events = []
    found, new = verified(tree, out, "steady", on_progress=events.append)
    assert new == 5
    assert found == {
        **{(case, name): "ok" for case in ("small", "other") for name in ("ours", "library")},
        **{(case, "elsewhere"): "unsupported" for case in ("small", "other")},
        **{(case, name): "skipped" for case in ("huge", "crowd") for name in ("ours", "library", "elsewhere")},
        **{("costless", name): "error" for name in ("ours", "library", "elsewhere")},
    }
    calls = [line for line in toy_log.read_text().splitlines() if line.endswith("call ours")]
    assert len(calls) == 2 * 3, "per case: the first call, the one that is compared, the one whose code is hashed"
    small = next(line for line in lines_of(out) if line["case"] == "small")
    assert small["arms"]["ours"]["error"] == {"norm": 0.0, "peak": 0.0}
    assert small["arms"]["ours"]["knobs"] == {"tile": 16}
    assert "seconds" not in small["arms"]["ours"]
    assert (small["tier"], small["world"], small["dtype"], small["baselines"]) == ("pr", 1, "fp32", ["library"])
    assert events[-1] == {"done": 5, "total": 5, "what": "done"}
    assert {"done": 3, "total": 5, "what": "steady other"} in events


@pytest.mark.slow
def test_what_is_known_is_not_tried_again_and_what_failed_is(toy_tree, toy_log, tmp_path):
    tree, out = toy_tree("tree"), tmp_path / "checks.jsonl"
    chosen = Selection(cases=("one",), backends=("good", "wrong"))
    assert verified(tree, out, "faults", chosen) == ({("one", "good"): "ok", ("one", "wrong"): "wrong"}, 1)
    only_good = Selection(cases=("one",), backends=("good",))
    verified(tree, out, "faults", Selection(cases=("one",), backends=("good", "functional")))
    assert verified(tree, out, "faults", only_good) == ({("one", "good"): "ok"}, 0)
    assert verified(tree, out, "faults", chosen)[1] == 1
    assert verified(tree, out, "faults", only_good, seed=1)[1] == 1, "other inputs say nothing about these"
    with (tree / "toy" / "steady.py").open("a") as other:
        other.write("# a kernel that this one has nothing of\n")
    assert verified(tree, out, "faults", only_good)[1] == 0
    (tree / "toy" / "table.toml").write_text("# beside the modules\n")
    assert verified(tree, out, "faults", only_good)[1] == 1, "what was right of other files may be wrong now"
    assert verified(tree, out, "faults", only_good)[1] == 0


@pytest.mark.slow
def test_a_broken_module_is_told_as_long_as_it_is_broken_and_no_longer(toy_tree, tmp_path):
    tree, out = toy_tree("tree"), tmp_path / "checks.jsonl"
    only = Selection(cases=("small",), backends=("ours",))

    def broken():
        told = set()
        for line, new in verify([], Checkout("head", tree), out, only):
            if new:
                append(out, line)
            told |= {module["module"] for module in line["broken"]}
        return told

    before = broken()
    (tree / "toy" / "new.py").write_text("import not_there\n")
    assert broken() == before | {"toy.new"}, "what was checked before says nothing of a module that is new"
    (tree / "toy" / "new.py").unlink()
    assert broken() == before


def test_lines_that_hold_for_something_else_say_nothing():
    def line(digest, **arms):
        return {
            "kernel": "gemm",
            "case": "m1",
            "holds_for": {"kernel_digest": digest},
            "arms": {name: {"status": status} for name, status in arms.items()},
        }

    lines = [line("a", one="ok", two="hang"), line("b", three="ok"), line("a", two="crash", four="unsupported")]
    found = settled(lines, {"gemm": {"kernel_digest": "a"}})
    assert {key: sorted(value["arms"]) for key, value in found.items()} == {("gemm", "m1"): ["four", "one"]}
    assert settled(lines, {"gemm": {"kernel_digest": "c"}}) == {}
    assert settled(lines, {"gather": {"kernel_digest": "a"}}) == {}


def test_the_summary_in_words_and_for_machines():
    tally = Tally()
    arms = {
        "triton": {"status": "ok", "error": {"norm": 2e-4, "peak": 1e-3}},
        "blas": {"status": "wrong", "why": "[3]"},
        "ck": {"status": "unsupported", "why": "no ck here"},
    }
    said = tally.add_check({"kernel": "gemm", "case": "m1", "arms": arms, "broken": []})
    assert said == ["gemm m1 blas: wrong: [3]"]
    tally.add_check(
        {
            "kernel": "gemm",
            "case": "m2",
            "arms": {**arms, "blas": arms["triton"]},
            "broken": [{"module": "kernels.x", "reason": "no such name"}],
        }
    )
    assert tally.in_words().splitlines() == [
        "gemm/triton: 2 of 2 right, error 2.0e-04 at most",
        "gemm/blas: 1 of 2 right, 1 wrong, error 2.0e-04 at most",
        "gemm/ck: 0 of 2 right, 2 unsupported",
        "  2 times: no ck here",
        "broken module kernels.x: no such name",
        "3 right, 1 not right; 2 unsupported and 0 not for this machine",
    ]
    document = tally.as_json()
    assert (document["right"], document["wrong"], document["unsupported"], document["skipped"]) == (3, 1, 2, 0)
    assert document["faults"] == [
        {"kernel": "gemm", "case": "m1", "backend": "blas", "status": "wrong", "why": "[3]", "emulated": ""}
    ]


@pytest.mark.slow
def test_the_command_and_its_exit_codes(toy_tree, tmp_path, in_process, capsys):
    what = ("verify", "--tree", f"head={toy_tree('tree')}", "--out", tmp_path / "checks.jsonl")
    done = program(*what, "--kernel", "steady", "--json")
    assert (done.returncode, json.loads(done.stdout)["right"]) == (0, 2), done.stderr
    assert in_process(*what, "--kernel", "faults", "--backend", "good", "--backend", "wrong", "--case", "one") == 1
    printed, said = capsys.readouterr()
    assert "faults one wrong: wrong: check: " in said
    assert printed.endswith("1 right, 1 not right; 0 unsupported and 0 not for this machine\n")
    assert in_process(*what, "--kernel", "steady", "--case", "crowd") == 2
    assert "3 times: needs 512 ranks" in capsys.readouterr().out
