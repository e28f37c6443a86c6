"""Matrix instructions against scalar loops: where AMD's documents say that each value lies, one value at a time."""

from __future__ import annotations

import functools
import re
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.emulation.code_object import KernelCode
from benchmarks.emulation.machine import Machine
from benchmarks.emulation.operands import Unknown
from benchmarks.emulation.waves import EXEC, LANES, Memory, Waves

NAME = re.compile(
    r"V_MFMA_(?P<scale>SCALE_)?(?P<out>F32|I32|F64)_(?P<m>\d+)X\d+X(?P<k>\d+)_((?P<b>\d+)B_)?(?P<types>[A-Z0-9_]+)$"
)
ARCHS = {"gfx942": ("XF32",), "gfx950": ()}
WIDTH = {
    "F16": 16,
    "BF16": 16,
    "F32": 32,
    "XF32": 32,
    "F64": 64,
    "I8": 8,
    "FP8": 8,
    "BF8": 8,
    "FP6": 6,
    "BF6": 6,
    "FP4": 4,
}
INTEGERS = {8: torch.uint8, 16: torch.uint16, 32: torch.uint32, 64: torch.uint64}
FLOATS = {
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "XF32": torch.float32,
    "F64": torch.float64,
}
SMALL = {
    "gfx942": {"FP8": torch.float8_e4m3fnuz, "BF8": torch.float8_e5m2fnuz},
    "gfx950": {"FP8": torch.float8_e4m3fn, "BF8": torch.float8_e5m2},
}
CODES = {"FP8": 0, "BF8": 1, "FP6": 2, "BF6": 3, "FP4": 4}
A, B, C, D = 10, 20, 64, 128


def instructions() -> list[str]:
    """Names of all V_MFMA of tinygrad's tables; F8F6F4 with the formats of A and B."""
    from tinygrad.runtime.autogen.amd.cdna import ins

    names = [op.name for op in ins.VOP3POp if NAME.match(op.name) and "F8F6F4" not in op.name]
    mixed = [(left, right) for left in CODES for right in CODES]
    return names + [f"V_MFMA_F32_{shape}_F8F6F4 {a} {b}" for shape in ("16X16X128", "32X32X64") for a, b in mixed]


def value(bits: int, kind: str, arch: str) -> float:
    """A number of a format."""
    if kind == "I8":
        return bits - (bits >> 7 << 8)
    if kind in ("FP6", "BF6"):
        exponent_bits, fraction_bits, bias = (2, 3, 1) if kind == "FP6" else (3, 2, 3)
        exponent, fraction = bits >> fraction_bits & (1 << exponent_bits) - 1, bits & (1 << fraction_bits) - 1
        size = (fraction + (exponent > 0) * 2**fraction_bits) * 2.0 ** (max(exponent, 1) - bias - fraction_bits)
        return -size if bits >> 5 else size
    if kind == "FP4":
        return (0, 0.5, 1, 1.5, 2, 3, 4, 6)[bits & 7] * (-1.0 if bits >> 3 else 1.0)
    if kind == "XF32":  # 10 bits of fraction, to nearest even
        bits = (bits + 0xFFF + (bits >> 13 & 1)) & 0xFFFFE000
    dtype = SMALL[arch].get(kind) or FLOATS[kind]
    return float(torch.tensor([bits], dtype=INTEGERS[WIDTH[kind]]).view(dtype).double())


