"""Operations that torch does otherwise on the CPU than on a GPU: what a test compares a kernel with must be as there.

On a GPU a sum of fp16 or bf16 is taken in fp32; on the CPU some are not, and then a reference would be worse than the
kernel that is tested against it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

__tracebackhide__ = True  # pytest shows the program's frames alone

PRODUCTS_AND_SUMS = (
    *("mm", "bmm", "addmm", "baddbmm", "convolution", "convolution_backward"),
    *("cumsum", "cumprod", "logcumsumexp", "logsumexp", "linalg_vector_norm", "var", "std", "var_mean", "prod"),
    *("_weight_norm_interface", "embedding_dense_backward", "index_add", "scatter_add", "avg_pool2d_backward"),
)
"""Computed in fp32, and rounded once."""

PRODUCTS_OF_DTYPE = PRODUCTS_AND_SUMS[:4]
"""Those that take the dtype of their result."""

NORMS = ("native_layer_norm", "native_group_norm", "_fused_rms_norm")
"""The same, but that their statistics stay in fp32."""

NORMS_BACKWARD = {"native_layer_norm_backward": 5, "native_group_norm_backward": 4, "_fused_rms_norm_backward": 4}
"""Computed in fp64: a GPU sums over all rows in trees, the CPU one after the other.  The number of the argument whose
dtype the gradients of weight and bias have."""


def as_on_a_gpu(func: Any) -> Callable[..., Any]:
    """A function of the CPU's tensors that does what an operation does on a GPU; the operation itself mostly."""
    return _OTHERWISE.get(func._schema.name, {}).get(func._overloadname, func)


def in_fp32(func: Any) -> Callable[..., Any]:
    """The same in fp32, where the CPU does not have it in fp16 or bf16; NotImplementedError if it has neither."""
    if func._schema.is_mutable:
        raise NotImplementedError
    return _widened(func, _lowest)


def _is_narrower(value: Any, dtype: torch.dtype) -> bool:
    if not isinstance(value, torch.Tensor) or not (value.is_floating_point() or value.is_complex()):
        return False
    return 1 < value.dtype.to_real().itemsize < dtype.itemsize


