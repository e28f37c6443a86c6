"""The door of the trial file: what is not a trial is named with its line and its reason, and the rest is used."""

from __future__ import annotations

import copy
import gzip
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks import trial_file
from benchmarks.shapes import Unfit
from ci.__main__ import main
from ci.judging.judge import judge
from ci.judging.policy import load
from ci.judging.types import Verdict
from ci.records import store
from ci.trials import file
from ci.trials.comparisons import comparisons
from ci.trials.file import (
    LONGEST_LINE,
    Fault,
    Followed,
    Rejected,
    TrialBatch,
    measured_operators,
    missing,
    parse_line,
    read,
)
from ci.trials.trial import Trial, unfit
from dashboards.build import build
from tests.ci import made_trials as made
from tests.ci.made_trials import BASE, HEAD, MACHINE, TIMES, failed, ok, parsed, tree, trial

SECONDS = ("cases", "m16", "arms", "head/triton", "seconds")
DECLARED = ("trees", "head", "declaration")


def put(*way: Any) -> Callable[[dict[str, Any]], None]:
    """Set the value at the end of a path: put("machine", "count", "two")."""

    def change(line: dict[str, Any]) -> None:
        *path, last, value = way
        for key in path:
            line = line[key]
        line[last] = value

    return change


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


SPOILED = {
    "time of 1e-320 s": put(*SECONDS, 0, 1e-320),
    "time of a day": put(*SECONDS, 3, 86400.0),
    "time of zero": put(*SECONDS, 0, 0),
    "time that is a word": put(*SECONDS, 0, "fast"),
    "time that is true": put(*SECONDS, 0, True),
    "time that is null": put(*SECONDS, 0, None),
    "time beyond a float": put(*SECONDS, 0, 10**400),
    "no times": put(*SECONDS, []),
    "times that are one number": put(*SECONDS, 1.0),
    "ok without times": lambda line: line["cases"]["m16"]["arms"]["head/triton"].pop("seconds"),
    "an error with times": put("cases", "m16", "arms", "head/triton", "status", "error"),
    "status that is a list": put("cases", "m16", "arms", "head/triton", "status", ["ok"]),
    "status missing": lambda line: line["cases"]["m16"]["arms"]["head/triton"].pop("status"),
    "why that is a number": put("cases", "m16", "arms", "head/triton", "why", 7),
    "skew that is a word": put("cases", "m16", "arms", "head/triton", "skew_s", "much"),
    "knobs that are a list": put("cases", "m16", "arms", "head/triton", "knobs", [1]),
    "code hash that is a number": put("cases", "m16", "arms", "head/triton", "code_hash", 12),
    "arm that is a number": put("cases", "m16", "arms", "head/triton", 5),
    "arms that are a list": put("cases", "m16", "arms", []),
    "arm of an unknown role": put("cases", "m16", "arms", "third/triton", ok()),
    "arm of a checkout that is not there": put("cases", "m16", "arms", "base/triton", ok()),
    "arm without a role": put("cases", "m16", "arms", "triton", ok()),
    "arm of an undeclared backend": put("cases", "m16", "arms", "head/cuda", ok()),
    "case that is not declared": put("cases", "m17", {"arms": {"head/triton": ok()}}),
    "case with a slash": put("cases", "m/16", {"arms": {}}),
    "case that is a list": put("cases", "m16", []),
    "case with an empty name": put("cases", "", {"arms": {}}),
    "cases that are a list": put("cases", []),
    "warnings that are a text": put("warnings", "hot"),
    "warning that is a number": put("warnings", [3]),
    "date of 10**30 ms": put("trees", "head", "date_ms", 10**30),
    "date before 1970": put("trees", "head", "date_ms", -1),
    "date that is a text": put("trees", "head", "date_ms", "today"),
    "date that is a float": put("trees", "head", "date_ms", 1.5),
    "start that is no date": put("started_at", "yesterday"),
    "start without an offset": put("started_at", "2026-11-20T12:00:00"),
    "start in the year 9999": put("started_at", "9999-12-31T23:59:59+00:00"),
    "start that is a number": put("started_at", 5),
    "count of two": put("machine", "count", "two"),
    "count of zero": put("machine", "count", 0),
    "memory beyond 64 bit": put("machine", "memory_bytes", 2**70),
    "machine that is a list": put("machine", []),
    "machine name that is a path": put("machine", "name", "../x"),
    "machine name of 500 letters": put("machine", "name", "m" * 500),
    "kind of machine unknown": put("machine", "kind", "tpu"),
    "device with a control character": put("machine", "device", "H200\x1b[31m"),
    "device with a lone surrogate": put("machine", "device", "H200\ud800"),
    "lone surrogate in a reason": put("trees", "head", "broken", [{"module": "m", "reason": "\udfff"}]),
    "lone surrogate in an unknown field": put("extra", "\ud800"),
    "lone surrogate in a key": put("\ud800", 1),
    "control character in a name": put("kernel", "ge\x00mm"),
    "operator that is a number": put("kernel", 5),
    "operator other than its declaration": put("kernel", "gemv"),
    "declaration of another operator": put(*DECLARED, "kernel", "gemv"),
    "declaration that is a text": put(*DECLARED, "gemm"),
    "declaration without cases": lambda line: line["trees"]["head"]["declaration"].pop("cases"),
    "case declared twice": lambda line: line["trees"]["head"]["declaration"]["cases"].append(
        line["trees"]["head"]["declaration"]["cases"][0]
    ),
    "case declared without a name": put(*DECLARED, "cases", 0, {"world": 1}),
    "world of a word": put(*DECLARED, "cases", 0, "world", "one"),
    "backend declared twice": put(*DECLARED, "backends", ["triton", "triton", "blas"]),
    "backends that are a text": put(*DECLARED, "backends", "triton"),
    "baseline that is no backend": put(*DECLARED, "baselines", ["cublas"]),
    "cost of an unknown case": put(*DECLARED, "costs", {"m99": {}}),
    "cost of a float": put(*DECLARED, "costs", {"m16": {"flops": 1.5}}),
    "cost below zero": put(*DECLARED, "costs", {"m16": {"hbm_bytes": -1}}),
    "definition that is a number": put(*DECLARED, "yardstick", 1),
    "case definition that is a list": put(*DECLARED, "case_yardsticks", {"m16": []}),
    "no environment": lambda line: line["trees"]["head"].pop("environment"),
    "environment that is a list": put("trees", "head", "environment", []),
    "version that is a number": put("trees", "head", "environment", "torch", 2.11),
    "commit that is a number": put("trees", "head", "commit", 5),
    "dirty that is a word": put("trees", "head", "dirty", "no"),
    "broken module that is a text": put("trees", "head", "broken", ["kernels.gemm"]),
    "checkout of an unknown role": put("trees", "third", tree()),
    "checkouts that are a list": put("trees", []),
    "trial that is a word": put("trial", "first"),
    "trial below zero": put("trial", -1),
    "trial that is true": put("trial", True),
    "id that is a number": put("id", 5),
    "session missing": lambda line: line.pop("session"),
    "duration of a word": put("duration_s", "long"),
    "duration below zero": put("duration_s", -1),
    "state that is a list": put("state", []),
    "clock of a word": put("state", {"before": {"sm_clock_mhz": "fast"}}),
    "readings that are a text": put("state", {"during": "none"}),
    "throttle that is a number": put("state", {"after": {"throttle": 4}}),
    "nested 30 deep": put("extra", nested(30)),
    "a text of a million letters": put("extra", "x" * 10**6),
    "a name of 5,000 letters": put("trees", "head", "environment", "torch", "2" * 5000),
    "a newer version": put("version", 2),
    "a version that is a text": put("version", "1"),
    "another format": put("format", "ridgeline-check"),
}