def source_place(
    kind: str, out: str, m: int, k_total: int, blocks: int, block: int, row: int, k: int, mixed: bool
) -> tuple[int, int]:
    """(lane, position among its values) of element (row, k) of A, or (k, column) of B."""
    if blocks > 1:
        return (row + 4 * block + 16 * k, 0) if out == "F64" else (row + m * block, k)
    if mixed and kind in ("FP8", "BF8"):
        half, inner = divmod(k, k_total // 2)
        return row + m * (inner // 16), 16 * half + inner % 16
    per = k_total * m // 64
    return row + m * (k // per), k % per


def result_place(out: str, m: int, blocks: int, block: int, row: int, column: int) -> tuple[int, int]:
    """(lane, register) of an element of D; of fp64, pairs of registers."""
    if out == "F64":
        return (column + 4 * block + 16 * row, 0) if blocks > 1 else (column + 16 * (row % 4), row // 4)
    if m == 4:
        return column + 4 * block, row
    if m == 16:
        return column + 16 * (row // 4), 4 * block + row % 4
    return column + 32 * (row // 4 % 2), 16 * block + 4 * (row // 8) + row % 4


def registers(random: np.random.Generator, kind: str, count: int) -> np.ndarray:
    """Random values [registers, 64]: of floats of 16 bits and more around 1, of others all codes."""
    if kind in ("F32", "XF32"):
        return random.standard_normal((count, LANES)).astype(np.float32).view(np.uint32)
    if kind == "F64":
        return np.ascontiguousarray(random.standard_normal((LANES, count // 2))).view(np.uint32).T.copy()
    if kind in ("F16", "BF16"):
        wide = random.standard_normal((2, count, LANES)).astype(np.float32)
        halves = wide.astype(np.float16).view(np.uint16) if kind == "F16" else wide.view(np.uint32) >> 16
        return halves[0].astype(np.uint32) | halves[1].astype(np.uint32) << 16
    return random.integers(0, 1 << 32, (count, LANES)).astype(np.uint32)


def element(lanes: list[int], kind: str, lane: int, position: int, arch: str) -> float:
    width = WIDTH[kind]
    return value(lanes[lane] >> width * position & (1 << width) - 1, kind, arch)


def as_lanes(words: np.ndarray) -> list[int]:
    """Registers [registers, 64] of each lane as one number."""
    return [sum(int(word) << 32 * index for index, word in enumerate(words[:, lane])) for lane in range(LANES)]


def kernel_of(inst: Any, arch: str) -> KernelCode:
    """A kernel of one instruction."""
    image = inst.to_bytes() + (0xBF810000).to_bytes(4, "little")
    return KernelCode("one", arch, image, 0, (), 0, 0, 0, (), 0, (False, False, False), 0xF0)


@functools.cache
def run(name: str, arch: str, cbsz: int = 0, abid: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(registers before, after, scales) of one instruction."""
    from tinygrad.renderer.amd.dsl import Reg
    from tinygrad.runtime.autogen.amd.cdna import ins

    plain, *formats = name.split()
    found = NAME.match(plain)
    assert found, name
    kinds = formats or [
        found["types"].removesuffix("_1K").split("_")[0],
        found["types"].removesuffix("_1K").split("_")[-1],
    ]
    m, k, blocks = int(found["m"]), int(found["k"]), int(found["b"] or 1)
    counts = [max(1, m * k * blocks * WIDTH[kind] // LANES // 32) for kind in kinds]
    results = m * m * blocks // LANES * (2 if found["out"] == "F64" else 1)
    op = ins.VOP3PX2Op["V_MFMA_SCALE_" + plain.removeprefix("V_MFMA_")] if formats else ins.VOP3POp[plain]
    fields = {
        "vdst": Reg(256 + D, results),
        "src0": Reg(256 + A, counts[0]),
        "src1": Reg(256 + B, counts[1]),
        "src2": Reg(256 + C, results),
    }
    if formats:
        cbsz, blgp = (CODES[kind] for kind in formats)
        inst = ins.VOP3PX2(
            op=op, cbsz=cbsz, blgp=blgp, scale_src0=256 + 1, scale_src1=256 + 2, x2encoding=0xD3AC, **fields
        )
    else:
        like = {"V_MFMA_F32_16X16X8_XF32": "16X16X16_F16", "V_MFMA_F32_32X32X4_XF32": "32X32X8_F16"}.get(plain)
        known = ins.VOP3POp[f"V_MFMA_F32_{like}"] if like else op  # tinygrad decodes XF32, and does not encode it
        inst = ins.VOP3P_MFMA(op=known, cbsz=cbsz, abid=abid, **fields)
        inst._raw += op.value - known.value << 16
    random = np.random.default_rng(list(name.encode()))
    v = np.zeros((512, 1, LANES), np.uint32)
    v[1:3, 0] = random.integers(120, 135, (2, LANES))
    v[A : A + counts[0], 0], v[B : B + counts[1], 0] = (
        registers(random, kind, count) for kind, count in zip(kinds, counts, strict=True)
    )
    v[C : C + results, 0] = registers(random, found["out"], results)
    s = np.zeros((128, 1), np.uint32)
    s[EXEC : EXEC + 2] = 0xFFFFFFFF
    code = kernel_of(inst, arch)
    waves = Waves(0, s, v.copy(), np.zeros(1, np.bool_), np.zeros((1, 2), np.int64))
    Machine(code, Memory(), 1, 0, 10).run(waves)
    return v[:, 0], waves.v[:, 0], v[1:3, 0]


def check(name: str, arch: str, cbsz: int = 0, abid: int = 0) -> None:
    plain, *formats = name.split()
    found = NAME.match(plain)
    assert found
    types = found["types"].removesuffix("_1K").split("_")
    left, right = formats or (types[0], types[-1])
    m, k_total, blocks, out = int(found["m"]), int(found["k"]), int(found["b"] or 1), found["out"]
    given, after, scales = run(name, arch, cbsz, abid)
    lanes_a, lanes_b = as_lanes(given[A : A + 8]), as_lanes(given[B : B + 8])
    for block in range(blocks):
        from_block = block >> cbsz << cbsz | abid

        def values(lanes: list[int], kind: str, which: int, line: int) -> list[float]:
            places = (
                source_place(kind, out, m, k_total, blocks, which, line, k, bool(formats)) for k in range(k_total)
            )
            return [element(lanes, kind, lane, position, arch) for lane, position in places]

        rows = [values(lanes_a, left, from_block, i) for i in range(m)]
        columns = [values(lanes_b, right, block, j) for j in range(m)]
        if formats:
            for lines, which in ((rows, 0), (columns, 1)):
                for i, line in enumerate(lines):
                    for k in range(k_total):
                        line[k] *= 2.0 ** (int(scales[which, i + m * (k // 32)]) - 127)
        for i in range(0, m, 3):
            for j in range(0, m, 5):
                lane, register = result_place(out, m, blocks, block, i, j)
                products = [x * y for x, y in zip(rows[i], columns[j], strict=True)]
                if out == "F64":
                    before = float(given[C + 2 * register : C + 2 * register + 2, lane].copy().view(np.float64)[0])
                    got = float(after[D + 2 * register : D + 2 * register + 2, lane].copy().view(np.float64)[0])
                elif out == "I32":
                    before, got = (
                        int(one.view(np.int32)) for one in (given[C + register, lane], after[D + register, lane])
                    )
                else:
                    before, got = (
                        float(one.view(np.float32)) for one in (given[C + register, lane], after[D + register, lane])
                    )
                wanted = sum(products) + before
                if out == "I32":
                    assert (got - wanted) % 2**32 == 0, (name, block, i, j)
                    continue
                size = sum(abs(one) for one in products) + abs(before)
                same = got == wanted or (got != got and wanted != wanted)
                assert same or abs(got - wanted) <= size * (2**-23 if out == "F32" else 2**-50), (
                    name,
                    block,
                    i,
                    j,
                    got,
                    wanted,
                )


FAST = (
    "V_MFMA_F32_16X16X16_F16",
    "V_MFMA_I32_4X4X4_16B_I8",
    "V_MFMA_F64_16X16X4_F64",
    "V_MFMA_F64_4X4X4_4B_F64",
    "V_MFMA_F32_16X16X32_FP8_BF8",
    "V_MFMA_F32_16X16X128_F8F6F4 FP8 FP4",
    "V_MFMA_F32_16X16X128_F8F6F4 BF6 FP6",
)


@pytest.mark.parametrize("name", FAST)
def test_values_lie_where_the_documents_say(name):
    check(name, "gfx950")


@pytest.mark.nightly
@pytest.mark.parametrize("arch", ARCHS)
def test_every_shape_and_type(arch):
    names = [name for name in instructions() if arch == "gfx950" or "F8F6F4" not in name]
    assert len(names) > 35
    for name in names:
        check(name, arch)


def test_blocks_of_a_stand_for_others():
    check("V_MFMA_F32_4X4X4_16B_F16", "gfx942", cbsz=4, abid=3)
    check("V_MFMA_F32_4X4X4_16B_F16", "gfx942", cbsz=2, abid=1)


def test_what_has_no_lane_map_is_refused():
    from tinygrad.renderer.amd.dsl import Reg
    from tinygrad.runtime.autogen.amd.cdna import ins

    op = ins.VOP3POp["V_SMFMAC_F32_16X16X32_F16"]
    inst = ins.VOP3P_MFMA(op=op, vdst=Reg(256, 4), src0=Reg(266, 2), src1=Reg(276, 4), src2=Reg(286, 1))
    machine = Machine(kernel_of(inst, "gfx942"), Memory(), 1, 0, 10)
    with pytest.raises(Unknown, match="SMFMAC"):
        machine._decoded(0)


@pytest.mark.parametrize(("name", "bits"), [("B64_TR_B16", 16), ("B64_TR_B8", 8), ("B64_TR_B4", 4), ("B96_TR_B6", 6)])
def test_a_transposing_load_gives_each_of_16_lanes_a_column(name, bits):
    from tinygrad.renderer.amd.dsl import Reg
    from tinygrad.runtime.autogen.amd.cdna import ins

    size = 12 if bits == 6 else 8
    inst = ins.DS(op=ins.DSOp[f"DS_READ_{name}"], vdst=Reg(256 + D, size // 4), addr=Reg(256 + A, 1))
    machine = Machine(kernel_of(inst, "gfx950"), Memory(), 1, LANES * size, 10)
    contents = np.random.default_rng(bits).integers(0, 256, LANES * size).astype(np.uint8)
    machine.accesses.lds[: LANES * size] = contents
    s, v = np.zeros((128, 1), np.uint32), np.zeros((512, 1, LANES), np.uint32)
    s[EXEC : EXEC + 2] = 0xFFFFFFFF
    v[A, 0] = size * np.arange(LANES)
    waves = Waves(0, s, v, np.zeros(1, np.bool_), np.zeros((1, 2), np.int64))
    machine.run(waves)
    loaded = as_lanes(waves.v[D : D + size // 4, 0])
    rows = 8 * size // bits
    for group in range(4):
        tile = int.from_bytes(contents[16 * size * group : 16 * size * (group + 1)].tobytes(), "little")
        for lane in range(16):
            column = [tile >> bits * (16 * row + lane) & (1 << bits) - 1 for row in range(rows)]
            assert loaded[16 * group + lane] == sum(one << bits * row for row, one in enumerate(column))
