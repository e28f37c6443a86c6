"""Whatever a step does to its process, it costs that step one clear line, and nothing of it stays."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.bringup import __main__, report, run
from benchmarks.bringup.run import Bringup, Seen
from benchmarks.bringup.steps import BACKENDS, Needs, RowStatus, all_steps, choose, failed, not_here, passed
from benchmarks.coordinator.checkouts import Checkout
from benchmarks.lifetime import ENDING
from benchmarks.plan import PlannedArm, PlannedCase, UsageError

ROOT = Path(__file__).resolve().parents[3]


def result_of(step: str, deadline_s: float = 60.0, checkout: Path = ROOT) -> dict:
    """The result of one step, run on this machine."""
    chosen = next(one for one in choose([step], []) if one.name == step)
    found = []
    with Bringup(Checkout("head", checkout), lambda event: None) as bringup:
        bringup.seen = Seen(environment={"python": "3.11", "torch": "2.13.0"})
        found += bringup.run(dataclasses.replace(chosen, deadline_s=deadline_s), [])
    assert len(found) == 1
    return found[0]


def row_of(result: dict) -> tuple[str, str, str]:
    [row] = result["rows"]
    return row["status"], row["text"], row["next_step"]


@pytest.mark.slow
def test_a_package_that_is_there(stand_in):
    stand_in("aiter", "", "amd-aiter", "0.1.9")
    assert row_of(result_of("package/aiter")) == ("pass", "amd-aiter 0.1.9", "")


@pytest.mark.slow
def test_another_project_of_the_same_name(stand_in):
    stand_in("aiter", "", "aiter", "0.13.20191203")
    status, text, next_step = row_of(result_of("package/aiter"))
    assert (status, text) == ("fail", "`aiter` is installed by aiter, another project of that name")
    assert next_step.startswith("pip uninstall aiter; pip install amd-aiter")


@pytest.mark.slow
def test_a_package_that_does_not_fit_this_torch(stand_in):
    stand_in("aiter", "raise ImportError('undefined symbol: _ZN3c10')", "amd-aiter", "0.1.9")
    status, text, _ = row_of(result_of("package/aiter"))
    assert (status, text) == ("fail", "amd-aiter 0.1.9 does not import: ImportError: undefined symbol: _ZN3c10")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("import os; os.abort()", "crash: the process was killed by SIGABRT in step: package/aiter"),
        ("import os; os.kill(os.getpid(), 11)", "crash: the process was killed by SIGSEGV in step: package/aiter"),
        ("import os; os.kill(os.getpid(), 9)", "crash: the process was killed by SIGKILL (often the out-of-memory"),
        ("import os; os._exit(7)", "crash: the process ended with exit code 7 in step: package/aiter"),
        ("raise SystemExit(1)", "error: SystemExit: 1"),
        ("import time; time.sleep(600)", "hang: the process gave no answer within 4 s in step: package/aiter; killed"),
    ],
)
def test_a_package_that_takes_its_process_down(stand_in, source, text):
    stand_in("aiter", source, "amd-aiter")
    status, said, next_step = row_of(result_of("package/aiter", deadline_s=4.0))
    assert status == "fail"
    assert said.startswith(text)
    assert next_step == "aiter (MXFP4 MoE) cannot be measured; reinstall amd-aiter for this torch, or pip uninstall it"


def test_what_needs_a_gpu_says_so_and_starts_no_process():
    assert row_of(result_of("triton")) == ("not here", "no GPU", "")


@pytest.mark.parametrize(
    ("seen", "needs", "why"),
    [
        (Seen(lost="it hangs"), Needs.TORCH, "torch gives no answer (see torch)"),
        (Seen(environment={"torch": None}), Needs.RANKS, "torch cannot be imported (see torch)"),
        (Seen([{"pci": ""}], {"torch": "2.13"}), Needs.RANKS, "needs 2 GPUs, torch sees 1"),
        (Seen([{"pci": ""}] * 2, {"torch": "2.13"}), Needs.RANKS, ""),
        (Seen(lost="it hangs"), Needs.NOTHING, ""),
    ],
)
def test_what_is_not_tried_says_why(seen, needs, why):
    assert seen.lacks(needs) == why


@pytest.mark.slow
def test_two_ranks_have_a_heap_on_any_machine():
    result = result_of("heap")
    assert [(row["name"], row["status"]) for row in result["rows"]] == [("allocate", "pass"), ("write", "pass")]


@pytest.mark.slow
def test_one_rank_that_dies_does_not_leave_the_other_waiting(monkeypatch, tmp_path):
    """One is killed when it loads torch.distributed; the other would wait for it in the process group."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent / "dying"))
    monkeypatch.setenv("DYING_ONCE", str(tmp_path / "first"))
    monkeypatch.setenv("RIDGELINE_START", "spawn")  # a fork server would load it first
    begin = time.monotonic()
    status, text, next_step = row_of(result_of("rccl"))
    assert time.monotonic() - begin < 50
    assert status == "fail"
    assert re.fullmatch(r"crash: rank [01] of 2 was killed by SIGSEGV in step: rccl", text)
    assert next_step.endswith("`ridgeline bringup --only rccl`")


