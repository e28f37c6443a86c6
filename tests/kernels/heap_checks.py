"""What a heap must do in every home: the same checks on GPUs and, with the stand-in below, on a CPU.

On a machine with GPUs:  python -m tests.kernels.heap_checks     (every visible GPU is a rank; both homes)
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

from kernels import symmetric_heap
from kernels.symmetric_heap import HeapError, SymmetricHeap
from kernels.symmetric_heap.choice import GPU_HOMES
from kernels.symmetric_heap.gpu_runtime import GpuRuntime

HEAP = 96 << 20


class FileRuntime(GpuRuntime):
    """Stands in for a GPU's runtime on a CPU: memory is a mapped file, whose path is the handle.

    faults: by call, why it fails.
    """

    def __init__(self, directory: str, faults: dict[str, str] | None = None) -> None:
        self._directory, self._faults = Path(directory), faults or {}
        self.maps: dict[int, mmap.mmap] = {}
        self.calls: list[str] = []

    def allocate(self, size: int, kind: str) -> int:
        self._may_fail("allocate")
        path = self._directory / f"memory-{os.getpid()}-{len(self.maps)}"
        path.write_bytes(b"\xff" * size)  # fresh memory of a GPU is not zero
        self._path = path
        return self._map(path)

    def handle(self, address: int) -> bytes:
        self._may_fail("handle")
        return str(self._path).encode()

    def open(self, handle: bytes) -> int:
        self._may_fail("open")
        return self._map(Path(handle.decode()))

    def free(self, address: int) -> None:
        self.calls.append("free")
        self._unmap(address)

    def close(self, address: int) -> None:
        self.calls.append("close")
        self._unmap(address)

    def _may_fail(self, call: str) -> None:
        if call in self._faults:
            raise HeapError(self._faults[call])

    def _map(self, path: Path) -> int:
        with path.open("r+b") as file:
            mapped = mmap.mmap(file.fileno(), 0)
        address = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
        self.maps[address] = mapped
        return address

    def _unmap(self, address: int) -> None:
        del self.maps[address]


# ---- checks ----------------------------------------------------------------------------------------------------------


def exchange(heap: SymmetricHeap) -> None:
    """Every rank writes to all peers, many barriers apart; what it wrote is there after the barrier, and not before."""
    box = heap.alloc((heap.world, 5), torch.float32)
    for turn in range(100 if heap.device != "cpu" else 5):
        for peer in range(heap.world):
            heap.peer(peer, box)[heap.rank] = 1000 * turn + heap.rank
        heap.barrier()
        assert box[:, 0].tolist() == [1000 * turn + r for r in range(heap.world)], (turn, box)
        heap.barrier()


def addresses(heap: SymmetricHeap) -> None:
    """`bases` are the addresses of the heaps in this process, and an allocation has the same offset in all."""
    box = heap.alloc((16,), torch.int32)
    for peer in range(heap.world):
        assert heap.peer(peer, box).data_ptr() - int(heap.bases[peer]) == box.data_ptr() - int(heap.bases[heap.rank])
    assert len(set(heap.bases.tolist())) == heap.world


def barrier_waits(heap: SymmetricHeap) -> None:
    """No rank leaves a barrier before the slowest has come: one is late by much work, another one in each turn."""
    box = heap.alloc((1 << 16,), torch.int32)
    for turn in range(2 * heap.world):
        if turn % heap.world == heap.rank:
            _work(heap)
        for peer in range(heap.world):
            heap.peer(peer, box)[heap.rank :: heap.world] = turn
        heap.barrier()
        assert (box == turn).all(), (turn, box.unique().tolist())
        heap.barrier()


def _work(heap: SymmetricHeap) -> None:
    """Milliseconds of work on this rank alone."""
    if heap.device == "cpu":
        time.sleep(0.02)
    else:
        torch.cuda._sleep(20_000_000)


def reset_and_signals(heap: SymmetricHeap) -> None:
    """Flags are zero on memory that held something, and reset gives everything back."""
    heap.alloc((4096,), torch.uint8).fill_(255)
    heap.reset()
    assert int(heap.signals(heap.world, 8).count_nonzero()) == 0
    heap.reset()
    assert heap.left == heap.bytes


def graph(heap: SymmetricHeap) -> None:
    """A captured barrier is a barrier at every replay: the graph sends a counter on, which grows by one each time."""
    if heap.device == "cpu":
        return
    box, seen = heap.alloc((heap.world,), torch.int64).zero_(), torch.zeros(heap.world, dtype=torch.int64).cuda()
    counter = torch.zeros(1, dtype=torch.int64, device=heap.device)
    peers = [heap.peer(peer, box)[heap.rank : heap.rank + 1] for peer in range(heap.world)]
    heap.barrier()

    def body() -> None:
        counter.add_(1)
        for peer in peers:
            peer.copy_(counter)
        heap.barrier()
        seen.copy_(box)
        heap.barrier()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())  # two barriers of one rank must not be in flight at once
    with torch.cuda.stream(side):
        body()
    side.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured, capture_error_mode="thread_local"):
        body()
    for turn in range(50):
        captured.replay()
        torch.cuda.synchronize()
        assert seen.tolist() == [turn + 2] * heap.world, (turn, seen)


def rates(heap: SymmetricHeap) -> None:
    """The probe gives one rate for each pair, the same table everywhere."""
    heap.reset()
    table = symmetric_heap.probe(heap, 64 << 20 if heap.device != "cpu" else 1 << 16)
    assert [len(row) for row in table] == [heap.world] * heap.world
    assert all((rate > 0) == (i != j) for i, row in enumerate(table) for j, rate in enumerate(row))
    if heap.rank == 0:
        print(f"    {heap.facts['home']}: {[[round(rate) for rate in row] for row in table]} GB/s")


CHECKS: tuple[Callable[[SymmetricHeap], None], ...] = (
    exchange, addresses, barrier_waits, graph, rates, reset_and_signals,
)  # fmt: skip


# ---- the same on GPUs, as a program ----------------------------------------------------------------------------------


def on_gpu(rank: int, world: int, store: str) -> None:
    """All that one rank does."""
    device = f"cuda:{rank}"
    torch.cuda.set_device(rank)
    dist.init_process_group(
        "nccl", store=dist.FileStore(store, world), rank=rank, world_size=world, device_id=torch.device(device)
    )
    failed = []
    for home in GPU_HOMES:
        begin = time.perf_counter()
        with symmetric_heap.create(rank, world, device, HEAP, home=home) as heap:
            _say(rank, f"{home}: made in {time.perf_counter() - begin:.2f} s")
            for check in CHECKS:
                failed += _tried(rank, home, check, heap)
    begin = time.perf_counter()
    with symmetric_heap.create(rank, world, device, HEAP, home="auto") as heap:
        _say(rank, f"auto: {heap.facts} in {time.perf_counter() - begin:.2f} s")
    dist.barrier()
    os._exit(1 if failed else 0)


def _tried(rank: int, home: str, check: Callable[[SymmetricHeap], None], heap: SymmetricHeap) -> list[str]:
    begin = time.perf_counter()
    try:
        check(heap)
        torch.cuda.synchronize()
    except Exception:
        print(f"FAILED {home}/{check.__name__} on rank {rank}\n{traceback.format_exc()}", flush=True)
        return [check.__name__]
    _say(rank, f"ok {home}/{check.__name__} {time.perf_counter() - begin:.2f} s")
    return []


def _say(rank: int, text: str) -> None:
    if rank == 0:
        print(text, flush=True)


def main() -> int:
    """A process for each visible GPU; exit code 0 if all checks passed on all."""
    world = torch.cuda.device_count()
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(on_gpu, args=(world, f"{folder}/store"), nprocs=world)
    print(f"all checks passed on {world} GPUs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
