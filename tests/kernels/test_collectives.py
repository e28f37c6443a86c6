"""Collectives on a CPU: with real ranks, through the library's registered buffers and channels, and Gluon's tiles."""

from __future__ import annotations

import contextlib
import gc
import importlib
import sys
import types
import weakref

import pytest
import torch

from kernels import spec
from kernels._shared.collectives import registered, vendor
from kernels.all_gather import all_gather
from kernels.numerics import compare, poison
from kernels.spec import Case, Place
from kernels.symmetric_heap import create
from tests.kernels.ranks import run_ranks

MODULE = "tests.kernels.test_collectives"
OPERATORS = ("all_reduce", "reduce_scatter", "all_to_all")


def operator(name):
    return getattr(importlib.import_module(f"kernels.{name}"), name)


FOR_REAL = (
    *(("all_gather", "rccl", dtype, {"MB": 1 / 64}) for dtype in ("fp16", "bf16", "fp32")),
    *((name, "rccl", dtype, {"KB": 2}) for name in OPERATORS for dtype in ("fp16", "bf16", "fp32")),
    ("gemm_all_scatter", "blas+rccl", "fp16", {"M": 1, "N": 48, "K": 40}),
    ("gemm_all_scatter", "blas+rccl", "bf16", {"M": 5, "N": 48, "K": 40}),
    ("gemm_all_scatter", "blas+rccl", "fp16", {"M": 33, "N": 48, "K": 40}),
)
"""Operator, gloo baseline, dtype, dimensions."""


def calls_for_real(rank, world, directory):
    """Backend torch and the gloo baseline of each operator against the reference; poisoned between calls."""
    import torch.distributed as dist

    from kernels.all_gather import vendors

    dist.init_process_group("gloo", init_method=f"file://{directory}/store", rank=rank, world_size=world)
    heap = create(rank, world, "cpu", 1 << 17)
    for name, baseline, dtype, dims in FOR_REAL:
        kernel = operator(name)
        case = Case("t", world=world, dtype=dtype, **dims).at(Place(rank=rank, world=world, heap=heap))
        inputs = kernel.function("inputs")(case, 11)
        before = {key: value.clone() for key, value in inputs.items()}
        expected = kernel.function("reference")(case, inputs)
        for backend in ("torch", baseline):
            call = kernel.backends[backend].build(case, inputs)
            for turn in range(3):
                out = call()
                found = compare(out, expected, kernel.tolerance_for(case))
                assert found.ok, (name, backend, dtype, turn, found.why)
                if name == "gemm_all_scatter":  # peers write into the output
                    heap.barrier()
                poison(out)
                if name == "gemm_all_scatter":
                    heap.barrier()
        assert all(torch.equal(inputs[key], value) for key, value in before.items()), name
        if name == "all_gather":
            assert torch.equal(expected.view(world, -1)[rank], inputs["shard"])
            assert torch.equal(vendors.over(case, inputs, dist.group.WORLD)(), expected)
        heap.reset()
    heap.close()
    dist.destroy_process_group()


@pytest.mark.nightly
def test_cpu_backends_with_real_ranks(tmp_path):
    run_ranks(MODULE, "calls_for_real", 2, tmp_path)


# ---- Gluon -----------------------------------------------------------------------------------------------------------


def test_without_gluon_there_is_a_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton.experimental.gluon", None)
    monkeypatch.delitem(sys.modules, "kernels.all_gather.gluon_device", raising=False)
    monkeypatch.delattr("kernels.all_gather.gluon_device", raising=False)
    with pytest.raises(spec.Unsupported, match=r"Gluon \(triton.experimental.gluon\) cannot be imported here"):
        all_gather.backends["gluon"].build(all_gather.cases[0].at(Place()), {"shard": None})


# ---- the library -----------------------------------------------------------------------------------------------------


def test_the_library_is_called_directly_on_gpus_only():
    with pytest.raises(spec.Unsupported, match="on GPUs only"):
        vendor.all_reduce(torch.zeros(1), torch.zeros(1))


def test_the_library_is_the_file_that_torch_has_loaded(monkeypatch):
    lines = ["7f00-7f01 r-xp 0 0 1 /lib/libc.so.6", "7f02-7f03 r-xp 0 0 2 /opt/nccl/libnccl.so.2"]
    monkeypatch.setattr(vendor.Path, "read_text", lambda path: "\n".join(lines))
    assert vendor._library() == "/opt/nccl/libnccl.so.2"
    lines.pop()
    with pytest.raises(spec.Unsupported, match="libnccl"):
        vendor._library()