@pytest.mark.slow
def test_a_torch_that_takes_the_first_process_down_is_a_line_of_its_own(stand_in):
    stand_in("torch", "import os; os.abort()")
    with Bringup(Checkout("head", ROOT), lambda event: None) as bringup:
        seen = bringup.look()
        assert seen.lost.startswith("the process was killed by SIGABRT")
        found = []
        for step in choose(["torch", "machine", "rccl"], []):
            found += bringup.run(step, [])
    by_step = {result["step"]: row_of({"rows": result["rows"][:1]}) for result in found}
    assert by_step["torch"][1].startswith("torch cannot be imported: the process was killed by SIGABRT")
    assert by_step["machine"][0] == "pass"
    assert by_step["rccl"] == ("not here", "torch gives no answer (see torch)", "")


@pytest.mark.slow
def test_each_kernel_is_kept_as_soon_as_it_is_done_and_not_repeated(toy_tree, toy_log):
    found = []
    with Bringup(Checkout("head", toy_tree("tree")), lambda event: None) as bringup:
        bringup.seen = Seen(environment={"torch": "2.13.0"})
        found += bringup.run(BACKENDS, ["backend/pairs"])
    results = {result["step"]: result for result in found}
    assert list(results) == ["backend/faults", "backend/steady", "backend"]
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
def test_children_end_with_a_parent_that_is_killed(stand_in, tmp_path):
    marker = tmp_path / "pid"
    source = f"import os, time; open({str(marker)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    stand_in("aiter", source)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ["PYTHONPATH"]])}
    argv = [sys.executable, "-m", "benchmarks.bringup", "--only", "package/aiter"]
    files = ["--state", str(tmp_path / "s.jsonl"), "--out", str(tmp_path / "o.json")]
    parent = subprocess.Popen([*argv, *files], cwd=ROOT, env=environment, stderr=subprocess.DEVNULL)
    child = int(waited_for(lambda: marker.exists() and marker.read_text()))
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert waited_for(lambda: not alive(child))


def waited_for(condition, seconds: float = 60.0):
    """What the condition says once it is true."""
    until = time.monotonic() + seconds
    while not (said := condition()):
        assert time.monotonic() < until, "it does not come true"
        time.sleep(0.1)
    return said


def alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_fences_are_not_tried_in_a_heap_that_failed(monkeypatch):
    monkeypatch.setattr("benchmarks.bringup.run.started", lambda *_: pytest.fail("a process was started"))
    with Bringup(Checkout("head", ROOT), lambda event: None) as bringup:
        bringup.seen = Seen([{"pci": ""}] * 2, {"torch": "2.13.0"})
        bringup.results = {"heap/ipc": {"status": "fail"}, "heap/torch": {"status": "pass"}}
        found = []
        found += bringup.run(next(step for step in choose(["fences"], []) if step.name == "fences/ipc"), [])
    assert row_of(found[0]) == ("not here", "heap/ipc failed", "")


