"""Allocations agree on all ranks, what a rank writes is what its peer reads, and faults are said."""

import errno
import os
import time
from pathlib import Path

import pytest
import torch

from kernels import symmetric_heap
from kernels.symmetric_heap import ALIGNMENT, HeapError, create
from tests.kernels.fake_ranks import FakeRanks
from tests.kernels.ranks import run_ranks

MODULE = "tests.kernels.test_symmetric_heap"


# ---- functions of the ranks ------------------------------------------------------------------------------------------


def exchange(rank, world, directory):
    """Every rank pushes into all peers through bases and through peer(), many barriers apart."""
    with create(rank, world, "cpu", 1 << 16, directory) as heap:
        box = heap.alloc((world, 5), torch.float32)
        for turn in range(200):
            for peer in range(world):
                heap.peer(peer, box)[rank] = 1000 * turn + rank
            heap.barrier()
            assert box[:, 0].tolist() == [1000 * turn + r for r in range(world)], (turn, box)
            heap.barrier()
        assert not os.path.exists(directory), "the files stay behind"
        heap.reset()
        assert heap.left == heap.bytes
    print("done")


def raw_address(rank, world, directory):
    """bases are addresses valid in this process: write to the peer through its address alone."""
    import ctypes

    heap = create(rank, world, "cpu", 4096, directory)
    word = heap.alloc((1,), torch.int64)
    address = word.data_ptr() - int(heap.bases[rank]) + int(heap.bases[1 - rank])
    ctypes.c_int64.from_address(address).value = 77 + rank
    heap.barrier()
    assert int(word[0]) == 77 + (1 - rank)


def with_process_group(rank, world, directory):
    """Without a directory the ranks meet through the default process group."""
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{directory}/store", rank=rank, world_size=world)
    heap = create(rank, world, "cpu", 4096)
    flags = heap.signals(world)
    heap.peer((rank + 1) % world, flags)[rank] = rank + 1
    heap.barrier()
    assert int(flags[(rank - 1) % world]) == (rank - 1) % world + 1
    heap.close()
    dist.destroy_process_group()


def one_is_missing(rank, world, directory):
    symmetric_heap.BARRIER_TIMEOUT_S = 1.0
    heap = create(rank, world, "cpu", 4096, directory)
    if rank == 1:
        time.sleep(0.1)
        return
    with pytest.raises(HeapError, match=r"rank 0 waits at a barrier for rank\(s\) 1"):
        heap.barrier()


def sizes_differ(rank, world, directory):
    symmetric_heap.BARRIER_TIMEOUT_S = 1.0
    with pytest.raises(HeapError, match=r"same size|did a rank fail"):
        create(rank, world, "cpu", 4096 * (1 + rank), directory)


# ---- tests -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def meeting(tmp_path):
    (tmp_path / "meet").mkdir()
    return tmp_path / "meet"


@pytest.mark.parametrize("world", [2, 4])
def test_real_ranks_exchange(world, meeting):
    assert run_ranks(MODULE, "exchange", world, meeting) == ["done\n"] * world


@pytest.mark.parametrize("function", ["raw_address", "with_process_group", "one_is_missing", "sizes_differ"])
def test_two_real_ranks(function, meeting):
    run_ranks(MODULE, function, 2, meeting)


def test_one_rank_needs_nobody():
    heap = create(0, 1, "cpu", 4096)
    heap.barrier()
    assert heap.bases.tolist() == [heap.alloc((4,), torch.int32).data_ptr()]


def test_allocations_have_the_same_offset_everywhere():
    world = FakeRanks(4, 1 << 16)
    for heap in world.heaps:
        heap.alloc((3, 7), torch.float16)
        second = heap.alloc((5,), torch.float64)
        assert second.data_ptr() - int(heap.bases[heap.rank]) == ALIGNMENT
    assert heap.left == (1 << 16) - 2 * ALIGNMENT


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
    with pytest.raises(HeapError, match=says):
        heap.alloc((1000,), torch.float32)
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


def test_signals_are_zero():
    heap = FakeRanks(2, 1 << 14).heaps[0]
    heap.alloc((4096,), torch.uint8).fill_(255)
    heap.reset()
    assert heap.signals(2, 8).count_nonzero() == 0