class Library:
    """Stands for ProcessGroupNCCL: a memory pool is registered, or refused."""

    mem_allocator = "allocator"

    def __init__(self, error=None):
        self.registered, self.error = [], error

    def register_mem_pool(self, pool, symm=False):
        if self.error:
            raise self.error
        self.registered.append((pool, symm))


class Pool:
    def __init__(self, allocator):
        self.allocator = allocator


@pytest.fixture
def nccl(monkeypatch):
    """A place where NCCL could register: its version, the environment; a group with a part for the GPU."""

    def place(library, version=(2, 28, 9), nvls="0"):
        monkeypatch.setattr(torch.cuda.nccl, "version", lambda: version)
        monkeypatch.setenv("NCCL_NVLS_ENABLE", nvls)
        return types.SimpleNamespace(_get_backend=lambda device: library)

    return place


def test_registered_buffers_say_what_they_need(nccl):
    gpu = torch.device("cuda")
    with pytest.raises(spec.Unsupported, match="GPUs only"):
        registered._library(torch.device("cpu"), None)
    for library, version, nvls, said in (
        (Library(), (2, 28, 9), "1", "NCCL_NVLS_ENABLE=0"),
        (Library(), (2, 26, 5), "0", r"version 2\.26\.5.*need 2\.27"),
        (object(), (2, 28, 9), "0", "object has no mem_allocator"),
    ):
        with pytest.raises(spec.Unsupported, match=said):
            registered._library(gpu, nccl(library, version, nvls))
    for error, said in ((TypeError("symm"), "no parameter symm"), (RuntimeError("no window\nmore"), "no window$")):
        with pytest.raises(spec.Unsupported, match=said):
            registered._register(Library(error), "pool")


def test_registered_buffers_gather_and_stay(monkeypatch, nccl):
    """The whole build with the library's part replaced: registered before the first call, until the process ends."""
    library, ended = Library(), []
    monkeypatch.setattr(registered, "_library", lambda device, given: given._get_backend(device))
    monkeypatch.setattr(torch.cuda, "MemPool", Pool)
    monkeypatch.setattr(torch.cuda, "use_mem_pool", lambda pool, device: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: None)
    shard = torch.arange(64.0)
    call = registered.build(shard, 128, nccl(library), lambda x, out: lambda: out.copy_(x.repeat(2)))
    [(pool, symm)] = library.registered
    weakref.finalize(pool, ended.append, pool.allocator)
    assert (pool.allocator, symm) == ("allocator", True)
    assert torch.equal(call(), shard.repeat(2))
    assert call().data_ptr() == call().data_ptr() != shard.data_ptr()
    library.registered.clear()
    del call, pool
    gc.collect()
    assert not ended


@pytest.fixture
def groups(monkeypatch):
    """A torch with GPUs and ranks that makes process groups: their options, in the order of making."""
    vendor.group_of.cache_clear()
    made = []
    options = types.SimpleNamespace(Options=lambda: types.SimpleNamespace(config=types.SimpleNamespace()))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch, "zeros", lambda *sizes, device: None)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda tensor, group: None)
    monkeypatch.setattr(
        torch.distributed, "new_group", lambda backend, pg_options: made.append(pg_options) or len(made)
    )
    monkeypatch.setattr(torch.distributed, "ProcessGroupNCCL", options, raising=False)
    yield made
    vendor.group_of.cache_clear()


def test_more_channels_are_a_group_of_their_own(groups, monkeypatch):
    """Made once for each number, with the channels set; a torch that cannot says so in a sentence."""
    assert vendor.most_channels() == vendor.most_channels() == vendor.group_of(64) == 1
    assert vendor.group_of(4) == 2
    assert [(one.config.min_ctas, one.config.max_ctas) for one in groups] == [(64, 64), (4, 4)]
    with pytest.raises(spec.Unsupported, match="65 channels: a communicator of this library has at most 64"):
        vendor.group_of(65)
    monkeypatch.delattr(torch.distributed, "ProcessGroupNCCL")
    with pytest.raises(spec.Unsupported, match=r"cannot set the channels.*min_ctas is needed"):
        vendor.group_of(8)


def test_channels_choose_the_group(groups):
    """0 is the baseline as it is, another number the same call with the communicator of that group."""
    build = vendor.channels_knob(lambda case, inputs: "plain", lambda case, inputs, group: f"over {group}")
    assert build(None, {}) == "plain"
    assert build(None, {}, channels=16) == build(None, {}, channels=16) == "over 1"
    assert build(None, {}, channels=4) == "over 2"
    with pytest.raises(ValueError, match="channels -1: give 0"):
        build(None, {}, channels=-1)