@pytest.mark.parametrize(
    ("statuses", "home"),
    [
        ({"heap": "pass", "heap/ipc": "pass"}, "auto"),
        ({"heap": "fail", "heap/torch": "fail", "heap/ipc": "pass"}, "ipc"),
        ({"heap": "fail", "heap/torch": "fail", "heap/ipc": "fail"}, "auto"),
    ],
)
def test_backends_take_the_home_that_works_where_the_usual_way_fails(statuses, home):
    with Bringup(Checkout("head", ROOT), lambda event: None) as bringup:
        bringup.results = {step: {"status": status} for step, status in statuses.items()}
        assert bringup.heap() == home


# The command: what it keeps, what it repeats, what it refuses, and what is in its report.


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


# Which cases the backends are tried in, and what is said of them.


def case(name: str, world: int = 1, arms: tuple[str, ...] = ("ours",), skip: str = "") -> PlannedCase:
    return PlannedCase(name, world, tuple(PlannedArm("head", arm) for arm in arms), "events", 1, 1, 0, skip)


def cost(flops: int, hbm_bytes: int) -> dict[str, int]:
    return {"flops": flops, "hbm_bytes": hbm_bytes, "link_bytes": 0, "payload_bytes": 0}


def test_the_smallest_case_of_the_most_ranks_is_tried():
    cases = [case("w2_small", 2), case("w4_large", 4), case("w4_small", 4), case("w8", 8, skip="needs 8 GPUs")]
    costs = {"w2_small": cost(0, 1), "w4_large": cost(0, 400), "w4_small": cost(0, 40), "w8": cost(0, 1)}
    assert [one.name for one in run.smallest_first(cases, costs)] == ["w4_small", "w4_large"]


def test_a_case_without_a_cost_is_not_tried():
    assert run.smallest_first([case("costless")], {}) == []


def arm(status: str, why: str = "", **more) -> dict:
    return {"status": status, "why": why, **more}


RIGHT = arm("ok", first_call_s=0.5, compile_s=1.5, error={"norm": 2e-4, "peak": 1e-2})


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
    row = run.row_of("gemm", "m16", "aiter", entry, ["aiter"])
    assert (row.name, row.status, row.text) == ("gemm/aiter", status, text)
    assert bool(row.next_step) == (status == RowStatus.FAIL)
    if status == RowStatus.PASS:
        assert row.numbers["first_call"] == (2.0, "s")


@pytest.mark.slow
def test_kernels_beyond_the_time_are_left_to_the_next_call(toy_tree, toy_log, monkeypatch):
    monkeypatch.setattr(run, "BUDGET_S", 0.0)
    checkout = Checkout("head", toy_tree("tree"))
    found = run.tried_backends(checkout, ["backend/pairs"], "auto", lambda event: None)
    by_part = {part: [row.text for row in rows] for part, _, rows in found}
    assert by_part["backend"] == ["3 kernels"]
    assert "backend/steady" in by_part
    assert "backend/pairs" not in by_part
    assert "not begun: the kernels before it took 0 s" in by_part["backend/steady"]
    assert toy_log.read_text() == "", "nothing was called"


def planned(*arms: PlannedArm) -> dict[str, list[PlannedCase]]:
    return {"moe": [PlannedCase("m16", 1, arms, "events", 1, 1, 0)]}


OURS = PlannedArm("head", "ours")
QUICK = PlannedArm("head", "gmm", libraries="grouped_gemm 1.1", first_call_s=0.0)
SLOW = PlannedArm("head", "aiter", libraries="amd-aiter 0.1.20", first_call_s=1800.0)


def test_what_compiles_itself_on_first_use_comes_last():
    found = [
        (part, [arm.backend for arm in cases[0].arms]) for part, _, cases in run.parts(planned(OURS, SLOW, QUICK), [])
    ]
    assert found == [("backend/moe", ["ours", "gmm"]), ("backend/moe/compiling", ["aiter"])]
    left = run.parts(planned(OURS, SLOW), ["backend/moe"])
    assert [part for part, _, _ in left] == ["backend/moe/compiling"]
    absent = PlannedArm("head", "aiter", first_call_s=1800.0)
    assert [part for part, _, _ in run.parts(planned(OURS, absent), [])] == ["backend/moe"]