def spoiled(name: str) -> dict[str, Any]:
    line = copy.deepcopy(trial(number=1))
    SPOILED[name](line)
    return line


@pytest.mark.parametrize("name", SPOILED)
def test_a_spoiled_line_is_refused_with_its_place(name: str) -> None:
    found = parse_line(json.dumps(spoiled(name)).encode(), 7)
    assert isinstance(found, Rejected)
    assert (found.number, found.fault) in ((7, Fault.NOT_A_TRIAL), (7, Fault.NOT_JSON))
    assert "allowed:" in found.why or found.fault is Fault.NOT_JSON
    assert len(found.why) < 700
    found.why.encode()
    with pytest.raises(trial_file.Unfit):
        trial_file.check(spoiled(name))


def test_every_spoiled_line_is_told_and_the_others_are_recorded_and_shown(tmp_path: Path) -> None:
    file = tmp_path / "trials.jsonl"
    bad = [json.dumps(spoiled(name)) for name in SPOILED]
    file.write_text("\n".join([json.dumps(trial()), *bad, json.dumps(trial(number=2))]) + "\n")
    arguments = ["record", str(file), "--results", str(tmp_path / "results"), "--json"]
    answer = CliRunner().invoke(main, arguments)
    assert answer.exit_code == 3
    told = json.loads(answer.stdout)
    assert told["added"] == 2
    assert [p["where"] for p in told["problems"]] == [f"{file}:{n}" for n in range(2, len(bad) + 2)]
    assert build(tmp_path / "results", tmp_path / "site").is_dir()