def _wider(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return value.to(torch.promote_types(value.dtype, dtype))


def _widened(func: Any, dtypes: Callable[[Any, int], torch.dtype | None], wide: torch.dtype = torch.float32) -> Any:
    """The operation in a wider type than its arguments.  dtypes: of result i by the arguments; None: the wide one."""

    def widened(*args: Any, **kwargs: Any) -> Any:
        if not any(_is_narrower(value, wide) for value in args) or kwargs.get("dtype") is not None:
            return func(*args, **kwargs)
        results = func(*(_wider(value, wide) if _is_narrower(value, wide) else value for value in args), **kwargs)
        if isinstance(results, torch.Tensor):
            dtype = dtypes(args, 0)
            return results.to(dtype if dtype is None or results.is_complex() else dtype.to_real())
        return tuple(
            result.to(dtype) if result is not None and (dtype := dtypes(args, at)) and result.dtype == wide else result
            for at, result in enumerate(results)
        )

    return widened


def _product_of_dtype(*args: Any, out: Any = None, **kwargs: Any) -> Any:
    """A product of narrow matrices whose last argument is its dtype, which the CPU does not have."""
    *operands, dtype = args
    wide = [one.to(dtype) for one in operands]
    product = (torch.baddbmm if wide[-1].dim() == 3 else torch.addmm) if len(wide) == 3 else torch.matmul
    result = product(*wide, **kwargs)
    return result if out is None else out.copy_(result)


def _lowest(args: Any, _: int) -> torch.dtype | None:
    return next(value.dtype for value in args if _is_narrower(value, torch.float32))


def _first_only(args: Any, at: int) -> torch.dtype | None:
    return args[0].dtype if at == 0 else None


def _of_gradients(weight: int) -> Callable[[Any, int], torch.dtype | None]:
    def dtypes(args: Any, at: int) -> torch.dtype | None:
        return args[weight].dtype if at and isinstance(args[weight], torch.Tensor) else args[0].dtype

    return dtypes


def _softmax(func: Any) -> Any:
    """A softmax in fp32, rounded once; of log_softmax the CPU rounds the logarithm of the sum to bf16 before."""

    def softmax(tensor: torch.Tensor, dim: int, half_to_float: bool) -> torch.Tensor:
        result = func(_wider(tensor, torch.float32), dim, False)
        return result if half_to_float else result.to(tensor.dtype)

    return softmax


def _gradient_of_softmax(is_log: bool) -> Callable[[Any], Any]:
    """Its gradient, in the dtype of what went in.  The CPU adds the elements of a row one after the other, and is wrong
    by 1e-5 where many are equal, as those of label smoothing."""

    def gradient(grad: Any, output: Any, dim: int, dtype: Any) -> Any:
        grad, output = (one.to(torch.promote_types(one.dtype, torch.float32)) for one in (grad, output))
        summed, weights = (grad, output.exp()) if is_log else (grad * output, output)
        return (summed - weights * summed.sum(dim, keepdim=True)).to(dtype)

    return lambda func: gradient


def _plain_attention(func: Any) -> Any:
    """Which attention scaled_dot_product_attention takes: the one of plain operations (SDPBackend.MATH)."""
    return lambda *args, **kwargs: 0


def _refusing_library(func: Any) -> Any:
    """Whether a library is asked: torch's own code does it."""
    return lambda *args, **kwargs: False


def _histogram(func: Any) -> Any:
    """Whole numbers in bins, which a GPU counts as they are."""
    return lambda tensor, *bins: func(tensor if tensor.is_floating_point() else tensor.double(), *bins).to(tensor.dtype)


class HipblasLt:
    """triton._C.libtriton.amd.hipblas.HipblasLt: products with a transposed second factor, summed in fp32."""

    def __init__(self, workspace: torch.Tensor) -> None:
        self._workspace = workspace

    def matmul(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        """Into c."""
        c.copy_(a.float() @ b.float().T)

    def gemm(
        self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor, alpha: float, beta: float
    ) -> None:
        """Into d, with c added."""
        d.copy_(alpha * (a.float() @ b.float().T) + beta * c.float())


def _table() -> dict[str, dict[str, Any]]:
    made: dict[str, Callable[[Any], Any]] = {
        **dict.fromkeys(PRODUCTS_AND_SUMS, lambda func: _widened(func, _lowest)),
        **dict.fromkeys(NORMS, lambda func: _widened(func, _first_only)),
        **{
            name: lambda func, weight=weight: _widened(func, _of_gradients(weight), torch.float64)
            for name, weight in NORMS_BACKWARD.items()
        },
        **dict.fromkeys(("_softmax", "_log_softmax"), _softmax),
        "_softmax_backward_data": _gradient_of_softmax(is_log=False),
        "_log_softmax_backward_data": _gradient_of_softmax(is_log=True),
        "_fused_sdp_choice": _plain_attention,
        **dict.fromkeys(("_use_cudnn_ctc_loss", "_use_miopen_ctc_loss"), _refusing_library),
        "histc": _histogram,
        "trace": lambda func: lambda matrix: matrix.diagonal().sum(),
    }
    table: dict[str, dict[str, Any]] = {}
    for name, make in made.items():
        packet = getattr(torch.ops.aten, name, None)
        for overload in packet.overloads() if packet else ():
            func = getattr(packet, overload)
            if overload in ("dtype", "dtype_out") and name in PRODUCTS_OF_DTYPE:
                table.setdefault(f"aten::{name}", {})[overload] = _product_of_dtype
            elif not func._schema.is_mutable:
                table.setdefault(f"aten::{name}", {})[overload] = make(func)
    return table


_OTHERWISE = _table()
