"""What a user would call instead: torch and the packages that bring a grouped GEMM of their own.

Every function takes (case, inputs) and returns a callable that is timed; `product` says which of the three products.
Where a package compiles, reads its tables or refuses a case, it does so in set-up.  What each function upstream takes
is recorded in tests/recordings/vendors.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch

from kernels._shared import libraries
from kernels._shared.libraries import Written, first_line
from kernels._shared.tuning import with_knobs
from kernels.grouped_gemm.routing import lens
from kernels.spec import Case, Unsupported, functional

CPU_LIMIT_FLOP = 2e9
"""A CPU multiplies some 1e10 to 1e11 FLOP/s, and a case is called a few hundred times."""


def host_slices(case: Case) -> list[slice]:
    """Rows of each expert, known on the host from the case's routing: what `loop` needs and a real step must copy."""
    result, start = [], 0
    for count in lens(case.routing, case.G, case.M):
        result.append(slice(start, start + count))
        start += count
    return result


def loop(product: str, case: Case, x: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    """torch.mm per expert, on sizes that the host knows already, into one output: cuBLASLt or hipBLASLt."""
    steps, out = _mm_steps(product, case, x)
    empty = [out[g] for g, rows in enumerate(host_slices(case)) if product == "wgrad" and rows.start == rows.stop]

    def call() -> torch.Tensor:
        for part in empty:
            part.zero_()
        for left, right, part in steps:
            torch.mm(left, right, out=part)
        return out

    return call


def loop_on_streams(product: str, case: Case, x: dict[str, torch.Tensor], streams: int) -> Callable[[], torch.Tensor]:
    """The loop's products on so many streams in turn: small ones of several experts then share the GPU.

    They start after what the caller's stream has enqueued, and it goes on after all of them; so in a captured graph.
    On an H200 32 experts of 16 tokens (LFM2, down) take 217 us one after the other and 107 on four streams, 4 of 1024
    tokens 57 and 56 (2026-11-22).
    """
    on_gpu(case, f"a loop on {streams} streams")
    steps, out = _mm_steps(product, case, x)
    empty = [out[g] for g, rows in enumerate(host_slices(case)) if product == "wgrad" and rows.start == rows.stop]
    side = [torch.cuda.Stream(out.device) for _ in range(min(streams, len(steps)))]

    def call() -> torch.Tensor:
        main = torch.cuda.current_stream(out.device)
        for part in empty:
            part.zero_()
        for stream in side:
            stream.wait_stream(main)
        for i, (left, right, part) in enumerate(steps):
            with torch.cuda.stream(side[i % len(side)]):
                torch.mm(left, right, out=part)
        for stream in side:
            main.wait_stream(stream)
        return out

    return call


def loop_with_streams(product: str) -> Callable[..., Callable[[], torch.Tensor]]:
    """Baseline `loop` of a product with the knob `streams`: 1, the default, is the loop as it is, one after the other.

    Four are what Primus-Turbo's hipBLASLt and the fork of grouped_gemm take (see hipblaslt_grouped and gmm).
    """

    def build(case: Case, x: dict[str, torch.Tensor], *, streams: int = 1) -> Callable[[], torch.Tensor]:
        if streams < 1:
            raise ValueError(f"streams {streams}: at least 1, which is the caller's own")
        return loop(product, case, x) if streams == 1 else loop_on_streams(product, case, x, streams)

    return with_knobs(loop, build)


def _mm_steps(product: str, case: Case, x: dict[str, torch.Tensor]) -> tuple[list[tuple[Any, Any, Any]], torch.Tensor]:
    _suits(case)
    slices = [(g, rows) for g, rows in enumerate(host_slices(case)) if rows.stop > rows.start]
    if product == "wgrad":
        out = torch.empty((case.G, case.N, case.K), dtype=x["a"].dtype, device=x["a"].device)
        return [(x["dy"][rows].T, x["a"][rows], out[g]) for g, rows in slices], out
    left, columns = (x["a"], case.N) if product == "forward" else (x["dy"], case.K)
    out = torch.empty((left.shape[0], columns), dtype=left.dtype, device=left.device)
    return [(left[rows], x["b"][g].T if product == "forward" else x["b"][g], out[rows]) for g, rows in slices], out


def torch_grouped(product: str, case: Case, x: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    """torch._grouped_mm.  It has no `out`: every result is a new tensor, taken from what the allocator holds.

    On ROCm it is Composable Kernel's where torch was built with it and, in later states, ROCM_ALLOW_GROUP_GEMM_CK=1 is
    set; else one product for each group, on sizes copied to the host (pytorch/pytorch, aten/src/ATen/native/cuda/
    GroupedBlas.cpp, 00d4eaf9; the switch: aten/src/ATen/Context.cpp).
    """
    if not hasattr(torch, "_grouped_mm"):
        raise Unsupported(f"torch {torch.__version__} has no _grouped_mm; torch 2.8 or later has it")
    _suits(case)
    if product == "wgrad":
        left, right = x["dy"].T, x["a"]
    else:
        left, right = (x["a"], x["b"].transpose(-2, -1)) if product == "forward" else (x["dy"], x["b"])
    try:
        torch._grouped_mm(left, right, offs=x["ends"])
    except (RuntimeError, NotImplementedError) as error:
        raise Unsupported(f"torch._grouped_mm refuses this case on {case.place.arch}: {first_line(error)}") from error
    return functional(lambda: torch._grouped_mm(left, right, offs=x["ends"]))


PRIMUS_TURBO = ("primus-turbo", "AMD-AGI/Primus-Turbo", "csrc/pytorch/bindings_pytorch.cpp")
PRIMUS_TURBO_STATE = ("a6a16cdce46bd2235a248b41f501fb363c215b9b", "2026-08-21")
"""Read at this commit and at the tags v0.3.0 (2026-04-10), v0.3.1 and v0.4.0 (2026-07-30)."""

CK = Written("primus_turbo_cpp_extension::ck_grouped_gemm", *PRIMUS_TURBO, *PRIMUS_TURBO_STATE)
CK_WEIGHTS = Written("primus_turbo_cpp_extension::ck_grouped_gemm_variable_k", *PRIMUS_TURBO, *PRIMUS_TURBO_STATE)
HIPBLASLT = Written("primus_turbo_cpp_extension::hipblaslt_grouped_gemm", *PRIMUS_TURBO, *PRIMUS_TURBO_STATE)

GMM = Written(
    "grouped_gemm.backend.gmm",
    "grouped_gemm",
    "tgale96/grouped_gemm",
    "grouped_gemm/backend.py",
    "ebeae0bb3ded459886309b2a30410deb16937af4",
    "2024-10-31",
    module=lambda: importlib.import_module("grouped_gemm.backend"),
)

AITER = ("amd-aiter", "ROCm/aiter", "aiter/ops/triton/gmm.py", "e4048607a535ace3a2b51ded31b1c8c2d45c0879", "2026-08-22")
AITER_ROWS = Written("aiter.ops.triton.gmm.gmm", *AITER, module=lambda: importlib.import_module("aiter.ops.triton.gmm"))
AITER_WEIGHTS = Written(
    "aiter.ops.triton.gmm.ptgmm", *AITER, module=lambda: importlib.import_module("aiter.ops.triton.gmm")
)


def gmm(product: str, case: Case, x: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    """The package `grouped_gemm`, with sizes on the host: tgale96's on CUDA (CUTLASS or cuBLAS), a fork on ROCm.

    AMD installs the fork github.com/caaatch22/grouped_gemm, branch rocm (AMD-AGI/Primus, docs/01-getting-started/
    bare-metal-installation.md, 6e894f3d): the same module, function and arguments, and one library call for each expert
    on four streams.  States of it end the process on an error of the library (csrc/grouped_gemm.cu, 716d3870).
    """
    on_gpu(case, "grouped_gemm")
    fork = "on ROCm build the branch rocm of github.com/caaatch22/grouped_gemm; `pip install grouped_gemm` is for CUDA"
    given: dict[str, Any] = {"trans_a": product == "wgrad", "trans_b": product == "forward"}
    function = GMM.load(fork if case.place.arch.startswith("gfx") else "pip install grouped_gemm", _GMM_ARGUMENTS)
    left, right = _operands(product, x)
    right, sizes = filled_groups(product, right, host_sizes(case))
    out = _output(product, case, left)
    given |= {"a": left, "b": right, "batch_sizes": sizes, "c": out}
    return libraries.tried(GMM.name, lambda: function(**given))


_GMM_ARGUMENTS = ("a", "b", "batch_sizes", "trans_a", "trans_b", "c")


def ck(product: str, case: Case, x: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    """Composable Kernel's persistent grouped GEMM, through the operators that Primus-Turbo registers.

    group_lens int64 [G] and group_offs int64 [G + 1] (from 0), both on the device.  Not passed: num_cu (all of them),
    and from 0.4.0 on work_steal, ws_counter, ws_local_per_xcd: the static schedule, its default.  It has no `out`.
    """
    on_amd(case, "Composable Kernel")
    entry = CK_WEIGHTS if product == "wgrad" else CK
    operator, _ = _primus_turbo(entry, _PRIMUS_TURBO_ARGUMENTS)
    given = _for_primus_turbo(product, *_operands(product, x), host_sizes(case))
    return functional(libraries.tried(entry.name, lambda: operator(**given)))


def hipblaslt_grouped(product: str, case: Case, x: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    """hipBLASLt as Primus-Turbo calls it for groups: one product for each expert, on four streams.

    The host reads the sizes, which are there before the call, so `pre_sync` is False; a training step must wait for
    them.  An expert without a row is left out together with its weights, before the timed call: up to a6a16cdc the
    library skips the rows of such an expert but not its weights, and multiplies all later rows with the wrong ones
    (csrc/kernels/grouped_gemm/hipblaslt_grouped_gemm.cu, compute_args).  Later than 0.4.0 it takes an output.
    """
    on_amd(case, "hipBLASLt")
    operator, known = _primus_turbo(HIPBLASLT, (*_PRIMUS_TURBO_ARGUMENTS, "pre_sync"))
    left, right = _operands(product, x)
    right, sizes = filled_groups(product, right, host_sizes(case))
    given = _for_primus_turbo(product, left, right, sizes) | {"pre_sync": False}
    if "out" not in known:
        return functional(libraries.tried(HIPBLASLT.name, lambda: operator(**given)))
    given["out"] = _output(product, case, left)
    return libraries.tried(HIPBLASLT.name, lambda: operator(**given))


def aiter_gmm(product: str, case: Case, x: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    """aiter's Triton kernels gmm and, for the weights, the persistent ptgmm, with the knobs of its own table."""
    on_amd(case, "aiter's gmm")
    libraries.need_amd_aiter()
    entry = AITER_WEIGHTS if product == "wgrad" else AITER_ROWS
    function = entry.load("pip install amd-aiter (AMD's; the distribution aiter is another project)", _AITER_ARGUMENTS)
    left, right = _operands(product, x)
    out = _output(product, case, left)
    if product == "wgrad":
        left = left.T  # [N, rows]: its product takes the left operand transposed
    elif product == "forward":
        right = right.transpose(1, 2)  # [G, K, N], the strides say that it lies transposed
    sizes = host_sizes(case).to(left.device)
    given = {"lhs": left, "rhs": right, "group_sizes": sizes, "preferred_element_type": out.dtype, "existing_out": out}
    return libraries.tried(entry.name, lambda: function(**given))


_AITER_ARGUMENTS = ("lhs", "rhs", "group_sizes", "preferred_element_type", "existing_out")
_PRIMUS_TURBO_ARGUMENTS = ("a", "b", "group_lens", "group_offs", "transA", "transB")


def _primus_turbo(entry: Written, passed: tuple[str, ...]) -> tuple[Any, tuple[str, ...]]:
    """An operator of Primus-Turbo and the names of its arguments; Unsupported names what is missing or has changed."""
    with libraries.missing("primus_turbo.pytorch", "install Primus-Turbo, built for this ROCm"):
        importlib.import_module("primus_turbo.pytorch")
    namespace, _, name = entry.name.partition("::")
    operators = getattr(torch.ops, namespace)
    if not hasattr(operators, name):
        raise Unsupported(f"{libraries.version(entry.distribution)} registers no {entry.name}; 0.3.0 or later does")
    operator = getattr(operators, name)
    signature = libraries.signature_of_operator(operator)
    entry.check(signature, passed)
    return operator, tuple(signature.parameters)


def _operands(product: str, x: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows on the left, [rows, depth]; on the right the weights [G, N, K], or of wgrad the other rows."""
    names = {"forward": ("a", "b"), "dgrad": ("dy", "b"), "wgrad": ("dy", "a")}[product]
    return x[names[0]], x[names[1]]


def host_sizes(case: Case) -> torch.Tensor:
    """Rows of each expert, int64 [G], on the host."""
    return torch.tensor(lens(case.routing, case.G, case.M), dtype=torch.int64, device="cpu")


def filled_groups(product: str, right: torch.Tensor, sizes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The weights and sizes of the experts that have a row; of wgrad all groups, since the empty ones are to be zeroed.

    For libraries that loop over the experts on the host: there an expert without a row costs nothing.
    """
    if product == "wgrad" or bool(sizes.all()):
        return right, sizes
    filled = sizes.nonzero().flatten()
    return right[filled.to(right.device)], sizes[filled]


def _for_primus_turbo(product: str, left: torch.Tensor, right: torch.Tensor, sizes: torch.Tensor) -> dict[str, Any]:
    """The arguments of every grouped GEMM of Primus-Turbo: sizes int64 [G], starts int64 [G + 1], flags."""
    lengths = sizes.to(left.device)
    starts = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    flags = {"transA": product == "wgrad", "transB": product == "forward"}
    return {"a": left, "b": right, "group_lens": lengths, "group_offs": starts, **flags}


def _output(product: str, case: Case, left: torch.Tensor) -> torch.Tensor:
    """An output to be written: [rows, columns], or of wgrad [G, N, K], in zeros."""
    shapes = {"forward": (left.shape[0], case.N), "dgrad": (left.shape[0], case.K), "wgrad": (case.G, case.N, case.K)}
    return torch.zeros(shapes[product], dtype=left.dtype, device=left.device)


BASELINES: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "loop": (loop, {}),
    "torch_grouped": (torch_grouped, {}),
    "ck": (ck, {"libraries": ("primus-turbo",)}),
    "hipblaslt_grouped": (hipblaslt_grouped, {"libraries": ("primus-turbo",)}),
    "gmm": (gmm, {"libraries": ("grouped_gemm",)}),
    "aiter_gmm": (aiter_gmm, {"libraries": ("amd-aiter",), "first_call_s": libraries.COMPILING_S}),
}
"""By name: the adapter, and what it calls.  aiter builds a module even when it is imported (aiter/ops/enum.py)."""


def on_cpu(product: str, case: Case, x: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    """The loop of torch.mm, for machines without a GPU."""
    if case.place.device != "cpu":
        raise Unsupported(f"the backend torch is for CPUs, this is {case.place.arch}; `loop` is the same on a GPU")
    return loop(product, case, x)


def _suits(case: Case) -> None:
    """Refuse on a CPU what would take minutes there."""
    flops = 2 * case.G * case.M * case.N * case.K
    if case.place.device == "cpu" and flops > CPU_LIMIT_FLOP:
        raise Unsupported(
            f"the case has {flops:.3g} FLOP, more than the {CPU_LIMIT_FLOP:.0e} that suit a CPU; it needs a GPU"
        )


def on_gpu(case: Case, what: str) -> None:
    """Unsupported on a CPU."""
    if case.place.arch == "cpu":
        raise Unsupported(f"{what} needs a GPU, this is a CPU")


def on_amd(case: Case, what: str) -> None:
    """Unsupported where the architecture is not AMD's."""
    if not case.place.arch.startswith("gfx"):
        raise Unsupported(f"{what} needs a GPU of AMD, this is {case.place.arch}")