BAD_LINES = {
    "torn": (lambda line: json.dumps(line).encode()[:-200], "the line is torn, its writer was interrupted"),
    "no JSON": (lambda line: b"Traceback (most recent call last)", "not JSON"),
    "not UTF-8": (lambda line: b'{"format": "\xff\xfe"}', "not UTF-8"),
    "something else": (lambda line: b'{"format": "sarif"}', 'format is "sarif"'),
    "newer": (lambda line: json.dumps({**line, "version": 2}).encode(), "version is 2; allowed: 1"),
    "no machine": (lambda line: json.dumps({**line, "machine": {}}).encode(), "machine.name is null"),
    "a machine outside": (
        lambda line: json.dumps({**line, "machine": {**MACHINE, "name": "../../etc"}}).encode(),
        'machine.name is "../../etc"; allowed: a file name',
    ),
    "no declaration": (
        lambda line: json.dumps({**line, "trees": {"head": {**tree(), "declaration": {"doc": ""}}}}).encode(),
        "trees.head.declaration.kernel is null; allowed: a value; it is missing",
    ),
    "NaN": (lambda line: json.dumps(line).replace("0.00101", "NaN").encode(), "the token NaN is not allowed"),
    "negative": (
        lambda line: json.dumps(line).replace("0.00101", "-0.00101").encode(),
        "seconds[1] is -0.00101; allowed: a number from 1e-09 to 3600",
    ),
    "NUL": (lambda line: json.dumps(line).encode().replace(b"gemm", b"ge\0m"), "not JSON: Invalid control character"),
    "nothing but NUL": (lambda line: b"\0" * 500, "not JSON"),
    "endless": (lambda line: b'{"format": "' + b"x" * LONGEST_LINE, "64 MB long; a trial has at most 64 MB"),
    "unknown status": (
        lambda line: json.dumps(line).replace('"ok"', '"fine"').encode(),
        'status is "fine"; allowed: ok, wrong, error',
    ),
}


@pytest.mark.parametrize("name", BAD_LINES)
def test_what_is_wrong_with_a_line_is_said(name: str) -> None:
    spoil, reason = BAD_LINES[name]
    found = parse_line(spoil(trial(number=1)))
    assert isinstance(found, Rejected)
    assert reason in found.why


@pytest.mark.parametrize("cut", [1, 2, 17, 300])
def test_a_line_is_torn_only_if_its_json_is_incomplete(cut: int) -> None:
    whole = json.dumps(trial()).encode()
    torn = parse_line(whole[:-cut])
    assert isinstance(torn, Rejected)
    assert torn.fault is Fault.TORN
    for other in (whole + b"}", whole + b" x", b"x" + whole, whole[:-cut] + b"\xff", b'{"a": nothing}', b"Traceback"):
        found = parse_line(other)
        assert isinstance(found, Rejected)
        assert found.fault is Fault.NOT_JSON


def test_a_line_nested_beyond_the_parser_is_refused() -> None:
    found = parse_line(b'{"format": ' + b"[" * 100_000 + b"]" * 100_000 + b"}")
    assert isinstance(found, Rejected)
    assert found.fault is Fault.NOT_A_TRIAL


