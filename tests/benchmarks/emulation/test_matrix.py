"""Matrix instructions against scalar loops: where AMD's documents say that each value lies, one value at a time.

matrix.npz has the answers of these loops, which share nothing with the executor; test_matrix.py of commit bb111f60 has
them, and drew its operands from numpy's Generator where this one takes RandomState.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

import numpy as np
import pytest

from benchmarks.emulation.operands import Unknown
from benchmarks.emulation.waves import LANES
from tests.benchmarks.emulation.instructions import machine_of, one_wave

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
CODES = {"FP8": 0, "BF8": 1, "FP6": 2, "BF6": 3, "FP4": 4}
A, B, C, D = 10, 20, 64, 128


def instructions():
    """Names of all V_MFMA of tinygrad's tables; F8F6F4 with the formats of A and B."""
    from tinygrad.runtime.autogen.amd.cdna import ins

    names = [op.name for op in ins.VOP3POp if NAME.match(op.name) and "F8F6F4" not in op.name]
    mixed = [(left, right) for left in CODES for right in CODES]
    return names + [f"V_MFMA_F32_{shape}_F8F6F4 {a} {b}" for shape in ("16X16X128", "32X32X64") for a, b in mixed]


def registers(random, kind, count):
    """Random values [registers, 64]: of floats of 16 bits and more around 1, of others all codes."""
    if kind in ("F32", "XF32"):
        return random.standard_normal((count, LANES)).astype(np.float32).view(np.uint32)
    if kind == "F64":
        return np.ascontiguousarray(random.standard_normal((LANES, count // 2))).view(np.uint32).T.copy()
    if kind in ("F16", "BF16"):
        wide = random.standard_normal((2, count, LANES)).astype(np.float32)
        halves = wide.astype(np.float16).view(np.uint16) if kind == "F16" else wide.view(np.uint32) >> 16
        return halves[0].astype(np.uint32) | halves[1].astype(np.uint32) << 16
    return random.randint(0, 1 << 32, (count, LANES), np.uint32)


def as_lanes(words):
    """Registers [registers, 64] of each lane as one number."""
    return [sum(int(word) << 32 * index for index, word in enumerate(words[:, lane])) for lane in range(LANES)]


@functools.cache
def run(name, arch, cbsz=0, abid=0):
    """Vector registers [512, 64] after one instruction."""
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
    random = np.random.RandomState(list(name.encode()))  # whose numbers no version of numpy changes
    waves = one_wave()
    v = waves.v
    v[1:3, 0] = random.randint(120, 135, (2, LANES))
    v[A : A + counts[0], 0], v[B : B + counts[1], 0] = (
        registers(random, kind, count) for kind, count in zip(kinds, counts, strict=True)
    )
    v[C : C + results, 0] = registers(random, found["out"], results)
    machine_of(inst, arch).run(waves)
    return waves.v[:, 0]


@functools.cache
def answers():
    """By instruction, every fifteenth element of the result: its place (64 * register + lane; of fp64, of pairs of
    registers), its value, and the sum of the sizes of all that is added up for it."""
    with np.load(Path(__file__).with_name("matrix.npz")) as written:
        ends = np.cumsum(written["lengths"])[:-1]
        columns = (np.split(written[name], ends) for name in ("places", "values", "sizes"))
        return dict(zip(written["cases"].tolist(), zip(*columns, strict=True), strict=True))


def check(name, arch, cbsz=0, abid=0):
    places, wanted, sizes = answers()[f"{arch} {name}" + (f" cbsz={cbsz} abid={abid}" if cbsz else "")]
    out = name.removeprefix("V_MFMA_")[:3]
    after = run(name, arch, cbsz, abid)[D:]
    if out == "F64":
        after = np.ascontiguousarray(after[:16].reshape(8, 2, LANES).transpose(0, 2, 1)).view(np.float64)
    got = (
        after.view({"F32": np.float32, "I32": np.int32, "F64": np.float64}[out]).reshape(-1)[places].astype(np.float64)
    )
    with np.errstate(invalid="ignore"):
        apart = np.abs(got - wanted) % (2**32 if out == "I32" else np.inf)
    bound = {"F32": sizes * 2**-23, "I32": 0, "F64": sizes * 2**-50}[out]
    right = (apart <= bound) | (got == wanted) | np.isnan(got) & np.isnan(wanted)
    assert right.all(), (name, places[~right][:3], got[~right][:3], wanted[~right][:3])


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
    machine = machine_of(inst, "gfx942")
    with pytest.raises(Unknown, match="SMFMAC"):
        machine._decoded(0)


@pytest.mark.parametrize(("name", "bits"), [("B64_TR_B16", 16), ("B64_TR_B8", 8), ("B64_TR_B4", 4), ("B96_TR_B6", 6)])
def test_a_transposing_load_gives_each_of_16_lanes_a_column(name, bits):
    from tinygrad.renderer.amd.dsl import Reg
    from tinygrad.runtime.autogen.amd.cdna import ins

    size = 12 if bits == 6 else 8
    inst = ins.DS(op=ins.DSOp[f"DS_READ_{name}"], vdst=Reg(256 + D, size // 4), addr=Reg(256 + A, 1))
    machine = machine_of(inst, "gfx950", lds_bytes=LANES * size)
    contents = np.random.default_rng(bits).integers(0, 256, LANES * size).astype(np.uint8)
    machine.accesses.lds[: LANES * size] = contents
    waves = one_wave()
    waves.v[A, 0] = size * np.arange(LANES)
    machine.run(waves)
    loaded = as_lanes(waves.v[D : D + size // 4, 0])
    rows = 8 * size // bits
    for group in range(4):
        tile = int.from_bytes(contents[16 * size * group : 16 * size * (group + 1)].tobytes(), "little")
        for lane in range(16):
            column = [tile >> bits * (16 * row + lane) & (1 << bits) - 1 for row in range(rows)]
            assert loaded[16 * group + lane] == sum(one << bits * row for row, one in enumerate(column))
