"""Allocations agree on all ranks, what a rank writes is what its peer reads, and faults are said."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import time
from pathlib import Path

import pytest
import torch

from kernels.spec import Unsupported
from kernels.symmetric_heap import (
    VARIABLE,
    HeapError,
    SymmetricHeap,
    create,
    first_that_works,
    ipc_memory,
    probe,
    shared_files,
    torch_memory,
)
from kernels.symmetric_heap.ipc_memory import GpuRuntime, IpcMemory
from kernels.symmetric_heap.meeting import gathered
from tests.kernels.ranks import FakeRanks, run_ranks
from tests.kit import mostly_nightly

MODULE = "tests.kernels.test_symmetric_heap"


# ---- what a heap must do in every home -------------------------------------------------------------------------------


class FileRuntime(GpuRuntime):
    """Stands in for a GPU's runtime on a CPU: memory is a mapped file, whose path is the handle.

    faults: by call, why it fails.
    """

    def __init__(self, directory, faults=None):
        self._directory, self._faults = Path(directory), faults or {}
        self.maps = {}
        self.calls = []

    def allocate(self, size, kind):
        self._may_fail("allocate")
        path = self._directory / f"memory-{os.getpid()}-{len(self.maps)}"
        path.write_bytes(b"\xff" * size)  # fresh memory of a GPU is not zero
        self._path = path
        return self._map(path)

    def handle(self, address):
        self._may_fail("handle")
        return str(self._path).encode()

    def open(self, handle):
        self._may_fail("open")
        return self._map(Path(handle.decode()))

    def free(self, address):
        self.calls.append("free")
        self._unmap(address)

    def close(self, address):
        self.calls.append("close")
        self._unmap(address)

    def _may_fail(self, call):
        if call in self._faults:
            raise HeapError(self._faults[call])

    def _map(self, path):
        with path.open("r+b") as file:
            mapped = mmap.mmap(file.fileno(), 0)
        address = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
        self.maps[address] = mapped
        return address

    def _unmap(self, address):
        del self.maps[address]


def exchange(heap):
    """Every rank writes to all peers, many barriers apart; what it wrote is there after the barrier, and not before."""
    box = heap.alloc((heap.world, 5), torch.float32)
    for turn in range(5):
        for peer in range(heap.world):
            heap.peer(peer, box)[heap.rank] = 1000 * turn + heap.rank
        heap.barrier()
        assert box[:, 0].tolist() == [1000 * turn + r for r in range(heap.world)], (turn, box)
        heap.barrier()


def addresses(heap):
    """`bases` are the addresses of the heaps in this process, and an allocation has the same offset in all."""
    box = heap.alloc((16,), torch.int32)
    for peer in range(heap.world):
        assert heap.peer(peer, box).data_ptr() - int(heap.bases[peer]) == box.data_ptr() - int(heap.bases[heap.rank])
    assert len(set(heap.bases.tolist())) == heap.world


def barrier_waits(heap):
    """No rank leaves a barrier before the slowest has come: one is late by much work, another one in each turn."""
    box = heap.alloc((1 << 16,), torch.int32)
    for turn in range(2 * heap.world):
        if turn % heap.world == heap.rank:
            time.sleep(0.02)
        for peer in range(heap.world):
            heap.peer(peer, box)[heap.rank :: heap.world] = turn
        heap.barrier()
        assert (box == turn).all(), (turn, box.unique().tolist())
        heap.barrier()


def reset_and_signals(heap):
    """Flags are zero on memory that held something, and reset gives everything back."""
    heap.alloc((4096,), torch.uint8).fill_(255)
    heap.reset()
    assert int(heap.signals(heap.world, 8).count_nonzero()) == 0
    heap.reset()
    assert heap.left == heap.bytes


def rates(heap):
    """The probe gives one rate for each pair, the same table everywhere."""
    heap.reset()
    table = probe(heap, 1 << 16)
    assert [len(row) for row in table] == [heap.world] * heap.world
    assert all((rate > 0) == (i != j) for i, row in enumerate(table) for j, rate in enumerate(row))


CHECKS = (
    exchange, addresses, barrier_waits, rates, reset_and_signals,
)  # fmt: skip


# ---- functions of the ranks ------------------------------------------------------------------------------------------


def raw_address(rank, world, directory):
    """bases are addresses valid in this process: write to the peer through its address alone."""
    heap = create(rank, world, "cpu", 4096, directory)
    word = heap.alloc((1,), torch.int64)
    address = word.data_ptr() - int(heap.bases[rank]) + int(heap.bases[1 - rank])
    ctypes.c_int64.from_address(address).value = 77 + rank
    heap.barrier()
    assert int(word[0]) == 77 + (1 - rank)
    assert not os.path.exists(directory), "the files stay behind"


def one_is_missing(rank, world, directory):
    shared_files.BARRIER_TIMEOUT_S = 1.0
    heap = create(rank, world, "cpu", 4096, directory)
    if rank == 1:
        time.sleep(0.1)
        return
    with pytest.raises(HeapError, match=r"rank 0 waits at a barrier for rank\(s\) 1"):
        heap.barrier()


def sizes_differ(rank, world, directory):
    shared_files.BARRIER_TIMEOUT_S = 1.0
    with pytest.raises(HeapError, match=r"same size|did a rank fail"):
        create(rank, world, "cpu", 4096 * (1 + rank), directory)


def ipc_on_a_cpu(rank, world, directory):
    """The home `ipc` passes every check, over a runtime of files and with its barrier interpreted."""
    meet(rank, world, directory)
    heap = SymmetricHeap(rank, IpcMemory(rank, world, "cpu", 1 << 20, FileRuntime(directory)))
    for check in CHECKS:
        check(heap)
    runtime = heap._memory._runtime
    heap.close()
    assert runtime.calls == ["close"] * (world - 1) + ["free"], "a heap is freed after all have unmapped it"


def files_on_a_cpu(rank, world, directory):
    """The home of CPU ranks passes the same checks."""
    meet(rank, world, directory)
    with create(rank, world, "cpu", 1 << 20) as heap:
        for check in (*CHECKS, *[exchange] * 40):  # many barriers, which are quick here
            check(heap)
            heap.reset()


def a_call_fails_on_one_rank(rank, world, directory):
    """All ranks learn which call failed, and where; what was made is given back."""
    meet(rank, world, directory)
    for call in ("allocate", "handle", "open"):
        faults = {call: f"hip{call} failed: out of it (error 2)"} if rank == 1 else {}
        runtime = FileRuntime(directory, faults)
        with pytest.raises(HeapError, match=rf"^hip{call} failed: out of it \(error 2\)") as raised:
            IpcMemory(rank, world, "cpu", 4096, runtime)
        assert str(raised.value).endswith("(on rank 1 of 2)")
        assert runtime.maps == {}, f"after a failed {call} memory stays"


def the_first_home_that_works_is_taken(rank, world, directory):
    """One that cannot be made, and one whose stores do not arrive, are left with the reason; all ranks do the same."""
    meet(rank, world, directory)

    def files(rank, world, device, size):
        return IpcMemory(rank, world, device, size, FileRuntime(directory))

    def broken(rank, world, device, size):
        faults = {"open": "hipIpcOpenMemHandle failed: invalid argument (error 1)"} if rank == 0 else {}
        return IpcMemory(rank, world, device, size, FileRuntime(directory, faults))

    def losing(rank, world, device, size):
        memory = files(rank, world, device, size)
        view = memory.view
        memory.view = lambda of: view(of) if of == rank else torch.empty_like(view(of))  # its stores go nowhere
        return memory

    heap = first_that_works(rank, world, "cpu", 1 << 16, {"first": broken, "second": losing, "third": files})
    assert heap.left == 1 << 16
    whys = {name: found["why"] for name, found in heap.facts["homes"].items()}
    assert gathered(whys) == [whys] * world
    assert list(whys) == ["first", "second"]
    assert whys["first"].startswith("hipIpcOpenMemHandle failed")
    assert "did not arrive" in whys["second"]
    heap.close()
    with pytest.raises(HeapError, match=r"^one: hipIpcOpen.*; two: hipIpcOpen.*"):
        first_that_works(rank, world, "cpu", 1 << 16, {"one": broken, "two": broken})


def lost_stores_are_said(rank, world, directory):
    """A home whose barrier does not order is refused by the probe on every rank."""
    meet(rank, world, directory)
    heap = create(rank, world, "cpu", 1 << 16)
    heap._memory.barrier = lambda: None
    if rank == 1:
        heap.peer = lambda peer, box: torch.empty_like(box)  # its stores go nowhere
    with pytest.raises(HeapError, match="that rank 1 wrote to rank 0 did not arrive.*home files"):
        probe(heap, 1 << 12)


def the_ranks_must_agree(rank, world, directory):
    from kernels.symmetric_heap import agreed

    meet(rank, world, directory)
    assert [agreed(None), agreed("ipc")] == ["auto", "ipc"]
    os.environ[VARIABLE] = "torch"
    assert agreed(None) == "torch"
    with pytest.raises(HeapError, match=r"different homes \(torch, ipc\); set RIDGELINE_HEAP alike on all"):
        agreed(("torch", "ipc")[rank])
    with pytest.raises(HeapError, match=r"RIDGELINE_HEAP='ipx' is not one of auto, torch, ipc"):
        agreed("ipx" if rank else "auto")


def meet(rank, world, directory):
    import atexit

    import torch.distributed as dist

    atexit.register(dist.destroy_process_group)
    dist.init_process_group("gloo", init_method=f"file://{directory}/store", rank=rank, world_size=world)


# ---- tests -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def meeting(tmp_path):
    (tmp_path / "meet").mkdir()
    return tmp_path / "meet"


@pytest.mark.parametrize("function", ["raw_address", "one_is_missing", "sizes_differ"])
def test_two_real_ranks(function, meeting):
    run_ranks(MODULE, function, 2, meeting)


@pytest.mark.slow
@pytest.mark.parametrize("world", mostly_nightly([2, 4], 2))
@pytest.mark.parametrize("home", ["ipc_on_a_cpu", "files_on_a_cpu"])
def test_every_home_passes_the_same_checks(home, world, meeting):
    run_ranks(MODULE, home, world, meeting, TRITON_INTERPRET="1", GLOO_SOCKET_IFNAME="lo")


@pytest.mark.slow
@pytest.mark.parametrize(
    "function",
    ["a_call_fails_on_one_rank", "the_first_home_that_works_is_taken", "lost_stores_are_said", "the_ranks_must_agree"],
)
def test_two_ranks_of_a_process_group(function, meeting):
    run_ranks(MODULE, function, 2, meeting, TRITON_INTERPRET="1", GLOO_SOCKET_IFNAME="lo")


class Library:
    """A runtime library whose calls return a code; it remembers what was called."""

    def __init__(self, prefix, **codes):
        self.called = []
        names = ("Malloc", "ExtMallocWithFlags", "Free", "IpcGetMemHandle", "IpcOpenMemHandle", "GetLastError")
        for name in names:
            setattr(self, prefix + name, self.function(prefix + name, codes.get(name, 0)))

        def text(code):
            return f"text of {code}".encode()

        setattr(self, prefix + "GetErrorString", text)

    def function(self, name, code):
        def call(*arguments):
            self.called.append((name, [getattr(argument, "value", None) for argument in arguments]))
            return code

        return call


def test_hip_gets_fine_grained_memory_and_cuda_its_only_kind():
    hip, cuda = Library("hip"), Library("cuda")
    ipc_memory.GpuRuntime(hip, "hip").allocate(4096, "fine")
    ipc_memory.GpuRuntime(hip, "hip").allocate(4096, "uncached")
    ipc_memory.GpuRuntime(cuda, "cuda").allocate(4096, "fine")
    assert hip.called == [("hipExtMallocWithFlags", [None, 4096, 1]), ("hipExtMallocWithFlags", [None, 4096, 3])]
    assert cuda.called == [("cudaMalloc", [None, 4096])]


@pytest.mark.parametrize(
    ("call", "name", "step"),
    [
        (lambda r: r.allocate(8, "fine"), "ExtMallocWithFlags", "RIDGELINE_IPC_MEMORY=coarse"),
        (lambda r: r.handle(8), "IpcGetMemHandle", "RIDGELINE_HEAP=torch"),
        (lambda r: r.open(b"x" * 64), "IpcOpenMemHandle", "rocm-smi --showtopoaccess"),
    ],
)
def test_a_failed_call_is_named_with_its_error_and_what_to_do(call, name, step):
    library = Library("hip", **{name: 17})
    with pytest.raises(HeapError, match=rf"^hip{name} failed: text of 17 \(error 17\); .*{step}"):
        call(ipc_memory.GpuRuntime(library, "hip"))
    assert library.called[-1][0] == "hipGetLastError", "torch would report it at its next launch"


def test_a_runtime_without_the_function_is_said():
    with pytest.raises(HeapError, match="no function hipIpcCloseMemHandle.*RIDGELINE_HEAP=torch"):
        ipc_memory.GpuRuntime(Library("hip"), "hip").close(8)


def test_the_runtime_is_the_one_that_torch_has_loaded():
    cuda = "7f r-xp 0 08:01 5  /usr/lib/python3/nvidia/cuda_runtime/lib/libcudart.so.12"
    hip = "7f r-xp 0 08:01 5  /opt/venv/lib/torch/lib/libamdhip64.so.7.2.70200"
    assert ipc_memory.library_in(["7f r 0 0 0 /usr/lib/libc.so.6", cuda]).endswith("libcudart.so.12")
    assert ipc_memory.library_in([cuda, hip]).endswith("libamdhip64.so.7.2.70200")
    other = "7f r-xp 0 08:01 5  /opt/rocm-7.1/lib/libamdhip64.so.7"
    for order in ([hip, other], [other, hip]):
        assert ipc_memory.library_in(order).endswith("libamdhip64.so.7.2.70200")
    with pytest.raises(HeapError, match="no libamdhip64 or libcudart is loaded"):
        ipc_memory.library_in(["7f r 0 0 0 /usr/lib/libc.so.6", "7f r 0 0 0"])


def test_the_kind_of_memory_is_checked(monkeypatch):
    assert ipc_memory.kind() == "fine"
    monkeypatch.setenv("RIDGELINE_IPC_MEMORY", "grainy")
    with pytest.raises(HeapError, match="RIDGELINE_IPC_MEMORY='grainy' is not one of fine, coarse, uncached"):
        ipc_memory.kind()


def test_torch_without_symmetric_memory_names_the_call():
    with pytest.raises(HeapError, match=r"^torch.distributed._symmetric_memory.empty\(4096\) failed: .*=ipc$"):
        torch_memory._empty(4096, "cuda:0")


def test_peer_is_the_same_place():
    world = FakeRanks(3, 1 << 14)
    boxes = [heap.alloc((4, 4), torch.float32).fill_(heap.rank) for heap in world.heaps]
    assert torch.equal(world.heaps[0].peer(2, boxes[0]), boxes[2])
    assert torch.equal(world.heaps[1].peer(0, boxes[1][2:]), boxes[0][2:])
    assert world.heaps[0].peer(2, boxes[0][2:]).data_ptr() == boxes[2][2:].data_ptr()


def test_peer_refuses_what_is_not_on_the_heap():
    heap = FakeRanks(2, 1 << 14).heaps[0]
    box = heap.alloc((4, 4), torch.float32)
    for wrong in (torch.zeros(4), box.T[1:]):
        with pytest.raises(HeapError, match=r"heap\.alloc"):
            heap.peer(1, wrong)


def test_a_heap_that_is_too_small_says_all_numbers():
    heap = FakeRanks(1, 4096).heaps[0]
    heap.alloc((1,), torch.int8)
    says = r"4096 bytes asked for \(1000,\) torch.float32, 3072 of 4096 left.*at least 5120"
    with pytest.raises(HeapError, match=says) as raised:
        heap.alloc((1000,), torch.float32)
    assert isinstance(raised.value, Unsupported), "the arm is unsupported here, not wrong"
    heap.reset()
    assert heap.alloc((1000,), torch.float32).numel() == 1000


def test_memory_is_taken_as_it_is_allocated(meeting):
    """A heap larger than the file system can be made; what does not fit is said at alloc, not at a store (SIGBUS)."""
    free = os.statvfs(meeting).f_bavail * os.statvfs(meeting).f_frsize
    heap = create(0, 1, "cpu", free + (1 << 36), meeting)
    heap.alloc((1 << 20,), torch.uint8).fill_(1)
    assert os.fstat(heap._memory._file).st_blocks * 512 < 2 << 20
    left = heap.left
    with pytest.raises(HeapError, match=r"free: No space left on device.*--shm-size"):
        heap.alloc((free + (1 << 30),), torch.uint8)
    assert heap.left == left, "a failed allocation keeps its bytes"


def test_a_file_system_that_refuses_blocks_is_said(meeting, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(HeapError, match="--shm-size"):
        create(0, 1, "cpu", 4096, meeting)
    assert list(Path(meeting).iterdir()) == [], "the file stays behind"


def test_ranks_without_a_meeting_place_and_gpus_without_a_process_group():
    with pytest.raises(HeapError, match="directory"):
        create(0, 2, "cpu", 4096)
    with pytest.raises(HeapError, match="init_process_group"):
        create(0, 2, "cuda:0", 4096)
