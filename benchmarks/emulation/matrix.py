"""Matrix instructions (MFMA): where each lane's values lie in A, B, C and D, and their product.

Lane maps, for tiles of M x N (M = N) with K values in sum, from AMD Instinct MI300 and MI350 Instruction Set
Architecture, chapter Matrix Arithmetic Instructions, and AMD's Matrix Instruction Calculator.  Lane l holds

- of A, row l mod M, and of B, column l mod N, each the values k of block l div M: `per` consecutive ones;
- of fp8 and bf8 in F8F6F4, 16 consecutive values of the lower half of K and 16 of the upper half;
- of D, column l mod N; register r is row 4 ((64 / N) (r div 4) + l div N) + r mod 4, of fp64 4 r + l div 16;
- with several blocks (2B, 4B, 16B), of A and B those of block l div M and of D those of every block in turn; of 4 x 4
  tiles those of block l div 4, register r being row r; of the four fp64 ones block l div 4 mod 4 and row l div 16.

Scales of F8F6F4 (E8M0) belong to 32 consecutive values of k: lane l holds those of row l mod M and block l div M.

Where this differs from the hardware: products are exact, summed in fp64 in the order of k and rounded once to the
result's type; the hardware's order of summation is not published, and it rounds in between.  For K values of one sign
the difference is below K 2^-24 of the result, in practice a few units in the last place; after cancellation it is that
of the largest partial sum.  XF32 keeps 11 bits of each operand's fraction, to nearest (the hardware's rounding is not
published: up to 2^-11 of each product).  Denormals are kept in inputs and results.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .formats import values, width
from .operands import VECTOR, Unknown, bits
from .waves import ACCUMULATORS, LANES, Waves

NAME = re.compile(
    r"V_MFMA_(?:SCALE_)?(?P<result>F32|I32|F64)_(?P<m>4|16|32)X(?P=m)X(?P<k>\d+)_(?:(?P<blocks>\d+)B_)?(?P<types>\w+)$"
)
FORMATS = {0: "fp8", 1: "bf8", 2: "fp6", 3: "bf6", 4: "fp4"}
"""Of the operands of F8F6F4, by the codes of cbsz and blgp."""

KINDS = {"f16", "bf16", "i8", "fp8", "bf8", "f32", "xf32", "f64"}


@dataclass(frozen=True)
class Product:
    """An MFMA: tiles of size x size of so many blocks, with k values in sum.

    left, right: formats of A and B; a, b, c: codes of their first register or constant, and whether it is an
    accumulation register; registers: how many A, B, and C and D take; into: where D begins.  mixed: F8F6F4.  chosen:
    of each block of B, the block of A.  scales: code and byte of those of A and B.
    """

    arch: str
    size: int
    k: int
    blocks: int
    result: str
    left: str
    right: str
    a: tuple[int, int]
    b: tuple[int, int]
    c: tuple[int, int]
    registers: tuple[int, int, int]
    into: int
    mixed: bool
    chosen: Any
    scales: tuple[tuple[int, int], ...]

    def tiles(self, numbers: Any, kind: str, scale: Any = None) -> Any:
        """[waves, 64, numbers of a lane] to [waves, blocks, size, K], by row (or column) and k."""
        waves, _, per = numbers.shape
        halves = 2 if self.mixed and kind in ("fp8", "bf8") else 1
        parts = numbers.reshape(
            waves, LANES // (self.size * self.blocks), self.blocks, self.size, halves, per // halves
        )
        tile = parts.transpose(0, 2, 3, 4, 1, 5).reshape(waves, self.blocks, self.size, -1)
        if scale is None:
            return tile
        powers = scale.reshape(waves, 1, LANES // self.size, self.size).transpose(0, 1, 3, 2)
        return tile * np.repeat(powers, 32, axis=3)


def product_of(inst: Any, name: str, arch: str) -> Product:
    """V_MFMA with and without scales; Unknown for what is not there."""
    from tinygrad.runtime.autogen.amd.cdna.ins import VOP3P_MFMA

    if not hasattr(inst, "cbsz"):  # XF32 is decoded without these fields
        inst = VOP3P_MFMA.from_bytes(inst.to_bytes())
    found = NAME.match(name)
    if not found:
        raise Unknown(name)
    size, k, blocks, result = int(found["m"]), int(found["k"]), int(found["blocks"] or 1), found["result"]
    mixed = found["types"] == "F8F6F4"
    left, right = _mixed_formats(inst, name) if mixed else _formats(inst, name, found)
    scales: tuple[tuple[int, int], ...] = ()
    if "_SCALE_" in name:
        codes = enumerate((inst.scale_src0, inst.scale_src1))
        scales = tuple((code, (inst.opsel >> at & 1) + 2 * (inst.opsel_hi >> at & 1)) for at, code in codes)
    counts = [max(1, size * k * blocks * width(kind) // LANES // 32) for kind in (left, right)]
    results = size * size * blocks // LANES * (2 if result == "F64" else 1)
    into = inst.vdst.offset - VECTOR + ACCUMULATORS * inst.acc_cd
    chosen = np.arange(blocks)
    if not mixed:  # of every 2^cbsz blocks of A, block abid stands for all
        chosen = (chosen >> inst.cbsz << inst.cbsz) + inst.abid
    operands = (inst.src0.offset, inst.acc & 1), (inst.src1.offset, inst.acc >> 1 & 1), (inst.src2.offset, inst.acc_cd)
    registers = counts[0], counts[1], results
    return Product(
        arch, size, k, blocks, result, left, right, *operands, registers, into, mixed, chosen, scales
    )  # fmt: skip


def matrix_step(inst: Any, name: str, arch: str) -> Callable[[Waves], None]:
    """What an MFMA does."""
    one = product_of(inst, name, arch)
    scales: list[Any] = [_scale(*scale) for scale in one.scales] or [None, None]
    operands = one.a, one.b, one.c
    a, b, c = (_registers(*each, count, one.result) for each, count in zip(operands, one.registers, strict=True))

    def tiles(words: Any, kind: str, scale: Any) -> Any:
        numbers = values(np.ascontiguousarray(words.transpose(1, 2, 0)), kind, arch).astype(np.float64)
        return one.tiles(numbers, kind, scale)

    def step(w: Waves) -> None:
        scale_a, scale_b = (scale and scale(w) for scale in scales)
        x, y = tiles(a(w), one.left, scale_a), tiles(b(w), one.right, scale_b)
        product = by_registers(x[:, one.chosen] @ y.transpose(0, 1, 3, 2), one.result)
        w.v[one.into : one.into + one.registers[2]] = _added(product, np.ascontiguousarray(c(w)), one.result)

    return step


def _mixed_formats(inst: Any, name: str) -> list[str]:
    """Of A and B, of F8F6F4."""
    codes = inst.cbsz, inst.blgp
    if not set(codes) <= FORMATS.keys():
        raise Unknown(f"{name} with formats {codes}")
    return [FORMATS[code] for code in codes]


def _formats(inst: Any, name: str, found: re.Match[str]) -> tuple[str, str]:
    """Of A and B, by the name."""
    kinds = found["types"].removesuffix("_1K").lower().split("_")
    if inst.blgp:
        raise Unknown(f"{name} with turned or negative B")
    if not {kinds[0], kinds[-1]} <= KINDS or (inst.cbsz or inst.abid) and not found["blocks"]:
        raise Unknown(name)
    return kinds[0], kinds[-1]


def _registers(code: int, accumulator: int, count: int, result: str) -> Callable[[Waves], Any]:
    """Reads an operand, or a constant as if it stood in all of them: [registers, waves, 64]."""
    if code >= VECTOR:
        start = code - VECTOR + ACCUMULATORS * accumulator
        return lambda w: w.v[start : start + count]
    read = bits(code, result.lower())

    def constant(w: Waves) -> Any:
        words = read(w).view(np.uint32).T[:, :, None]
        return np.tile(np.broadcast_to(words, (len(words), len(w), LANES)), (count // len(words), 1, 1))

    return constant


def by_registers(product: Any, result: str) -> Any:
    """Blocks of D, [waves, blocks, size, size], as lanes hold them: [registers or pairs of them, waves, 64]."""
    waves, blocks, size, _ = product.shape
    groups, unit = LANES // size // (blocks if size == 4 else 1), 1 if result == "F64" else 4
    parts = product.reshape(waves, blocks, -1, groups, unit, size)
    order = (2, 4, 0, 3, 1, 5) if size == 4 else (1, 2, 4, 0, 3, 5)
    return parts.transpose(order).reshape(-1, waves, LANES)


def _added(product: Any, c: Any, result: str) -> Any:
    if result == "I32":
        return (product.astype(np.int64) + c.view(np.int32)).astype(np.uint32)
    if result == "F32":
        return (product + c.view(np.float32)).astype(np.float32).view(np.uint32)
    before = np.ascontiguousarray(c.reshape(-1, 2, *c.shape[1:]).transpose(0, 2, 3, 1)).view(np.float64)[..., 0]
    words = np.ascontiguousarray(product + before)[..., None].view(np.uint32)
    return words.transpose(0, 3, 1, 2).reshape(c.shape)


def _scale(code: int, byte: int) -> Callable[[Waves], Any]:
    """Reads powers of two [waves, 64] from a byte of a register, E8M0."""
    read, shift = bits(code, "b32"), np.uint32(8 * byte)

    def powers(w: Waves) -> Any:
        exponent = np.broadcast_to(read(w) >> shift & np.uint32(255), (len(w), LANES)).astype(np.int64)
        return np.where(exponent == 255, np.nan, np.ldexp(1.0, exponent - 127))

    return powers
