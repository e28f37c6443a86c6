"""Compiling beside the trials: what is compiled, in which order, who waits for it, and what becomes of failures."""

from __future__ import annotations

import sys
import threading

import pytest

from benchmarks.coordinator.lanes import Quiet
from benchmarks.coordinator.ranks import VARIABLES, Failed, WorkerPool, make_directories, remove_directories
from benchmarks.coordinator.worker_pools import FILLER, CompiledAhead, homes, processes
from benchmarks.plan import PlannedArm, PlannedCase
from tests.kit import HANGS_S, ROOT

NO_DEVICE = {"base": {}, "head": {}}


def case(name, *arms, skip=""):
    planned = tuple(PlannedArm(*arm.split("/")) for arm in arms)
    return PlannedCase(name, 1, planned, "graph", skip=skip)


class Compilers:
    """Stand-ins for the processes: each launch of a backend needs as many compilations as its name says."""

    def __init__(self):
        self.told = []
        self.running = []
        self.go, self.fails = threading.Event(), ""
        self.go.set()

    def start(self, role, quiet):
        self.running.append(role)
        return self.Process(self, role, quiet)

    class Process:
        def __init__(self, compilers, role, quiet):
            self.compilers, self.role, self.quiet, self.alive, self.kernel = compilers, role, quiet, True, ""

        def ask(self, step, limit_s, op, by, what, asked):
            op, fields = what, asked
            self.kernel = self.kernel or fields["kernel"]
            assert fields["kernel"] == self.kernel, "a process compiles for one operator"
            while not self.compilers.go.wait(0.01):
                self.quiet.refuse()
            if op == "launches":
                self.compilers.told.append((self.role, fields["module"], fields["kernel"], "launches"))
                asked = [one for one in fields["asked"] if one["backend"].isdigit()]
                return [[{**one, "knobs": {"x": x}} for one in asked for x in range(int(one["backend"]))]]
            self.compilers.told.append((self.role, fields["module"], fields["case"], str(fields["knobs"]["x"])))
            if fields["case"] == self.compilers.fails:
                raise OSError("no process left")
            return [1]

        def kill(self):
            self.compilers.running.remove(self.role)


@pytest.fixture
def compilers():
    return Compilers()


@pytest.fixture
def one_process(compilers):
    ahead = CompiledAhead(compilers.start, NO_DEVICE, 1)
    yield ahead
    ahead.close()
    assert not compilers.running
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("compiles")]


def test_what_is_asked_for_first_is_compiled_first_and_once(compilers, one_process):
    compilers.go.clear()
    cases = [
        case("small", "head/2", "head/eager"),
        case("large", "head/1", "base/1"),
        case("huge", "head/1", skip="no"),
    ]
    one_process.add("gemm", {"head": "kernels.gemm"}, cases)
    one_process.add("moe", {"head": "kernels.moe"}, [case("only", "head/1")])
    one_process.add("gemm", {"head": "kernels.gemm"}, cases)
    compilers.go.set()
    for kernel, name in (("gemm", "small"), ("gemm", "large"), ("moe", "only"), ("gemm", "huge"), ("other", "none")):
        one_process.wait(kernel, name, Quiet())
    assert compilers.told == [
        ("head", "kernels.gemm", "gemm", "launches"),
        ("head", "kernels.moe", "moe", "launches"),
        ("head", "kernels.gemm", "small", "0"),
        ("head", "kernels.gemm", "small", "1"),
        ("head", "kernels.gemm", "large", "0"),
        ("head", "kernels.moe", "only", "0"),
    ]


def test_who_waits_for_a_compiler_lets_others_be_timed(compilers, one_process):
    quiet, timed = Quiet(), threading.Event()
    compilers.go.clear()
    one_process.add("gemm", {"head": "kernels.gemm"}, [case("small", "head/1")])

    def times():
        with quiet.lane(lambda: 0), quiet.alone():
            timed.set()

    with quiet.lane(lambda: 0):
        other = threading.Thread(target=times)
        other.start()
        threading.Timer(0.2, lambda: timed.wait(HANGS_S) and compilers.go.set()).start()
        one_process.wait("gemm", "small", quiet)
        assert quiet.in_lane()
        assert timed.is_set()
        other.join()


def test_a_compiler_that_fails_keeps_nobody_waiting(compilers, one_process, capfd):
    compilers.fails = "small"
    one_process.add("gemm", {"head": "kernels.gemm"}, [case("small", "head/2"), case("large", "head/1")])
    for name in ("small", "large"):
        one_process.wait("gemm", name, Quiet())
    assert "its launch compiles: OSError: no process left" in capfd.readouterr().err


def test_where_the_session_ends_nothing_is_compiled_to_its_end(compilers):
    compilers.go.clear()
    ahead = CompiledAhead(compilers.start, NO_DEVICE, 3)
    ahead.add("gemm", {"head": "kernels.gemm"}, [case("small", "head/1")])
    ahead.close()
    assert not compilers.running
    assert not [told for told in compilers.told if told[-1] != "launches"]


def test_the_same_files_are_compiled_once():
    modules = {"base": {"gemm": "kernels.gemm", "new": "kernels.x"}, "head": {"gemm": "kernels.gemm"}}
    same = {"base": {"gemm": "d", "new": "e"}, "head": {"gemm": "d"}}
    assert homes("gemm", modules, same) == {"head": "kernels.gemm"}
    assert homes("gemm", modules, {**same, "head": {"gemm": "f"}}) == dict.fromkeys(("base", "head"), "kernels.gemm")
    assert homes("gemm", modules, {}) == dict.fromkeys(("base", "head"), "kernels.gemm")
    assert homes("new", modules, same) == {"base": "kernels.x"}


def test_cores_that_measure_are_not_taken():
    assert processes("cpu", 64.0) == 0
    assert [processes("gpu", cores) for cores in (0.0, 2.0, 4.0, 16.0, 200.0)] == [-1, 0, 1, 7, 12]


@pytest.mark.slow
def test_the_process_fills_the_cache_of_launches(tmp_path, monkeypatch):
    """What the declaration of an arm and the candidates of an autotuner name, compiled by the real compiler."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    directory = make_directories()
    device = {"arch": "sm_90", "compute_units": 132, "folder": str(directory / "compiled"), "renamed": {}}
    pool = WorkerPool("compiling", sys.executable, ROOT, 1, directory, VARIABLES)

    def ask(op, **fields):
        return pool.ask(op, 180.0, "serve", by=FILLER, what=op, asked={**fields, **device})[0]

    try:
        name = "gptoss20b_gateup_b4_m2048_mild"
        asked = [{"case": name, "backend": backend, "knobs": {}} for backend in ("triton", "autotune", "loop")]
        of = {"module": "kernels.grouped_gemm", "kernel": "grouped_gemm_wgrad"}
        found = ask("launches", **of, asked=asked)
        assert found[0] == asked[0]
        assert len(found) == 6, "the default, and five points that the autotuner tries"
        assert {one["backend"] for one in found} == {"triton"}
        quick = {"module": "kernels.gemm", "kernel": "gemm", "case": "n4096_k4096_m1_fp16", "backend": "triton"}
        assert ask("fill", **quick, knobs={}) == 1
        assert len(list((tmp_path / "triton").rglob("*.cubin"))) == 1
        for wrong in ({**of, **found[0], "case": "nobody"}, {**quick, "module": "kernels.nowhere", "knobs": {}}):
            with pytest.raises(Failed):
                ask("fill", **wrong)
        assert ask("launches", **of, asked=asked), "a request that fails costs that request"
    finally:
        pool.kill()
        remove_directories(directory)
