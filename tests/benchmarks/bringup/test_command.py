"""The command: what it keeps, what it repeats, what it refuses, and what is in its report."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.bringup import __main__, report
from benchmarks.bringup.steps import all_steps, choose, failed, not_here, passed
from benchmarks.coordinator.signals import ENDING
from benchmarks.plan import UsageError

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def _signals():
    """main() takes over the signals that end a command."""
    before = {number: signal.getsignal(number) for number in ENDING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def bring_up(folder: Path, *options: str) -> tuple[int, dict]:
    """Exit code and report of a bring-up of this checkout."""
    files = ["--state", str(folder / "state.jsonl"), "--out", str(folder / "report.json"), "--tree", str(ROOT)]
    code = __main__.main([*files, *options])
    return code, json.loads((folder / "report.json").read_text())


def kept(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "state.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_finished_steps_are_not_repeated_and_again_repeats_them(tmp_path, capsys):
    code, first = bring_up(tmp_path, "--only", "torch", "--only", "machine")
    assert (code, first["resumed"], first["complete"]) == (0, [], True)
    assert [step["step"] for step in first["steps"]] == ["machine", "torch"], "in the order of the steps"
    assert "heap" in first["not_run"]
    capsys.readouterr()

    code, second = bring_up(tmp_path, "--only", "torch", "--only", "machine", "--only", "timer")
    assert second["resumed"] == ["machine", "torch"]
    assert "2 results" in capsys.readouterr().err
    assert [line["step"] for line in kept(tmp_path)] == ["machine", "torch", "timer"]
    assert second["steps"][0] == first["steps"][0]

    bring_up(tmp_path, "--only", "torch", "--again")
    assert [line["step"] for line in kept(tmp_path)] == ["machine", "torch", "timer", "torch"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "word"), [("machine", "another machine"), ("versions", "other versions"), ("tree", "other code")]
)
def test_what_holds_for_something_else_starts_afresh_and_says_so(tmp_path, capsys, part, word):
    bring_up(tmp_path, "--only", "torch")
    [line] = kept(tmp_path)
    line["holds_for"][part] = "0" * 16
    (tmp_path / "state.jsonl").write_text(json.dumps(line) + "\n")
    _, second = bring_up(tmp_path, "--only", "torch")
    assert second["resumed"] == []
    assert f"knows of {word} only: starting afresh" in capsys.readouterr().err


@pytest.mark.slow
def test_a_torn_or_foreign_state_file_is_no_obstacle(tmp_path):
    (tmp_path / "state.jsonl").write_text('{"format": "ridgeline-bringup-step", "version": 1, "ste\n[]\n\x00\n{}')
    assert bring_up(tmp_path, "--only", "torch")[0] == 0
    assert bring_up(tmp_path, "--only", "torch")[1]["resumed"] == ["torch"]


def line(step: str, *rows) -> dict:
    return report.kept_line(report.step_line(step, 1.0, [row.as_json() for row in rows]), {"machine": "m"})


def test_what_failed_or_was_not_here_is_tried_again(tmp_path):
    path = tmp_path / "state.jsonl"
    lines = [
        line("heap", passed("write", "right")),
        line("fences", passed("one", "right"), failed("many", "7 violations", "send it")),
        line("graph", not_here("graph", "no GPU")),
        line("timer", passed("host", "fine"), not_here("events", "no GPU")),
        line("rccl", failed("all_gather", "wrong", "look")),
        line("rccl", passed("all_gather", "right")),
        line("backend/gemm", failed("gemm/triton", "wrong", "look")),
        line("backend/all_gather", passed("all_gather/triton", "right")),
        line("backend", passed("declared", "2 kernels")),
    ]
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    done = report.kept_steps(path, {"machine": "m"})
    assert sorted(done) == ["backend/all_gather", "heap", "rccl", "timer"], "backend has a part to repeat"


def test_what_does_not_exist_is_refused_with_what_does(tmp_path, capsys):
    for options in (
        ["--only", "heaps"],
        ["--skip", "backend/gemn"],
        ["--only", "torch", "--skip", "torch"],
        ["--onyl"],
    ):
        assert exit_code(options) == 3
    said = capsys.readouterr().err
    assert "no step 'heaps'; known: machine, torch, triton" in said
    assert "leave no step" in said


def exit_code(options: list[str]) -> int:
    try:
        return __main__.main(options)
    except SystemExit as left:
        return left.code


def test_a_file_that_cannot_be_written_is_refused_before_anything_runs(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert exit_code(["--only", "torch", "--out", str(tmp_path / "file/report.json")]) == 3
    assert exit_code(["--only", "torch", "--state", str(tmp_path)]) == 3
    assert not list(tmp_path.glob("*.jsonl"))


def test_the_list_of_steps_has_their_seconds(capsys):
    assert __main__.main(["--dry-run", "--only", "package", "--only", "fences"]) == 0
    said = capsys.readouterr().out
    assert [text.split()[0] for text in said.splitlines()[:2]] == ["fences/torch", "fences/ipc"]
    assert "package/aiter" in said
    assert "heap/torch" not in said
    assert "together" in said


def test_steps_have_names_and_deadlines_that_fit():
    steps = all_steps()
    assert len({step.name for step in steps}) == len(steps)
    for module, _, function in (step.probe.partition(":") for step in steps if step.probe):
        assert callable(getattr(importlib.import_module(f"benchmarks.bringup.probes.{module}"), function))
    assert all(step.deadline_s > 2 * step.expected_s for step in steps)
    assert sum(step.expected_s for step in steps) < 300, "2 H200 take less than 5 minutes"
    assert [step.name for step in choose(["package"], ["package/aiter"])][0] == "package/flydsl"
    with pytest.raises(UsageError, match="known:"):
        choose(["nosuch"], [])


@pytest.mark.slow
def test_an_interrupted_bring_up_keeps_what_is_finished_and_has_a_report(stand_in, tmp_path):
    bringup = "int(open(f'/proc/{os.getppid()}/stat').read().rpartition(') ')[2].split()[1])"  # its parent's parent
    stand_in("aiter", f"import os, signal, time; os.kill({bringup}, signal.SIGINT); time.sleep(600)")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ["PYTHONPATH"]])}
    files = ["--state", str(tmp_path / "state.jsonl"), "--out", str(tmp_path / "report.json")]
    argv = [sys.executable, "-m", "benchmarks.bringup", "--only", "torch", "--only", "package/aiter", *files]
    ended = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 130
    assert "what is finished is kept" in ended.stderr
    assert [one["step"] for one in kept(tmp_path)] == ["torch"]
    whole = json.loads((tmp_path / "report.json").read_text())
    assert "package/aiter" in whole["not_run"]
    assert not whole["complete"]


# ---- the report --------------------------------------------------------------------------------------------------


def test_the_report_holds_nothing_private(monkeypatch):
    monkeypatch.setattr(report.platform, "node", lambda: "gpu-node-17")
    monkeypatch.setenv("HF_TOKEN", "hf_abcdefgh")
    monkeypatch.setenv("SOME_KEY", "true")
    rows = [failed("x", f"gpu-node-17: no {Path.home()}/.cache, hf_abcdefgh", "see it", detail="hf_abcdefgh").as_json()]
    steps = [report.step_line("x", 1.0, rows)]
    whole = report.document({"resumed": [], "fine": True}, steps, 1.0, [])
    text = json.dumps(whole)
    assert "gpu-node-17" not in text
    assert "hf_abcdefgh" not in text
    assert whole["steps"][0]["rows"][0]["text"] == "<host>: no <home>/.cache, <secret>"
    assert whole["fine"] is True


def test_the_report_is_of_bounded_size():
    rows = [failed("x", "y" * 9000, "z" * 9000, detail="w" * 9000).as_json() for _ in range(500)]
    assert len(rows[0]["text"]) == 600
    assert len(rows[0]["detail"]) == 1500
    whole = report.document({"resumed": []}, [report.step_line("x", 1.0, rows)], 1.0, [])
    assert len(json.dumps(whole)) < 2 * report.LARGEST_BYTES
    assert whole["steps"][0]["rows"][0]["detail"] == ""
    assert whole["counts"] == {"pass": 0, "fail": 500, "not here": 0}


def test_numbers_that_are_not_finite_are_left_out():
    row = passed("x", "y", rate=(float("inf"), "GB/s"), size=(1.23456, "GB"))
    assert row.as_json()["numbers"] == {"size": {"value": 1.235, "unit": "GB"}}


@pytest.mark.slow
def test_a_step_that_fails_is_exit_code_1_and_is_tried_again(stand_in, tmp_path):
    stand_in("aiter", "import os; os.abort()", "amd-aiter")
    code, first = bring_up(tmp_path, "--only", "package/aiter", "--only", "machine")
    assert (code, first["counts"]["fail"], first["counts"]["pass"]) == (1, 1, 1)
    assert bring_up(tmp_path, "--only", "package/aiter", "--only", "machine")[1]["resumed"] == ["machine"]
