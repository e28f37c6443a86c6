"""Whether an output is right, buffers that cannot be right by accident, and inputs that show a swapped tile."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

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


Ids = tuple[int, int]
"""id() of an output and of its reference."""


class Errors(NamedTuple):
    """What two tensors differ by.  norm and peak as in Comparison; finite: every element of both is."""

    norm: float
    peak: float
    finite: bool
    unequal: bool


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
    """Compare an output (a tensor or a tuple of them) with the reference; see :func:`compare_all`."""
    return compare_all([(out, expected)], tolerance)[0]


def compare_all(pairs: Sequence[tuple[Any, Any]], tolerance: Tolerance) -> list[Comparison]:
    """Compare outputs (tensors or tuples of them), each with its reference.

    Works chunk by chunk on the device that holds an output.  Where all are right a few scalars come to the host, in one
    transfer: on a device that several processes share, each transfer waits for their turns.  Tolerance zero and zero
    asks for the same bits, element by element.  A NaN or inf on either side never passes.
    """
    exact = _is_exact(tolerance)
    errors = _errors([tensors for out, expected in pairs for tensors in _comparable(out, expected)], exact)
    return [_compared(out, expected, tolerance, errors) for out, expected in pairs]


def _is_exact(tolerance: Tolerance) -> bool:
    return tolerance.norm == 0 and tolerance.peak == 0


def _comparable(out: Any, expected: Any) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The pairs of tensors whose difference can be taken."""
    if isinstance(out, torch.Tensor) and isinstance(expected, torch.Tensor):
        if out.shape == expected.shape and out.numel():
            yield out, expected
    elif isinstance(out, (tuple, list)) and isinstance(expected, (tuple, list)):
        for pair in zip(out, expected, strict=False):
            yield from _comparable(*pair)


def _compared(out: Any, expected: Any, tolerance: Tolerance, errors: Mapping[Ids, Errors]) -> Comparison:
    if isinstance(out, (tuple, list)) or isinstance(expected, (tuple, list)):
        return _compared_tuples(out, expected, tolerance, errors)
    if tuple(out.shape) != tuple(expected.shape):
        return _refused(f"the output has shape {tuple(out.shape)}, expected {tuple(expected.shape)}")
    exact = _is_exact(tolerance)
    if exact and out.dtype != expected.dtype:
        return _refused(f"the output is {_name(out)}, expected {_name(expected)}, and the comparison is exact")
    if out.numel() == 0:
        return Comparison(True, 0.0, 0.0)
    found = errors[id(out), id(expected)]
    for label, tensor in (("the output", out), ("the reference", expected)) if not found.finite else ():
        index = _first(_not_finite, tensor)
        if index is not None:
            return _refused(f"{label} is {_value(tensor, index)} at {_place(tensor, index)}")
    if not exact:
        return _judged(out, expected, found.norm, found.peak, tolerance)
    wrong = _first(_unequal, out, expected) if found.unequal else None
    why = "" if wrong is None else f"{_says(out, expected, wrong)}, and the comparison is exact"
    return Comparison(wrong is None, found.norm, found.peak, why)


def _compared_tuples(out: Any, expected: Any, tolerance: Tolerance, errors: Mapping[Ids, Errors]) -> Comparison:
    count = [len(x) if isinstance(x, (tuple, list)) else 1 for x in (out, expected)]
    if count[0] != count[1] or isinstance(out, torch.Tensor) or isinstance(expected, torch.Tensor):
        return _refused(f"the output has {count[0]} tensor(s), expected {count[1]}, as tuples on both sides")
    parts = [_compared(a, b, tolerance, errors) for a, b in zip(out, expected, strict=True)]
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


def _errors(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]], exact: bool) -> dict[Ids, Errors]:
    """What differs, by output and reference; one transfer to the host."""
    sums = [_sums(out, expected, exact) for out, expected in pairs]
    rows = iter(torch.cat([one.to(sums[0].device) for one in sums]).tolist() if sums else [])
    tables = [list(itertools.islice(rows, len(one))) for one in sums]
    return {
        (id(out), id(expected)): _error(table, out.numel())
        for (out, expected), table in zip(pairs, tables, strict=True)
    }


def _sums(out: torch.Tensor, expected: torch.Tensor, exact: bool) -> torch.Tensor:
    """By chunk: the sums of squares of the difference and of the reference, the largest difference, unequal elements.

    fp64, on the device of the output.  Elements are counted if the comparison is exact.
    """
    rows = []
    for _, (a, b) in _chunks(out, expected):
        difference, wide = _difference(a, b)
        unequal = _unequal(a, b).sum() if exact and a.dtype == b.dtype else torch.zeros((), device=a.device)
        squares = [torch.linalg.vector_norm(one, dtype=torch.float64) ** 2 for one in (difference, wide)]
        rows.append(torch.stack([*squares, difference.abs().max().double(), unequal.double()]))
    return torch.stack(rows)


def _error(rows: Sequence[Sequence[float]], elements: int) -> Errors:
    """Of all chunks together.  A reference of zeros makes any difference infinite."""
    errors, sizes, differences, unequal = zip(*rows, strict=True)
    error, size, highest = sum(errors), sum(sizes), max(differences)
    finite = all(math.isfinite(value) for row in rows for value in row)
    if size == 0:
        nothing = 0.0 if error == 0 else math.inf
        return Errors(nothing, nothing, finite, any(unequal))
    return Errors(math.sqrt(error / size), highest / math.sqrt(size / elements), finite, any(unequal))


def _first(bad: Callable[..., torch.Tensor], *tensors: torch.Tensor) -> int | None:
    """Flat index of the first element that is bad, as the function says of flat pieces of the tensors."""
    for start, pieces in _chunks(*tensors):
        found = bad(*pieces)
        if bool(found.any()):
            return start + int(found.int().argmax())
    return None


def _not_finite(piece: torch.Tensor) -> torch.Tensor:
    return ~torch.isfinite(_wide(piece) if piece.element_size() == 1 else piece)


def _unequal(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Where the bits of flat pieces of one dtype differ."""
    bits = torch.uint8 if a.dtype is torch.bool else _BITS[a.element_size()]
    return a.view(bits) != b.view(bits)


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
