"""The door of the trial file: what is not a trial is named with its line and its reason, and the rest is used."""

from __future__ import annotations

import gzip
import json
import os
import random
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import trial_file
from benchmarks.shapes import Unfit
from ci.judging.judge import judge
from ci.judging.policy import load
from ci.judging.types import Verdict
from ci.trials import file
from ci.trials.comparisons import comparisons
from ci.trials.file import LONGEST_LINE, Followed, Rejected, TrialBatch, measured_operators, missing, parse_line, read
from ci.trials.trial import unfit
from tests.ci import made_trials as made
from tests.ci.made_trials import GONE, TIMES, failed, ok, parsed, trial


def nested(depth):
    value = 0
    for _ in range(depth):
        value = [value]
    return value


SPOILED = [
    ("cases m16 arms head/triton seconds 0", 1e-320),
    ("cases m16 arms head/triton seconds 3", 86400.0),
    ("cases m16 arms head/triton seconds 0", "fast"),
    ("cases m16 arms head/triton seconds 0", 10**400),
    ("cases m16 arms head/triton seconds", []),
    ("cases m16 arms head/triton seconds", GONE),
    ("cases m16 arms head/triton status", "error"),
    ("cases m16 arms head/triton skew_s", "much"),
    ("cases m16 arms third/triton", ok()),
    ("cases m17", {"arms": {"head/triton": ok()}}),
    ("cases m/16", {"arms": {}}),
    ("warnings", "hot"),
    ("trees head date_ms", 10**30),
    ("started_at", "2026-11-20T12:00:00"),
    ("started_at", "9999-12-31T23:59:59+00:00"),
    ("machine name", "../x"),
    ("machine device", "H200\x1b[31m"),
    ("trees head broken", [{"module": "m", "reason": "\udfff"}]),
    ("kernel", "ge\x00mm"),
    ("trees head declaration cases", [{"name": "m16"}, {"name": "m16"}]),
    ("trees head declaration baselines", ["cublas"]),
    ("trees head declaration costs", {"m16": {"flops": 1.5}}),
    ("trial", -1),
    ("extra", nested(30)),
    ("trees head environment torch", "2" * 5000),
    ("version", 2),
    ("format", "ridgeline-check"),
]
"""(path, value that is put there) of lines that are no trials."""


@pytest.mark.parametrize(("path", "value"), SPOILED, ids=[f"{path}={value!r:.30}" for path, value in SPOILED])
def test_a_spoiled_line_is_refused_with_its_place(path, value):
    line = made.changed(trial(number=1), path, value)
    found = parse_line(json.dumps(line).encode(), 7)
    assert isinstance(found, Rejected)
    assert found.number == 7
    assert "allowed:" in found.why or found.why.startswith("not JSON")
    assert len(found.why) < 700
    found.why.encode()
    with pytest.raises(trial_file.Unfit):
        trial_file.check(line)


BAD_LINES = {
    "torn": (lambda line: json.dumps(line).encode()[:-200], "the line is torn, its writer was interrupted"),
    "not UTF-8": (lambda line: b'{"format": "\xff\xfe"}', "not UTF-8"),
    "NaN": (lambda line: json.dumps(line).replace("0.00101", "NaN").encode(), "the token NaN is not allowed"),
    "NUL": (lambda line: json.dumps(line).encode().replace(b"gemm", b"ge\0m"), "not JSON: Invalid control character"),
    "endless": (lambda line: b'{"format": "' + b"x" * LONGEST_LINE, "64 MB long; a trial has at most 64 MB"),
}


@pytest.mark.parametrize("name", BAD_LINES)
def test_what_is_wrong_with_a_line_is_said(name):
    spoil, reason = BAD_LINES[name]
    found = parse_line(spoil(trial(number=1)))
    assert isinstance(found, Rejected)
    assert reason in found.why


@pytest.mark.parametrize("cut", [1, 2, 17, 300])
def test_a_line_is_torn_only_if_its_json_is_incomplete(cut):
    whole = json.dumps(trial()).encode()
    torn = parse_line(whole[:-cut])
    assert isinstance(torn, Rejected)
    assert torn.why.startswith("the line is torn")
    for other in (whole + b"}", whole + b" x", b"x" + whole, whole[:-cut] + b"\xff", b'{"a": nothing}', b"Traceback"):
        found = parse_line(other)
        assert isinstance(found, Rejected)
        assert found.why.startswith("not ")


def test_a_line_nested_beyond_the_parser_is_refused():
    found = parse_line(b'{"format": ' + b"[" * 100_000 + b"]" * 100_000 + b"}")
    assert isinstance(found, Rejected)
    assert found.why == "nested too deeply for a trial"