def test_the_same_trial_twice_counts_once_and_other_results_under_its_id_are_a_conflict(tmp_path: Path) -> None:
    line = trial()
    other = {**trial({"m16": {"head/triton": ok([2e-3] * 8)}}), "id": line["id"]}
    file = tmp_path / "trials.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in (line, line, other)))
    found = read(file)
    assert len(found.trials) == 1
    assert [(one.number, one.fault) for one in found.rejected] == [(3, Fault.CONFLICT)]
    results = tmp_path / "results"
    assert store.record([file], results).added == 1
    file.write_text(json.dumps(other) + "\n")
    again = store.record([file], results)
    assert (again.added, again.known) == (0, 0)
    assert "recorded already with other results" in again.problems[0].why


def test_a_file_that_grows_is_parsed_line_by_line_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, parses = tmp_path / "trials.jsonl", []
    check = trial_file.check
    monkeypatch.setattr(trial_file, "check", lambda line: (parses.append(line["id"]), check(line))[1])
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
    assert [one.fault for one in log.read().rejected] == [Fault.TORN]
    assert len(log.read().trials) == 5


def test_a_replay_names_the_lines_it_does_not_use(tmp_path: Path) -> None:
    trees = {"base": tree(BASE), "head": tree(HEAD)}
    lines = [trial({"m16": {"base/triton": ok(), "head/triton": ok()}}, number=n, trees=trees) for n in range(4)]
    file = tmp_path / "trials.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in (*lines, {**lines[0], "id": "x", "trial": "one"})))
    answer = CliRunner().invoke(main, ["ab", "--replay", str(file), "--json"])
    told = json.loads(answer.stdout)
    assert [(one["line"], one["fault"]) for one in told["rejected"]] == [(5, "not a trial")]
    assert "trial" in told["rejected"][0]["reason"]
    assert told["cases"][0]["trials"] == 4


def test_the_writer_writes_what_the_readers_take() -> None:
    line = trial({"m16": {"head/triton": {**ok([0.0] * 8)}, "head/blas": ok()}})
    line["cases"]["m16"]["arms"]["head/blas"]["detail"] = "\x1b[31mred\ud800" + "x" * 50_000
    written = trial_file.finished({key: value for key, value in line.items() if key not in ("id", "format", "version")})
    found = parsed(json.loads(json.dumps(written)))
    assert found.cases["m16"].arms["head", "triton"].status == "error"
    assert found.cases["m16"].arms["head", "blas"].ok


# A trial file from a stranger: nothing in it costs more than the limits allow.


def why(path: Path) -> str:
    found = file.read_hostile(path)
    assert found.trials == ()
    return found.rejected[0].why


def test_a_sound_file_is_read(tmp_path: Path) -> None:
    found = file.read_hostile(made.write(tmp_path / "t.jsonl", made.trial(), made.trial(number=1)))
    assert (len(found.trials), found.rejected) == (2, ())


def test_a_compressed_file_is_not_unpacked(tmp_path: Path) -> None:
    bomb = tmp_path / "t.jsonl"
    bomb.write_bytes(gzip.compress(b"0" * 1_000_000))
    assert "compressed" in why(bomb)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    target = made.write(tmp_path / "real.jsonl", made.trial())
    link = tmp_path / "t.jsonl"
    link.symlink_to(target)
    assert "cannot be read" in why(link)


def test_a_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "t.jsonl")
    assert "not a plain file" in why(tmp_path / "t.jsonl")


def test_a_folder_is_refused(tmp_path: Path) -> None:
    assert why(tmp_path)


def test_a_file_that_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "LARGEST_FILE", 1000)
    assert "larger than 1000 bytes" in why(made.write(tmp_path / "t.jsonl", made.trial()))


def test_too_many_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "MOST_LINES", 2)
    assert "more than 2 lines" in why(made.write(tmp_path / "t.jsonl", *(made.trial(number=n) for n in range(3))))


def test_a_long_line_takes_no_other_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "LARGEST_LINE", 5000)
    path = made.write(tmp_path / "t.jsonl", made.trial())
    path.write_bytes(b"[" * 6000 + b"\n" + path.read_bytes())
    found = file.read_hostile(path)
    assert len(found.trials) == 1
    assert [(one.number, one.why) for one in found.rejected] == [(1, "longer than 5000 bytes")]


