"""Whether an output is right, buffers that cannot be right by accident, and inputs that show a swapped tile."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from .spec import Tolerance

CHUNK = 1 << 24
"""Elements compared at a time: bounds the extra memory to some 400 MB, wherever the tensors live."""

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
"""Torch's type of a case's dtype, for the types that torch computes with directly."""

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Verdict on one output.  norm and peak as in :class:`kernels.spec.Tolerance`; why is one sentence, "" if ok."""

    ok: bool
    norm: float
    peak: float
    why: str = ""


def seed_for(seed: int, *parts: Any) -> int:
    """A 63-bit seed from a seed and a name (a case, a rank, an operand): no two operands share their values."""
    digest = hashlib.sha256(repr((seed, *parts)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def normal(
    shape: Sequence[int], dtype: str | torch.dtype, seed: int, device: Any = None, scale: float = 1.0
) -> torch.Tensor:
    """Normal values N(0, scale^2), drawn on the device in the dtype: equal for the same seed and type of device.

    dtype: "fp16" or torch.float16, and so on.  An unknown name is a KeyError of DTYPES.
    """
    kind = DTYPES[dtype] if isinstance(dtype, str) else dtype
    generator = torch.Generator(device=device or "cpu").manual_seed(seed)
    values = torch.randn(tuple(shape), dtype=kind, device=device, generator=generator)
    return values if scale == 1.0 else values.mul_(scale)


def poison(out: Any) -> Any:
    """Overwrite an output (a tensor or a tuple of them) with what no kernel computes, and return it.

    NaN for floating point, the lowest value for signed integers, the highest for unsigned ones, True for bool.
    """
    if isinstance(out, (tuple, list)):
        for part in out:
            poison(part)
    elif out.dtype.is_floating_point and out.element_size() == 1:
        out.view(torch.uint8).fill_(0x80 if "fnuz" in str(out.dtype) else 0x7F)  # OCP MX and AMD FNUZ: the code of NaN
    elif out.dtype.is_floating_point or out.dtype.is_complex:
        out.fill_(math.nan)
    elif out.dtype is torch.bool:
        out.fill_(True)
    else:
        limits = torch.iinfo(out.dtype)
        out.fill_(limits.min if limits.min < 0 else limits.max)
    return out


def compare(out: Any, expected: Any, tolerance: Tolerance) -> Comparison:
    """Compare an output (a tensor or a tuple of them) with the reference.

    Works chunk by chunk on the device that holds `out`; only a few scalars come to the host.  Tolerance zero and zero
    asks for the same bits, element by element.  A NaN or inf on either side never passes.
    """
    if isinstance(out, (tuple, list)) or isinstance(expected, (tuple, list)):
        return _compare_tuples(out, expected, tolerance)
    if tuple(out.shape) != tuple(expected.shape):
        return _refused(f"the output has shape {tuple(out.shape)}, expected {tuple(expected.shape)}")
    exact = tolerance.norm == 0 and tolerance.peak == 0
    if exact and out.dtype != expected.dtype:
        return _refused(f"the output is {_name(out)}, expected {_name(expected)}, and the comparison is exact")
    if out.numel() == 0:
        return Comparison(True, 0.0, 0.0)
    for label, tensor in (("the output", out), ("the reference", expected)):
        index = _first_not_finite(tensor)
        if index is not None:
            return _refused(f"{label} is {_value(tensor, index)} at {_place(tensor, index)}")
    norm, peak = _errors(out, expected)
    if exact:
        wrong = _first_unequal(out, expected)
        why = "" if wrong is None else f"{_says(out, expected, wrong)}, and the comparison is exact"
        return Comparison(wrong is None, norm, peak, why)
    return _judged(out, expected, norm, peak, tolerance)


def _compare_tuples(out: Any, expected: Any, tolerance: Tolerance) -> Comparison:
    count = [len(x) if isinstance(x, (tuple, list)) else 1 for x in (out, expected)]
    if count[0] != count[1] or isinstance(out, torch.Tensor) or isinstance(expected, torch.Tensor):
        return _refused(f"the output has {count[0]} tensor(s), expected {count[1]}, as tuples on both sides")
    parts = [compare(a, b, tolerance) for a, b in zip(out, expected, strict=True)]
    whys = [f"output {i}: {part.why}" for i, part in enumerate(parts) if not part.ok]
    norm, peak = max((p.norm for p in parts), default=0.0), max((p.peak for p in parts), default=0.0)
    return Comparison(not whys, norm, peak, "; ".join(whys))


def _judged(out: torch.Tensor, expected: torch.Tensor, norm: float, peak: float, tolerance: Tolerance) -> Comparison:
    """Hold both errors against their bounds; NaN never passes, since only `<=` lets through."""
    if norm <= tolerance.norm and peak <= tolerance.peak:
        return Comparison(True, norm, peak)
    bounds = f"norm {norm:.3g} (bound {tolerance.norm:.3g}), peak {peak:.3g} (bound {tolerance.peak:.3g})"
    return Comparison(False, norm, peak, f"the error is {bounds}; worst: {_says(out, expected, _worst(out, expected))}")


def _refused(why: str) -> Comparison:
    return Comparison(False, math.inf, math.inf, why)


def _chunks(*tensors: torch.Tensor) -> Iterator[tuple[int, list[torch.Tensor]]]:
    """(offset, flat pieces) of tensors of equal size, all on the device of the first one."""
    flat = [tensor.reshape(-1) for tensor in tensors]
    for start in range(0, flat[0].numel(), CHUNK):
        yield start, [f[start : start + CHUNK].to(tensors[0].device) for f in flat]


def _wide(piece: torch.Tensor) -> torch.Tensor:
    """fp32 holds every fp16, bf16 and fp8 value exactly; the rest is compared in fp64."""
    exact32 = piece.dtype.is_floating_point and piece.element_size() < 4
    return piece.to(torch.float32 if exact32 else torch.float64)


def _difference(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    a, b = _wide(a), _wide(b)
    kind = torch.promote_types(a.dtype, b.dtype)
    b = b.to(kind)
    return a.to(kind) - b, b


def _errors(out: torch.Tensor, expected: torch.Tensor) -> tuple[float, float]:
    """(norm, peak); one transfer to the host.  A reference of zeros makes any difference infinite."""
    sums = []
    for _, (a, b) in _chunks(out, expected):
        difference, wide = _difference(a, b)
        sums.append(
            torch.stack(
                [
                    torch.linalg.vector_norm(difference, dtype=torch.float64) ** 2,
                    torch.linalg.vector_norm(wide, dtype=torch.float64) ** 2,
                    difference.abs().max().double(),
                ]
            )
        )
    table = torch.stack(sums).cpu()
    error, size, highest = float(table[:, 0].sum()), float(table[:, 1].sum()), float(table[:, 2].max())
    if size == 0:
        return (0.0, 0.0) if error == 0 else (math.inf, math.inf)
    return math.sqrt(error / size), highest / math.sqrt(size / out.numel())


def _first_not_finite(tensor: torch.Tensor) -> int | None:
    if not (tensor.dtype.is_floating_point or tensor.dtype.is_complex):
        return None
    for start, (piece,) in _chunks(tensor):
        bad = ~torch.isfinite(_wide(piece) if piece.element_size() == 1 else piece)
        if bool(bad.any()):
            return start + int(bad.int().argmax())
    return None


def _first_unequal(out: torch.Tensor, expected: torch.Tensor) -> int | None:
    """Flat index of the first element whose bits differ."""
    bits = torch.uint8 if out.dtype is torch.bool else _BITS[out.element_size()]
    for start, (a, b) in _chunks(out, expected):
        different = a.view(bits) != b.view(bits)
        if bool(different.any()):
            return start + int(different.int().argmax())
    return None


def _worst(out: torch.Tensor, expected: torch.Tensor) -> int:
    """Flat index of the largest difference."""
    best, index = -1.0, 0
    for start, (a, b) in _chunks(out, expected):
        highest, where = _difference(a, b)[0].abs().max(dim=0)
        if float(highest) > best:
            best, index = float(highest), start + int(where)
    return index


def _name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _place(tensor: torch.Tensor, flat: int) -> str:
    """One index for each dimension; torch.unravel_index imports for 0.6 s of CPU at its first call (2.13)."""
    found: list[int] = []
    for size in reversed(tensor.shape):
        flat, index = divmod(flat, size)
        found.insert(0, index)
    return str(found)


def _value(tensor: torch.Tensor, flat: int) -> str:
    return f"{tensor.reshape(-1)[flat].item()!r}"


def _says(out: torch.Tensor, expected: torch.Tensor, flat: int) -> str:
    return f"{_value(out, flat)} at {_place(out, flat)}, expected {_value(expected, flat)}"
