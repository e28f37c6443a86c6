"""Whatever a step does to its process, it costs that step one clear line, and nothing of it stays."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.bringup import STEPS, RowStatus, __main__, probes
from benchmarks.bringup.__main__ import Bringup
from benchmarks.coordinator.checkouts import Checkout
from benchmarks.lifetime import ENDING, lives
from benchmarks.plan import PlannedArm, PlannedCase
from tests.kit import HANGS_S, ROOT, until


def result_of(step, deadline_s=60.0, checkout=ROOT):
    """The result of one step, run on this machine."""
    with Bringup(Checkout("head", checkout), lambda event: None) as bringup:
        [result] = bringup.run(step, deadline_s)
    return result


def row_of(result):
    [row] = result["rows"]
    return row["status"], row["text"], row["next_step"]


@pytest.mark.parametrize(
    ("step", "devices", "fault", "why"),
    [
        ("backend", [], "it hangs", "see devices"),
        ("fences", [], "", "no GPU"),
        ("heap", [{"pci": ""}], "", "needs 2 GPUs, torch sees 1"),
        ("fences", [{"pci": ""}] * 2, "", ""),
        ("backend", [{"pci": ""}], "", ""),
    ],
)
def test_what_is_not_tried_says_why(step, devices, fault, why):
    with Bringup(Checkout("head", ROOT), lambda event: None) as bringup:
        bringup.devices, bringup.fault = devices, fault
        assert bringup.obstacle(step) == why


@pytest.mark.slow
def test_two_ranks_have_a_heap_on_any_machine():
    result = result_of("heap")
    assert [(row["name"], row["status"]) for row in result["rows"]] == [("allocate", "pass"), ("write", "pass")]


@pytest.fixture
def dying(monkeypatch, tmp_path):
    """dying("source"): one of two ranks executes it when it loads torch.distributed; the other waits for it."""

    def make(source):
        monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent / "dying"))
        monkeypatch.setenv("DYING_ONCE", str(tmp_path / "first"))
        monkeypatch.setenv("DYING_SOURCE", source)
        monkeypatch.setenv("RIDGELINE_START", "spawn")  # a fork server would load it first

    return make


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("os.kill(os.getpid(), 11)", r"crash: rank [01] of 2 was killed by SIGSEGV in step: rccl"),
        ("os.kill(os.getpid(), 9)", r"crash: rank [01] of 2 was killed by SIGKILL \(often the out-of-memory.*"),
        ("os._exit(7)", r"crash: rank [01] of 2 ended with exit code 7 in step: rccl"),
        ("import time; time.sleep(600)", r"hang: .* gave no answer within 30 s in step: rccl; killed"),
    ],
)
def test_one_rank_that_dies_or_hangs_does_not_leave_the_other_waiting(dying, source, text):
    dying(source)
    status, said, next_step = row_of(result_of("rccl", deadline_s=30.0 if "sleep" in source else HANGS_S))
    assert status == "fail"
    assert re.fullmatch(text, said), said
    assert next_step.endswith("`ridgeline bringup --only rccl`")


@pytest.mark.slow
def test_a_torch_that_takes_the_first_process_down_is_a_line_of_its_own(stand_in):
    stand_in("torch", "import os; os.abort()")
    with Bringup(Checkout("head", ROOT), lambda event: None) as bringup:
        devices = bringup.probe()
        [rccl] = bringup.run("rccl")
    status, text, next_step = row_of(devices)
    assert status == "fail"
    assert text.startswith("the first process gave no answer: the process was killed by SIGABRT")
    assert "`ridgeline doctor`" in next_step
    assert row_of(rccl) == ("not here", "see devices", "")


def test_what_torch_sees_is_the_first_row():
    with Bringup(Checkout("head", ROOT), lambda event: None) as bringup:
        bringup.devices = [{"name": "AMD Instinct MI300X", "arch": "gfx942"}] * 8
        assert bringup._devices_row()["text"] == "8 x AMD Instinct MI300X (gfx942)"
        bringup.fault = "this machine has a GPU; use the other Python"
        row = bringup._devices_row()
    assert (row["status"], row["text"], row["next_step"]) == ("fail", "this machine has a GPU", "use the other Python")


@pytest.mark.slow
def test_each_kernel_is_a_result_of_its_own(toy_tree, toy_log):
    with Bringup(Checkout("head", toy_tree("tree")), lambda event: None) as bringup:
        results = {result["step"]: result for result in bringup.run("backend")}
    assert list(results) == ["backend/faults", "backend/pairs", "backend/steady", "backend"]
    assert {row["name"]: row["status"] for row in results["backend/steady"]["rows"]} == {
        "steady/ours": "pass", "steady/library": "pass", "steady/elsewhere": "not here",
    }  # fmt: skip
    faults = {row["name"]: row for row in results["backend/faults"]["rows"]}
    assert faults["faults/falls"]["text"].startswith("backend, one: crash: the process was killed by SIG")
    assert faults["faults/falls"]["next_step"] == (
        "`ridgeline verify --tier sweep --kernel faults --case one --backend falls`"
    )
    assert faults["faults/good"]["status"] == "pass", "the others are tried all the same"
    assert results["backend"]["rows"][0]["text"] == "3 kernels"


@pytest.mark.slow
def test_children_end_with_a_parent_that_is_killed(dying, tmp_path):
    marker = tmp_path / "pid"
    dying(f"import time; open({str(marker)!r}, 'w').write(str(os.getpid())); time.sleep(600)")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ["PYTHONPATH"]])}
    argv = [sys.executable, "-m", "benchmarks.bringup", "--only", "rccl", "--out", str(tmp_path / "o.json")]
    parent = subprocess.Popen(argv, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL)
    child = int(until(lambda: marker.exists() and marker.read_text()))
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert until(lambda: not lives(child))


# The command: what it refuses, and what is in its report.


@pytest.fixture(autouse=True)
def _signals():
    """main() takes over the signals that end a command."""
    before = {number: signal.getsignal(number) for number in ENDING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def bring_up(folder, *options):
    """Exit code and report of a bring-up of this checkout."""
    files = ["--out", str(folder / "report.json"), "--tree", str(ROOT)]
    code = __main__.main([*files, *options])
    return code, json.loads((folder / "report.json").read_text())


def test_what_does_not_exist_is_refused_with_what_does(tmp_path, capsys):
    for options in (["--only", "heaps"], ["--onyl"]):
        assert exit_code(options) == 3
    assert 'only[0] is "heaps"; allowed: heap, fences, rccl, backend' in capsys.readouterr().err


def exit_code(options):
    try:
        return __main__.main(options)
    except SystemExit as left:
        return left.code


def test_a_file_that_cannot_be_written_is_refused_before_anything_runs(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert exit_code(["--only", "heap", "--out", str(tmp_path / "file/report.json")]) == 3
    assert "file/report.json" in capsys.readouterr().err


def test_the_steps_of_the_ranks_are_functions_of_the_probes():
    assert all(callable(getattr(probes, step)) for step in STEPS if step != "backend")


@pytest.mark.slow
def test_an_interrupted_bring_up_has_a_report_of_what_is_finished(dying, tmp_path):
    marker = tmp_path / "pid"
    dying(f"import time; open({str(marker)!r}, 'w').write(str(os.getpid())); time.sleep(600)")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ["PYTHONPATH"]])}
    argv = [sys.executable, "-m", "benchmarks.bringup", "--only", "rccl", "--out", str(tmp_path / "report.json")]
    running = subprocess.Popen(argv, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)
    until(lambda: marker.exists() and marker.read_text())
    running.send_signal(signal.SIGINT)
    _, error = running.communicate(timeout=HANGS_S)
    assert running.returncode == 130
    assert "the report has what is finished" in error
    whole = json.loads((tmp_path / "report.json").read_text())
    assert [step["step"] for step in whole["steps"]] == ["devices"]
    assert "rccl" in whole["not_run"]


# ---- the report --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_step_that_fails_is_exit_code_1(dying, tmp_path):
    dying("os._exit(7)")
    code, whole = bring_up(tmp_path, "--only", "rccl")
    assert (code, [step["status"] for step in whole["steps"]]) == (1, ["pass", "fail"])
    assert whole["not_run"] == ["heap", "fences", "backend"]


# Which cases the backends are tried in, and what is said of them.


def case(name, world=1, arms=("ours",), skip=""):
    return PlannedCase(name, world, tuple(PlannedArm("head", arm) for arm in arms), "events", 1, 1, 0, skip)


def cost(flops, hbm_bytes):
    return {"flops": flops, "hbm_bytes": hbm_bytes, "link_bytes": 0, "payload_bytes": 0}


def test_the_smallest_case_of_the_most_ranks_is_tried():
    cases = [case("w2_small", 2), case("w4_large", 4), case("w4_small", 4), case("w8", 8, skip="needs 8 GPUs")]
    costs = {"w2_small": cost(0, 1), "w4_large": cost(0, 400), "w4_small": cost(0, 40), "w8": cost(0, 1)}
    assert __main__.smallest(cases, costs).name == "w4_small"


def arm(status, why="", **more):
    return {"status": status, "why": why, **more}


RIGHT = arm("ok", error={"norm": 2e-4, "peak": 1e-2})


@pytest.mark.parametrize(
    ("entry", "status", "text"),
    [
        (RIGHT, RowStatus.PASS, "baseline, right in m16 (error 2.0e-04)"),
        (arm("unsupported", "no such dtype"), RowStatus.NOT_HERE, "baseline, m16: no such dtype"),
        (arm("wrong", "norm 0.5", detail=""), RowStatus.FAIL, "baseline, m16: wrong: norm 0.5"),
        (arm("hang", "no answer within 120 s"), RowStatus.FAIL, "baseline, m16: hang: no answer within 120 s"),
        (arm("crash", "killed by SIGABRT"), RowStatus.FAIL, "baseline, m16: crash: killed by SIGABRT"),
    ],
)
def test_what_is_said_of_a_backend(entry, status, text):
    row = __main__.arm_row("gemm", "m16", PlannedArm("head", "aiter"), entry, True)
    assert (row["name"], row["status"], row["text"]) == ("gemm/aiter", status, text)
    assert bool(row["next_step"]) == (status == RowStatus.FAIL)


def test_what_compiles_itself_for_long_is_left_to_verify():
    slow = PlannedArm("head", "aiter", libraries="amd-aiter 0.1.20", first_call_s=1800.0)
    row = __main__.arm_row("moe", "m16", slow, None, True)
    assert "amd-aiter 0.1.20 compiles itself on first use, up to 30 minutes" in row["text"]
    assert row["next_step"] == "`ridgeline verify --tier sweep --kernel moe --case m16 --backend aiter`"


# Packages that stand in for those of a measuring process.


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """stand_in("torch", "source"): a package that measuring processes import."""
    folder = tmp_path / "site"
    monkeypatch.setenv("PYTHONPATH", str(folder))

    def make(name, source):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(source)

    return make