def test_bad_lines_are_counted_beyond_some(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text("nonsense\n" * (file.MOST_REJECTED + 7))
    found = file.read_hostile(path)
    assert len(found.rejected) == file.MOST_REJECTED + 1
    assert found.rejected[-1].why == "7 further lines are not used"


def test_deep_nesting_and_large_numbers_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text("[" * 100_000 + "\n" + "1" * 10_000 + "\n" + '{"format": "ridgeline-trial", "version": 1e999}\n')
    found = file.read_hostile(path)
    assert found.trials == ()
    assert len(found.rejected) == 3


# Which trials a run still lacks, against counting them one by one.


OPERATORS = ("gemm", "all_gather", "norm")


def trials(*done: tuple[str, int]) -> list[Any]:
    return [SimpleNamespace(operator=operator, number=number) for operator, number in done]


def test_nothing_is_there_yet() -> None:
    assert missing([], OPERATORS, 6, 3) == [TrialBatch(OPERATORS, 6, 3)]


def test_a_trial_that_was_interrupted_is_completed_first() -> None:
    done = trials(("gemm", 0), ("all_gather", 0), ("norm", 0), ("gemm", 1))
    assert measured_operators(done, 0) == OPERATORS
    assert missing(done, OPERATORS, 0, 4) == [TrialBatch(("all_gather", "norm"), 1, 1), TrialBatch(OPERATORS, 2, 2)]


def test_all_is_there() -> None:
    done = trials(*((operator, number) for number in range(3, 6) for operator in OPERATORS))
    assert missing(done, OPERATORS, 3, 3) == []


def test_the_first_trial_says_what_is_planned_only_when_it_is_whole() -> None:
    assert measured_operators(trials(("gemm", 0)), 0) == ()
    assert measured_operators(trials(("gemm", 5), ("norm", 5), ("gemm", 6)), 5) == ("gemm", "norm")


def test_any_state_is_completed_exactly() -> None:
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


def paired(number: int, *problems: dict[str, str], head: dict[str, Any] | None = None) -> Trial:
    """A trial in which head is twice as slow, or what is given."""
    slow = head or ok([2 * seconds for seconds in TIMES])
    arms = {"base/triton": ok(), "head/triton": slow, "base/blas": ok(), "head/blas": ok()}
    line = trial({"m16": arms}, number, trees={"base": tree(BASE), "head": tree()})
    return parsed({**line, "preflight": {"problems": list(problems), "facts": {"numa_balancing": 0}}})


def verdict(*trials: Trial):  # type: ignore[no-untyped-def]
    [case] = judge(comparisons(trials), load()).cases
    return case


def test_what_a_trial_says_of_its_node() -> None:
    found = paired(0, ECC, NUMA)
    assert [(fault.kind, fault.fatal) for fault in found.faults] == [("ECC", True), ("NUMA balancing", False)]
    assert unfit(found.faults) == "GPU 3 (0000:c1:00.0): 2 uncorrected ECC errors; reset or replace it"
    assert unfit(paired(0, NUMA).faults) == unfit(parsed(trial()).faults) == ""


def test_a_warning_leaves_the_verdict_alone() -> None:
    assert verdict(*(paired(number, NUMA) for number in range(5))).verdict is Verdict.SLOWER


@pytest.mark.parametrize("head", [None, failed("wrong")], ids=["slower", "wrong"])
def test_on_a_failed_node_nothing_can_be_told(head: dict[str, Any] | None) -> None:
    """Not even a wrong result: it may be the memory's."""
    found = verdict(*(paired(number, ECC, head=head) for number in range(5)))
    assert (found.verdict, found.evidence, found.wants_more) == (Verdict.CANNOT_TELL, (SAID,), False)


def test_trials_of_a_failed_node_are_left_out() -> None:
    fit = [paired(number) for number in range(5)]
    found = verdict(*fit, paired(5, ECC, head=failed("wrong")), paired(6, ECC))
    assert (found.verdict, found.trials) == (Verdict.SLOWER, 5)
    assert f"2 of 7 trials left out: {SAID}" in found.warnings


@pytest.mark.parametrize(
    "preflight", [[], {}, {"problems": [{"kind": "ECC"}]}, {"problems": [{**ECC, "level": "fatal"}]}]
)
def test_a_preflight_that_is_none_is_refused(preflight: object) -> None:
    with pytest.raises(Unfit, match="preflight"):
        parsed({**trial(), "preflight": preflight})
