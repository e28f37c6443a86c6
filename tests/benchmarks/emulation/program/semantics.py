"""What a torch with one AMD GPU does, as a script: it fails where the emulated device does otherwise."""

import copy
import io
import math
import multiprocessing
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch
import triton.testing
from torch import cuda, nn
from torch.utils.checkpoint import checkpoint

from tests.benchmarks.emulation.program.kernels import add, add_kernel, halves_kernel, pointed_kernel


def moves():
    host = torch.arange(6.0).reshape(2, 3)
    there = host.to("cuda")
    assert (there.is_cuda, there.device, host.is_cuda) == (True, torch.device("cuda", 0), False)
    there += 1
    assert host[0, 0] == 0
    assert torch.tensor([there[0, 0]]) == 1  # of the host
    assert there.to("cuda") is there
    with pytest.raises(RuntimeError, match="same device"):
        host + there
    with pytest.raises(TypeError, match="numpy"):
        there.numpy()
    with pytest.raises(AssertionError, match="device"):
        torch.testing.assert_close(there, there.cpu())
    there.t()[0] = 7
    assert there[:, 0].tolist() == [7, 7]
    assert (there * torch.tensor(2)).is_cuda
    resized = there.clone().resize_(4).unsqueeze_(0)
    assert resized.shape == (1, 4)
    turned = torch.tensor([1 + 2j], device="cuda").conj()
    assert ((turned * turned).item(), turned.imag.item()) == (-3 - 4j, -2)
    assert torch.linalg.pinv(turned[None]).item() == pytest.approx(0.2 + 0.4j)  # of views that are conjugated later
    assert "cuda:0" in repr(resized)
    for again in (copy.deepcopy(there), pickle.loads(pickle.dumps(there))):
        assert again.is_cuda
        assert torch.equal(again, there)
        assert again.data_ptr() != there.data_ptr()


