"""Replay files and trial files: what is read, and every way a file can be wrong."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from ci.judging.judge import judge
from ci.judging.policy import load
from ci.judging.types import Verdict
from ci.trials.comparisons import ReplayError, Status, read_recording
from tests.ci import made_trials as made

RNG = np.random.default_rng(2)
POLICY = load()


def arm(effect=0.0, rounds=40):
    return [round(float(x), 4) for x in 70 * np.exp(0.01 * RNG.standard_normal(rounds) + effect)]


def line(number, unit="us", **cases):
    return {"trial": number, "unit": unit, "cases": cases or {"good": {"base": arm(), "head": arm()}}}


def write(path, lines, tail=""):
    path.write_text("".join(json.dumps(x) + "\n" for x in lines) + tail)
    return path


def compared(path):
    return read_recording(path).comparisons


def verdicts(path):
    judgement = judge(compared(path), POLICY)
    return judgement, {c.case: c for c in judgement.cases}


@pytest.fixture
def file(tmp_path):
    return tmp_path / "trials.jsonl"


def test_reads_seconds_and_pairs_by_round(file):
    [found] = compared(write(file, [line(0, "ms", a={"base": [1.0, 2.0], "head": [3, 4.5], "same": [9, 9]})]))
    np.testing.assert_allclose(found.trials[0].base, [1e-3, 2e-3])
    np.testing.assert_allclose(found.trials[0].head, [3e-3, 4.5e-3])
    assert (found.case, found.kernel, found.backend) == ("a", "a", "")


def test_case_names_of_our_own_trials_are_taken_apart(file):
    [found] = compared(write(file, [line(0, **{"gemm/triton/m64": {"base": [1.0], "head": [1.0]}})]))
    assert (found.kernel, found.backend) == ("gemm", "triton")


def test_the_given_recordings_are_judged_once_their_arm_is_named(tmp_path):
    source = Path(__file__).parents[2] / "recordings" / "h200" / "ab_trials_gpu0.jsonl.gz"
    judgement, cases = verdicts(source)
    assert {case.verdict for case in cases.values()} == {Verdict.CANNOT_TELL}
    assert judgement.verdict.exit_code == 2
    assert '["base", "same", "head1", "head2", "head3", "head6"]; allowed: base and head' in cases["copy"].evidence[0]


BAD_CASES = {
    "unequal lengths": ({"base": [1.0] * 40, "head": [1.0] * 39}, "samples of base and head is [40, 39]; allowed"),
    "NaN": ({"base": [float("nan")] * 40, "head": [1.0] * 40}, ".base[0] is NaN; allowed: a number from 2.22507e-308"),
    "no object": ([1.0, 2.0], " is [1.0, 2.0]; allowed: an object"),
}


@pytest.mark.parametrize(("bad", "says"), BAD_CASES.values(), ids=BAD_CASES)
def test_a_bad_case_cannot_be_told_and_does_not_take_others_down(file, bad, says):
    lines = [line(i, good={"base": arm(), "head": arm(0.05)}, bad={"base": arm(), "head": arm()}) for i in range(6)]
    lines[2]["cases"]["bad"] = bad
    judgement, cases = verdicts(write(file, lines))
    assert cases["bad"].verdict is Verdict.CANNOT_TELL
    assert cases["bad"].ratio is None
    assert f"{file}:3: case 'bad'" in cases["bad"].evidence[0]
    assert says in cases["bad"].evidence[0]
    assert cases["good"].verdict is Verdict.SLOWER
    assert judgement.verdict.exit_code == 1


def test_an_arm_missing_in_some_trials_is_a_fault(file):
    lines = [line(i) for i in range(6)]
    del lines[4]["cases"]["good"]["head"]
    _, cases = verdicts(write(file, lines))
    assert cases["good"].verdict is Verdict.CANNOT_TELL
    assert ":5: case 'good' is [\"base\"]; allowed: base and head among its arms" in cases["good"].evidence[0]


def test_a_case_missing_in_some_trials_uses_the_others(file):
    lines = [line(i, a={"base": arm(), "head": arm()}, b={"base": arm(), "head": arm()}) for i in range(6)]
    del lines[0]["cases"]["b"]
    _, cases = verdicts(write(file, lines))
    assert (cases["a"].trials, cases["b"].trials) == (6, 5)
    assert "missing in 1 of 6 trials; the others are used" in cases["b"].warnings


@pytest.mark.parametrize("count", [1, 2])
def test_too_few_trials_cannot_tell_however_clear(file, count):
    judgement, cases = verdicts(write(file, [line(i, a={"base": arm(), "head": arm(0.5)}) for i in range(count)]))
    assert cases["a"].verdict is Verdict.CANNOT_TELL
    assert cases["a"].ratio == pytest.approx(np.exp(0.5), rel=0.01)
    assert cases["a"].ci_low is None
    assert "at least 3 are needed" in cases["a"].evidence[0]
    assert judgement.verdict.exit_code == 2


def test_too_few_rounds_are_no_trial(file):
    _, cases = verdicts(write(file, [line(i, a={"base": arm(0, 4), "head": arm(0.5, 4)}) for i in range(6)]))
    assert cases["a"].verdict is Verdict.CANNOT_TELL
    assert "6 of 6 trials left out: fewer than 8 rounds" in cases["a"].warnings


def test_each_line_has_its_unit(file):
    pair = {"base": [1.0], "head": [2.0]}
    [case] = compared(write(file, [line(0, a=pair), line(1, "ms", a={"base": [0.001], "head": [0.003]})]))
    assert [t.base[0] for t in case.trials] == pytest.approx([1e-6, 1e-6])


@pytest.mark.parametrize("unit", ["furlong", None, 7, ["us"]])
def test_unknown_units_name_the_known_ones(file, unit):
    with pytest.raises(ReplayError, match=r":1: unit .*; allowed: s, ms, us, µs, ns"):
        compared(write(file, [line(0, unit)]))


def test_two_kinds_of_machine_in_a_file_are_refused(file):
    lines = [line(0) | {"machine_kind": "cpu"}, line(1) | {"machine_kind": "gpu"}]
    with pytest.raises(ReplayError, match=r"trials\.jsonl:2: machine_kind 'gpu', but the lines before have 'cpu'"):
        compared(write(file, lines))


def test_blank_lines_are_passed_over(file):
    [case] = compared(write(file, [], f"\n{json.dumps(line(0))}\n  \n{json.dumps(line(1))}\n"))
    assert len(case.trials) == 2


BROKEN_LINES = {
    "not JSON": "hello\n",
    "a list": "[1, 2]\n",
    "cases is a list": '{"unit":"us","cases":[]}\n',
    "trial is text": '{"trial":"0","unit":"us","cases":{}}\n',
    "machine kind": '{"trial":0,"unit":"us","machine_kind":"toaster","cases":{}}\n',
    "deep": "[" * 100_000 + "\n",
}


@pytest.mark.parametrize("text", BROKEN_LINES.values(), ids=BROKEN_LINES)
def test_a_line_that_is_no_trial_is_an_error_that_names_it(file, text):
    write(file, [line(0)], text + json.dumps(line(1)) + "\n")
    with pytest.raises(ReplayError, match=r"trials\.jsonl:2: "):
        compared(file)


def test_a_torn_last_line_is_left_out_with_a_warning(file):
    write(file, [line(i) for i in range(4)], json.dumps(line(4))[:-40])
    judgement, cases = verdicts(file)
    assert cases["good"].trials == 4
    assert any("trials.jsonl:5: the last line is torn" in w for w in (*judgement.warnings, *cases["good"].warnings))


def test_a_gzip_that_ends_early_keeps_what_there_is(file):
    packed = file.with_suffix(".gz")
    whole = gzip.compress(write(file, [line(i) for i in range(30)]).read_bytes())
    packed.write_bytes(whole[: len(whole) // 2])
    [found] = compared(packed)
    assert 3 <= len(found.trials) < 30
    assert any("the gzip file ends early" in w for w in found.warnings)
    packed.write_bytes(b"\x1f\x8bnonsense")
    with pytest.raises(ReplayError, match="damaged gzip file"):
        compared(packed)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ReplayError, match=r"nowhere\.jsonl: cannot be read"):
        compared(tmp_path / "nowhere.jsonl")
    with pytest.raises(ReplayError, match="cannot be read"):
        compared(tmp_path)


def test_the_same_trial_twice_counts_once(file):
    lines = [line(i) for i in range(4)]
    [found] = compared(write(file, [*lines, {**lines[1], "trial": 9}]))
    assert len(found.trials) == 4
    assert "trials.jsonl:5: repeats the samples of" in found.warnings[0]


def test_the_same_recording_as_both_arms_is_named(file):
    both = [arm() for _ in range(4)]
    _, cases = verdicts(write(file, [line(i, a={"base": b, "head": b}) for i, b in enumerate(both)]))
    assert "base and head are the same numbers in every trial: one recording twice?" in cases["a"].warnings


def paired(number, arms=None, **trees):
    """arms: of triton in base and head; both run it, and the baseline, where none are given."""
    return made.paired({"m16": {"triton": arms}} if arms else None, number, trees=trees)


def test_trial_files_give_one_comparison_per_backend_with_the_baseline_as_control(file):
    [found] = compared(made.write(file, *(paired(i) for i in range(4))))
    assert (found.case, found.kernel, found.backend, found.baseline) == ("gemm/triton/m16", "gemm", "triton", "blas")
    assert len(found.trials) == 4
    np.testing.assert_allclose(found.trials[0].baseline_head, made.TIMES)
    assert found.base_definition == found.head_definition == "1" * 16 + "/m16"


def test_another_environment_makes_the_baseline_a_comparison_of_its_own(file):
    other = made.tree(environment={**made.ENVIRONMENT, "triton": "3.7.0"})
    found = compared(made.write(file, *(paired(i, head=other) for i in range(4))))
    assert {c.backend: c.baseline for c in found} == {"triton": None, "blas": None}


def test_one_wrong_trial_of_many_is_broken(file):
    lines = [paired(i) for i in range(4)]
    bad = paired(4, (made.ok(), made.failed("wrong", "norm 0.3 > 1e-3")))
    _, cases = verdicts(made.write(file, *lines, bad))
    assert cases["gemm/triton/m16"].verdict is Verdict.BROKEN
    assert "norm 0.3 > 1e-3" in cases["gemm/triton/m16"].evidence[0]


def test_a_base_that_does_not_import_says_why(file):
    gone = {**made.tree(made.BASE, broken=[{"module": "kernels.gemm", "reason": "SyntaxError"}]), "declaration": None}
    [found] = compared(made.write(file, *(paired(i, (None, made.ok()), base=gone) for i in range(4))))
    assert found.base_status is Status.UNIMPORTED
    assert found.base_why == "kernels.gemm: SyntaxError"


def test_a_base_that_declares_nothing_of_it_makes_it_new(file):
    other = [{"module": "kernels.norm", "reason": "SyntaxError", "declares": ["norm"]}]
    bare = {**made.tree(made.BASE, broken=other), "declaration": None}
    judgement, cases = verdicts(made.write(file, *(paired(i, (None, made.ok()), base=bare) for i in range(4))))
    assert cases["gemm/triton/m16"].verdict is Verdict.NEW
    assert judgement.verdict.exit_code == 0


def test_changed_yardsticks_are_not_compared(file):
    other = made.tree(declared=made.declaration(yardstick="2" * 16))
    judgement, cases = verdicts(made.write(file, *(paired(i, head=other) for i in range(4))))
    assert cases["gemm/triton/m16"].verdict is Verdict.NOT_COMPARABLE
    assert judgement.verdict.exit_code == 2


@pytest.mark.parametrize(
    ("digests", "hashes", "knobs", "triton", "same"),
    [
        (("a", "a"), (None, None), ({}, {}), "3.6.0", True),
        (("a", "b"), (None, None), ({}, {}), "3.6.0", None),
        ((None, None), (None, None), ({}, {}), "3.6.0", None),
        (("a", "a"), (None, None), ({}, {"B": 2}), "3.6.0", None),
        (("a", "a"), (None, None), ({}, {}), "3.9.0", None),
        (("a", "a"), ("x", "y"), ({}, {}), "3.6.0", False),
        (("a", "b"), ("x", "x"), ({}, {}), "3.6.0", True),
        ((None, None), ("x", "x"), ({}, {}), "3.6.0", True),
        ((None, None), ("x", "y"), ({}, {}), "3.6.0", False),
        ((None, None), ("x", "x"), ({"B": 1}, {"B": 2}), "3.6.0", False),
        ((None, None), (None, "x"), ({}, {}), "3.6.0", None),
    ],
)
def test_equal_code_is_equal_hashes_and_knobs_or_equal_files_where_no_code_objects_are_known(
    file, digests, hashes, knobs, triton, same
):
    base, head = (
        {**made.tree(commit), "kernel_digest": digest}
        for commit, digest in zip((made.BASE, made.HEAD), digests, strict=True)
    )
    head["environment"] = {**head["environment"], "triton": triton}
    arms = [{**made.ok(), "code_hash": code, "knobs": own} for code, own in zip(hashes, knobs, strict=True)]
    [found] = compared(made.write(file, paired(0, arms, base=base, head=head)))
    assert found.same_code is same


def test_a_file_of_one_tree_has_nothing_to_compare(file):
    assert compared(made.write(file, made.trial())) == []


def test_a_foreign_line_in_a_trial_file_is_named_and_the_others_count(file):
    made.write(file, paired(0))
    file.write_text(file.read_text() + '{"format": "else"}\n' + json.dumps(paired(1)) + "\n")
    recording = read_recording(file)
    assert [(one.number, one.why[:11]) for one in recording.rejected] == [(2, "not a trial")]
    assert len(recording.trials) == 2
    assert all(any(f"{file}:2: not a trial" in w for w in c.warnings) for c in recording.comparisons)


def test_a_trial_file_without_a_sound_line_is_an_error(file):
    made.write(file, {**paired(0), "cases": []})
    with pytest.raises(ReplayError, match=r"trials\.jsonl:1: not a trial: cases is \[\]"):
        compared(file)
