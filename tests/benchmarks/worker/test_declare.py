"""What a declaration becomes, by the contract of any commit."""

from __future__ import annotations

import sys
import types

import pytest
import torch.distributed as dist

from benchmarks.worker import declare, failures
from benchmarks.worker.requests import Joining, MissingHeap, Service
from kernels._shared.collectives.placing import heap_of
from kernels.spec import Case, Place
from kernels.symmetric_heap import HomeReport, chosen


def test_the_definition_digest_has_two_names():
    def kernel(**digest):
        return types.SimpleNamespace(name="toy", doc="", backends={}, baselines=(), cases=(), protocol=None, **digest)

    for name in ("yardstick", "definition_digest"):
        found = declare._declaration(
            kernel(**{name: lambda terms, case=None: "abc"}), {}, types.ModuleType("spec"), {}, {}
        )
        assert found["yardstick"] == "abc"


# Where no home of the heap works, every arm that needs it says which call failed in each, and what to do.


REPORTS = [
    HomeReport("torch", "torch.distributed._symmetric_memory.rendezvous failed: RuntimeError: out of memory; update"),
    HomeReport("ipc", "hipIpcOpenMemHandle failed: invalid device context (error 201); a container needs --ipc=host"),
]


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
    module.create = lambda *_, **__: chosen(REPORTS)
    monkeypatch.setitem(sys.modules, "kernels.symmetric_heap", module)
    why = Service(".", None)._make_heap(joining())
    assert why.startswith("HeapError: torch: torch.distributed._symmetric_memory.rendezvous failed: RuntimeError: out")

    case = Case("c", world=2, dtype="fp16", MB=1).at(Place(world=2, heap=MissingHeap(why)))
    with pytest.raises(RuntimeError) as raised:
        heap_of(case)
    said = failures.answer(raised.value)
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