def modules_and_gradients():
    module = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)).to("cuda")
    weight = module[0].weight
    assert isinstance(weight, nn.Parameter)
    assert weight.is_cuda
    optimizer = torch.optim.AdamW(module.parameters())
    module(torch.randn(2, 4, device="cuda")).sum().backward()
    optimizer.step()
    assert weight.grad.is_cuda
    assert copy.deepcopy(module)[0].weight.is_cuda

    class Two(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x, 3 * x

        @staticmethod
        def backward(ctx, first, unused):
            return add(first.contiguous(), unused)

    x = torch.ones(5, device="cuda", requires_grad=True)
    Two.apply(x)[0].sum().backward()
    assert x.grad.tolist() == [1] * 5
    with torch.autocast("cuda", dtype=torch.float16):
        product = x[None] @ x[:, None]
        assert product.dtype == torch.float16
        assert product.softmax(0).dtype == torch.float32
    halves, sums = torch.full((2, 2), 200.0, dtype=torch.float16, device="cuda"), torch.ones(2, 2, device="cuda")
    assert torch.mm(halves, halves, out_dtype=torch.float32).tolist() == [[80000] * 2] * 2
    torch.addmm(sums, halves, halves, out_dtype=torch.float32, out=sums)
    assert sums.tolist() == [[80001] * 2] * 2
    lowest = torch.tensor([-1.2783203125], dtype=torch.float16, device="cuda", requires_grad=True)
    nn.functional.silu(lowest).backward()
    assert lowest.grad > 0  # 3e-5, which is 0 where each factor is rounded
    row, target = torch.zeros(1, 32000, device="cuda", requires_grad=True), torch.zeros(1, dtype=int, device="cuda")
    nn.functional.cross_entropy(row, target, label_smoothing=0.1).backward()
    assert row.grad[0, 1].item() == pytest.approx(0.9 / 32000, rel=2e-6)
    ramp = torch.arange(9.0, device="cuda").bfloat16()
    assert ramp.log_softmax(0).equal(ramp.float().log_softmax(0).bfloat16())  # its sum's logarithm is not rounded first
    assert nn.functional.ctc_loss(row[None], target[None] + 1, target + 1, target + 1) == 0


def device():
    facts = cuda.get_device_properties(0)
    assert cuda.is_available()
    assert cuda.device_count() == 1
    assert os.popen("hipconfig").read().strip() == torch.version.hip
    assert facts.gcnArchName.startswith("gfx9")
    assert facts.multi_processor_count in (304, 256)
    of_driver = triton.runtime.driver.active.utils.get_device_properties(0)
    assert of_driver["max_threads_per_sm"] == facts.max_threads_per_multi_processor
    assert 2 * of_driver["max_num_regs"] == facts.regs_per_multiprocessor  # the others are of accumulation
    assert torch.trace(torch.ones(2, 2, dtype=torch.bool, device="cuda")) == 2
    assert torch.ones(1, dtype=torch.chalf, device="cuda").angle().dtype == torch.half
    torch.manual_seed(3)
    first = torch.randn(3, device="cuda")
    for seed, alike in ((7, False), (3, True)):
        cuda.manual_seed(seed)
        assert torch.equal(first, torch.randn(3, device="cuda")) is alike
    state = cuda.get_rng_state()  # as kernels of Triton take it: a seed and an offset
    assert state.view(torch.int64)[0] == 3
    x = torch.ones(64, device="cuda", requires_grad=True)
    kept = checkpoint(lambda x: nn.functional.dropout(2 * x), x, use_reentrant=False)
    kept.sum().backward()
    assert torch.equal(x.grad, kept)
    cuda.set_rng_state(state)
    assert torch.equal(nn.functional.dropout(torch.full((64,), 2.0, device="cuda")), kept)
    generator = torch.Generator(device="cuda").manual_seed(1)
    assert generator.device.type == "cuda"
    assert torch.rand(2, device="cuda", generator=generator).is_cuda
    before = cuda.memory_allocated()
    large = torch.empty(1 << 18, device="cuda")
    assert cuda.memory_allocated() - before == 1 << 20
    del large
    assert cuda.memory_allocated() == before
    assert ThreadPoolExecutor().submit(lambda: torch.ones(2, device="cuda") + 1).result().is_cuda


def defaults():
    """Where a tensor lies of which nobody says it, and that there is one device."""
    torch.set_default_device("cuda")
    assert torch.ones(3).is_cuda
    torch.set_default_device("cpu")
    with torch.device("cuda"):
        assert nn.Linear(2, 2).weight.is_cuda
    assert not torch.ones(3).is_cuda
    ones = cuda.HalfTensor([1, 2])
    assert isinstance(ones, cuda.HalfTensor)
    assert not isinstance(ones, cuda.FloatTensor)
    for use in (lambda: torch.ones(1, device="cuda:1"), lambda: cuda.set_device(1), lambda: ones.to("cuda:2")):
        with pytest.raises(RuntimeError, match="invalid device ordinal"):
            use()


def files():
    """What torch.save has written of the device and of the host, to where torch.load is asked to put it."""
    shared = torch.ones(2, device="cuda")
    written = io.BytesIO()
    torch.save({"device": shared, "module": nn.Linear(2, 2).cuda().state_dict(), "host": torch.ones(2)}, written)
    on_host, on_device = (False,) * 3, (True,) * 3
    for where, lie in (
        (None, (True, True, False)),
        ("cpu", on_host),
        ("cuda", on_device),
        ({"cuda:0": "cpu"}, on_host),
        (lambda storage, place: storage, on_host),
    ):
        written.seek(0)
        read = torch.load(written, map_location=where)
        assert (read["device"].is_cuda, read["module"]["weight"].is_cuda, read["host"].is_cuda) == lie


def tools():
    """Custom operations under fake tensors, a profiler, ranges and a raw stream."""

    @torch.library.custom_op("ridgeline_tests::doubled", mutates_args=())
    def doubled(x: torch.Tensor) -> torch.Tensor:  # torch reads the schema from the annotations
        return add(x, x)

    doubled.register_fake(torch.empty_like)
    torch.library.opcheck(doubled, (torch.ones(2, device="cuda"),))
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile, cuda.nvtx.range("a"):
        torch.func.jvp(torch.neg, *[(torch.ones(3, device="cuda"),)] * 2)  # by torch.jit.script, which knows factories
    assert profile.key_averages()
    torch._dynamo.reset()
    assert torch._C._cuda_getCurrentRawStream(0) == cuda.current_stream().cuda_stream


def no_times():
    begin, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    begin.record()
    calls = []
    assert math.isnan(triton.testing.do_bench(lambda: calls.append(1)))
    assert len(calls) == 1
    end.record()
    assert math.isnan(begin.elapsed_time(end))
    assert math.isnan(triton.runtime.driver.active.get_benchmarker()(lambda: None))


def graphs():
    x, total = torch.ones(4, device="cuda"), torch.zeros(4, device="cuda")
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        y = add(x * 2, x)
        total += y
        square = x.half() @ x.half()
    assert total.tolist() == [0] * 4
    x.fill_(5)
    graph.replay()
    graph.replay()
    assert y.tolist() == [15] * 4
    assert total.tolist() == [30] * 4
    assert square.item() == 100


def refusals():
    ones = torch.ones(1, 1, 2, device="cuda")
    before = cuda.memory_allocated()
    cycle = [ones.clone()]
    cycle.append(cycle)
    del cycle
    for why, use in (
        ("TORCH_COMPILE_DISABLE", lambda: torch.compile(lambda x: x + 1)(ones)),
        ("RCCL", lambda: torch.distributed.init_process_group("nccl")),
        ("sparse_coo tensor is not emulated", ones.to_sparse),
        ("no code of a CPU", lambda: nn.LSTM(2, 2).cuda()(ones)),
        ("out of memory", lambda: ones.new_empty(os.sysconf("SC_PHYS_PAGES") << 10)),
    ):
        with pytest.raises((NotImplementedError, cuda.OutOfMemoryError), match=why):
            use()
    assert cuda.memory_allocated() == before  # what a failed test's traceback holds is free


def kernels():
    """A kernel that calls a function, takes memory of the host that is pinned, and ends in an assertion."""
    total, before = torch.ones(1, dtype=torch.float16, device="cuda"), torch.zeros(1, device="cuda")
    out = torch.full((1,), 3.0, pin_memory=True)
    assert out.is_pinned()
    halves_kernel[(1,)](total, before, out, debug=True)
    assert (total.item(), before.item(), out.item()) == (3, 1, 6)
    with pytest.raises(ValueError, match=r"a device_assert does not hold; .*tl.device_assert\("):
        halves_kernel[(1,)](total, before, torch.full((1,), 50.0, device="cuda"), debug=True)
    loaded = add_kernel.warmup(before, before, before, 1, BLOCK=64, grid=(1,))
    loaded._init_handles()
    assert loaded.n_regs > 0  # by which persistent kernels choose their grid
    assert loaded.n_spills == 0
    one, two = torch.ones(1, device="cuda"), torch.zeros(1, device="cuda")
    pointed_kernel[(1,)](torch.tensor([one.data_ptr()], device="cuda"), two)
    assert two.item() == 1
    pointer = SimpleNamespace(data_ptr=one.data_ptr, dtype=one.dtype)  # all that a driver asks of a tensor
    loaded[(1, 1, 1)](pointer, two, two, 1)  # a driver takes arguments in their order, without constants at the end
    assert two.item() == 2
    with pytest.raises(TypeError, match="add_kernel is given 2 of its 5 arguments"):
        loaded[(1, 1, 1)](one, one)
    add_kernel[(300_000,)](before, before, before, 1, BLOCK=64, num_warps=1)  # more waves than have room at once


def own_operations():
    """A kernel that the program registers for the device is used until its library is gone."""
    library = torch.library.Library("aten", "IMPL")
    library.impl("sinh", lambda x: torch.full_like(x, 5.0), "CUDA")
    assert torch.sinh(torch.zeros(1, device="cuda")).item() == 5
    library._destroy()
    assert torch.sinh(torch.zeros(1, device="cuda")).item() == 0


def in_a_child():
    assert torch.ones(2, device="cuda").is_cuda
    add(torch.ones(9, device="cuda"), torch.ones(9, device="cuda"))


def spawning():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        pool.apply(in_a_child)


CHECKS = (moves, modules_and_gradients, device, defaults, files, tools, no_times, graphs, refusals, kernels,
          own_operations, spawning)  # fmt: skip


if __name__ == "__main__":
    for check in CHECKS:
        check()
        print(check.__name__)