def test_the_same_trial_twice_counts_once_and_other_results_under_its_id_are_a_conflict(tmp_path):
    line = trial()
    other = {**trial({"m16": {"head/triton": ok([2e-3] * 8)}}), "id": line["id"]}
    file = tmp_path / "trials.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in (line, line, other)))
    found = read(file)
    assert len(found.trials) == 1
    [conflict] = found.rejected
    assert conflict.number == 3
    assert "is that of an earlier trial with other results" in conflict.why


def test_a_file_that_grows_is_parsed_line_by_line_once(tmp_path, monkeypatch):
    file, parses = tmp_path / "trials.jsonl", []
    check = trial_file.check
    monkeypatch.setattr(trial_file, "check", lambda line, *more: (parses.append(line["id"]), check(line, *more))[1])
    log = Followed(file)
    assert log.read().trials == ()
    for number in range(4):
        trial_file.append(file, trial(number=number))
        assert len(log.read().trials) == number + 1
        assert len(log.read().trials) == number + 1
    assert len(parses) == 4
    with file.open("a") as stream:
        stream.write('{"format": "ridgeline-trial", "ver')
    assert not log.read().rejected, "the writer may still be at it"
    trial_file.append(file, trial(number=9))
    assert [one.number for one in log.read().rejected] == [5]
    assert len(log.read().trials) == 5


def test_the_writer_writes_what_the_readers_take():
    line = trial({"m16": {"head/triton": {**ok([0.0] * 8)}, "head/blas": ok()}})
    line["cases"]["m16"]["arms"]["head/blas"]["detail"] = "\x1b[31mred\ud800" + "x" * 50_000
    written = trial_file.finished({key: value for key, value in line.items() if key not in ("id", "format", "version")})
    found = parsed(json.loads(json.dumps(written)))
    assert found.cases["m16"].arms["head", "triton"].status == "error"
    assert found.cases["m16"].arms["head", "blas"].ok


# A trial file from a stranger: nothing in it costs more than the limits allow.


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: path.write_bytes(gzip.compress(b"0" * 1_000_000)), "compressed"),
        (lambda path: path.write_bytes(b"0" * 200_000), "larger than 100000 bytes"),
        (lambda path: path.write_text("{}\n" * 3), "more than 2 lines"),
        (lambda path: path.symlink_to(made.write(path.with_name("real.jsonl"), made.trial())), "cannot be read"),
        (os.mkfifo, "not a plain file"),
        (Path.mkdir, "cannot be read"),
    ],
)
def test_what_costs_time_or_memory_is_refused(tmp_path, monkeypatch, make, said):
    monkeypatch.setattr(file, "LARGEST_FILE", 100_000)
    monkeypatch.setattr(file, "MOST_LINES", 2)
    make(tmp_path / "t.jsonl")
    found = file.read_hostile(tmp_path / "t.jsonl")
    assert found.trials == ()
    assert said in found.rejected[0].why


def test_a_long_line_takes_no_other_with_it(tmp_path, monkeypatch):
    monkeypatch.setattr(file, "LARGEST_LINE", 5000)
    path = made.write(tmp_path / "t.jsonl", made.trial())
    path.write_bytes(b"[" * 6000 + b"\n" + path.read_bytes())
    found = file.read_hostile(path)
    assert len(found.trials) == 1
    assert [(one.number, one.why) for one in found.rejected] == [(1, "longer than 5000 bytes")]


# Which trials a run still lacks, against counting them one by one.


OPERATORS = ("gemm", "all_gather", "norm")


def trials(*done):
    return [SimpleNamespace(operator=operator, number=number) for operator, number in done]


def test_a_trial_that_was_interrupted_is_completed_first():
    done = trials(("gemm", 0), ("all_gather", 0), ("norm", 0), ("gemm", 1))
    assert measured_operators(done, 0) == OPERATORS
    assert missing(done, OPERATORS, 0, 4) == [TrialBatch(("all_gather", "norm"), 1, 1), TrialBatch(OPERATORS, 2, 2)]


def test_the_first_trial_says_what_is_planned_only_when_it_is_whole():
    assert measured_operators(trials(("gemm", 0)), 0) == ()
    assert measured_operators(trials(("gemm", 5), ("norm", 5), ("gemm", 6)), 5) == ("gemm", "norm")


