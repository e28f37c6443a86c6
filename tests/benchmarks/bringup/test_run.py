"""Whatever a step does to its process, it costs that step one clear line, and nothing of it stays."""

from __future__ import annotations

import dataclasses
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.bringup.run import Bringup, Seen
from benchmarks.bringup.steps import BACKENDS, Needs, choose
from benchmarks.coordinator.checkouts import Checkout

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
