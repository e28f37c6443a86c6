"""What a declaration becomes, by the contract of any commit."""

from __future__ import annotations

import sys
import types

import pytest
import torch.distributed as dist

from benchmarks.channel import error_answer
from benchmarks.worker import declare
from benchmarks.worker.declare import under_current_names
from benchmarks.worker.requests import Joining, MissingHeap, Service
from kernels import spec
from kernels._shared.collectives.cases import heap_of
from kernels.spec import Case, Cost, Kernel, Place, Tolerance
from kernels.symmetric_heap import HeapError, first_that_works


def test_the_definition_digest_has_two_names():
    def kernel(**digest):
        return types.SimpleNamespace(name="toy", doc="", backends={}, baselines=(), cases=(), protocol=None, **digest)

    for name in ("yardstick", "definition_digest"):
        found = declare._declaration(
            kernel(**{name: lambda terms, case=None: "abc"}), {}, types.ModuleType("spec"), {}, {}
        )
        assert found["yardstick"] == "abc"


# Where no home of the heap works, every arm that needs it says which call failed in each, and what to do.


REASONS = {
    "torch": "torch.distributed._symmetric_memory.rendezvous failed: RuntimeError: out of memory; update",
    "ipc": "hipIpcOpenMemHandle failed: invalid device context (error 201); a container needs --ipc=host",
}


def refusing(why):
    """A home that cannot be made."""

    def make(*_):
        raise HeapError(why)

    return make


@pytest.fixture
def alone(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def joining():
    given = {"rank": 0, "world": 1, "device": "cpu", "arch": "cpu", "compute_units": None, "threads": 1}
    return Joining(**given, flush_bytes=0, heap_bytes=4096, store="", heap_directory="")


def test_the_reason_reaches_the_arm(alone, monkeypatch):
    module = types.ModuleType("kernels.symmetric_heap")
    homes = {name: refusing(why) for name, why in REASONS.items()}
    module.create = lambda rank, world, device, size, **_: first_that_works(rank, world, device, size, homes)
    monkeypatch.setitem(sys.modules, "kernels.symmetric_heap", module)
    why = Service(".", None)._make_heap(joining())
    assert why.startswith("HeapError: torch: torch.distributed._symmetric_memory.rendezvous failed: RuntimeError: out")

    case = Case("c", world=2, dtype="fp16", MB=1).at(Place(world=2, heap=MissingHeap(why)))
    with pytest.raises(RuntimeError) as raised:
        heap_of(case)
    said = error_answer(raised.value)
    assert said["status"] == "error"
    for part in ("no symmetric heap here", "out of memory; update", "ipc: hipIpcOpenMemHandle failed", "--ipc=host"):
        assert part in said["why"]


def test_a_heap_that_was_made_says_where(alone, tmp_path):
    service = Service(".", None)
    given = joining()
    (tmp_path / "heap").mkdir()
    assert service._make_heap(Joining(**{**vars(given), "heap_directory": str(tmp_path / "heap")})) == ""
    assert service._heap.facts == {"home": "files"}
    service._heap.close()


# A declaration goes by the names that head gives it; the project's functions see those that it was written with.


RENAMED = {"old": "new", "new/m8": "new/decode_m8", "new/hip": "new/rocm", "new/gone": "", "new/away": "other/away"}


def declared(kernel="old", case="m8", backend="hip"):
    made = Kernel(kernel, cases=[Case(case, M=8), Case("gone", M=1), Case("away", M=2)], tolerance=Tolerance())
    made.inputs(_inputs), made.cost(lambda case: Cost(flops=len(case.name))), made.reference(_inputs)
    made.backend(backend)(lambda case, inputs: lambda: None)
    made.isa(backend)(lambda case, arch: [])
    return made


def _inputs(case, seed):
    return {}


def test_the_harness_has_the_new_names_and_the_project_its_own():
    kernel = declared()
    assert under_current_names(kernel, RENAMED) == {"m8": "decode_m8", "gone": "gone", "away": "away"}
    assert (kernel.name, list(kernel.backends), list(kernel.compilations)) == ("new", ["rocm"], ["rocm"])
    assert kernel.backends["rocm"].name == "rocm"
    assert kernel.case("decode_m8").name == "m8", "a table of tuned knobs may be looked up by it"
    assert under_current_names(kernel, RENAMED)["m8"] == "decode_m8", "twice is once"
    with pytest.raises(KeyError):
        kernel.case("m9")


def test_its_declaration_is_that_of_head_to_the_digest():
    old, new = declared(), declared("new", "decode_m8", "rocm")
    found = [
        declare._declaration(kernel, under_current_names(kernel, renamed), spec, {}, {})
        for kernel, renamed in ((old, RENAMED), (new, {}))
    ]
    assert found[0]["case_yardsticks"] == found[1]["case_yardsticks"]
    assert [one["cases"] for one in found[:1]] == [one["cases"] for one in found[1:]]
    assert found[0]["costs"]["decode_m8"]["flops"] == 2, "by the name that base declares"


def test_it_is_found_by_its_new_name(monkeypatch):
    module = types.SimpleNamespace(one=declared())
    monkeypatch.setitem(sys.modules, "perf_old", module)
    assert declare.import_kernel("perf_old", "new", RENAMED) is module.one
    with pytest.raises(RuntimeError, match="declares no kernel 'old'"):
        declare.import_kernel("perf_old", "old", RENAMED)