def test_any_state_is_completed_exactly():
    draw = random.Random(13)
    for _ in range(300):
        first, count = draw.randrange(5), draw.randrange(1, 6)
        wanted = {(operator, number) for operator in OPERATORS for number in range(first, first + count)}
        done = {one for one in wanted if draw.random() < 0.5}
        batches = missing(trials(*done, ("gemm", 99)), OPERATORS, first, count)
        measured = [
            (operator, batch.first + step)
            for batch in batches
            for step in range(batch.count)
            for operator in batch.operators
        ]
        assert sorted(measured) == sorted(wanted - done)
        assert [number for _, number in measured] == sorted(number for _, number in measured), "trial by trial"


# Trials of nodes that failed their preflight: no verdict rests on them, and the reason is said.


ECC = {
    "kind": "ECC",
    "level": "error",
    "text": "GPU 3 (0000:c1:00.0): 2 uncorrected ECC errors",
    "next_step": "reset or replace it",
}
NUMA = {"kind": "NUMA balancing", "level": "warning", "text": "automatic NUMA balancing is on"}
SAID = "the node failed its preflight: GPU 3 (0000:c1:00.0): 2 uncorrected ECC errors; reset or replace it"


def paired(number, *problems, head=None):
    """A trial in which head is twice as slow, or what is given."""
    slow = head or ok([2 * seconds for seconds in TIMES])
    line = made.paired({"m16": {"triton": (ok(), slow), "blas": (ok(), ok())}}, number)
    return parsed({**line, "preflight": {"problems": list(problems), "facts": {"numa_balancing": 0}}})


def verdict(*trials):  # type: ignore[no-untyped-def]
    [case] = judge(comparisons(trials), load()).cases
    return case


@pytest.mark.parametrize(("more", "beside"), [([], True), ([1e-3], False)])
def test_a_baseline_is_compared_beside_where_it_has_the_same_rounds(more, beside):
    library = ok([*TIMES, *more])
    line = made.paired({"m16": {"triton": (ok(), ok()), "blas": (library, library)}})
    ((rounds,),) = (one.trials for one in comparisons([parsed(line)]) if one.backend == "triton")
    assert [side is not None for side in (rounds.baseline_base, rounds.baseline_head)] == [beside, beside]


def test_what_a_trial_says_of_its_node():
    found = paired(0, ECC, NUMA)
    assert [(fault.kind, fault.fatal) for fault in found.faults] == [("ECC", True), ("NUMA balancing", False)]
    assert unfit(found.faults) == "GPU 3 (0000:c1:00.0): 2 uncorrected ECC errors; reset or replace it"
    assert unfit(paired(0, NUMA).faults) == unfit(parsed(trial()).faults) == ""


def test_a_warning_leaves_the_verdict_alone():
    found = verdict(*(paired(number, NUMA) for number in range(5)))
    assert (found.verdict, found.warnings) == (Verdict.SLOWER, ())


def test_a_trial_that_has_no_time_of_an_arm_is_counted_as_lost():
    found = verdict(*map(paired, range(5)), paired(5, head=failed("hang")))
    assert found.warnings == ("1 of 6 trials have no time on one side; the others are used",)


@pytest.mark.parametrize("head", [None, failed("wrong")])
def test_on_a_failed_node_nothing_can_be_told(head):
    """Not even a wrong result: it may be the memory's."""
    found = verdict(*(paired(number, ECC, head=head) for number in range(5)))
    assert (found.verdict, found.evidence, found.wants_more) == (Verdict.CANNOT_TELL, (SAID,), False)


def test_equal_code_is_the_same_on_a_failed_node_too():
    """Another program on the GPU changes no code object."""
    hashed = {"code_hash": "5f" * 8}
    line = made.paired({"m16": {"triton": (ok() | hashed, ok([2 * one for one in TIMES]) | hashed)}})
    found = verdict(parsed({**line, "preflight": {"problems": [ECC], "facts": {"numa_balancing": 0}}}))
    assert (found.verdict, found.wants_more) == (Verdict.SAME, False)
    assert SAID in found.warnings


def test_trials_of_a_failed_node_are_left_out():
    fit = [paired(number) for number in range(5)]
    found = verdict(*fit, paired(5, ECC, head=failed("wrong")), paired(6, ECC))
    assert (found.verdict, found.trials) == (Verdict.SLOWER, 5)
    assert f"2 of 7 trials left out: {SAID}" in found.warnings


@pytest.mark.parametrize(
    "preflight", [[], {}, {"problems": [{"kind": "ECC"}]}, {"problems": [{**ECC, "level": "fatal"}]}]
)
def test_a_preflight_that_is_none_is_refused(preflight):
    with pytest.raises(Unfit, match="preflight"):
        parsed({**trial(), "preflight": preflight})
