"""The streamed MoE kernel: its layout lane by lane, its bits in the interpreter, its PTX against the emulation's steps,
and what is refused."""

from __future__ import annotations

import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.moe_gemm2_mxfp4 import config, formats, moe_gemm2_mxfp4
from tests.kernels.ranks import run_alone
from tests.kernels.test_moe_gemm2_mxfp4 import check_kernels, faults_are_seen, inputs_of, slow_spread, small

# ---- the layout ------------------------------------------------------------------------------------------------------


def slow_words(packed, blocks):
    """Words of one tile by lane, from the words' definition: {(lane, block): (first column's, second column's)}."""
    codes = formats.unpack(packed)
    found = {}
    for lane in range(32):
        g, t = divmod(lane, 4)
        for block in range(blocks):
            at = 32 * block + 8 * t
            found[lane, block] = [[int(code) for code in codes[2 * g + side, at : at + 8]] for side in (0, 1)]
    return found


@given(seed=st.integers(0, 10**6), depth=st.sampled_from([32, 160, 256, 288, 512]))
@settings(max_examples=10)
def test_every_lane_finds_its_codes_and_scales(seed, depth):
    generator = torch.Generator().manual_seed(seed)
    packed = torch.randint(0, 256, (32, depth // 2), generator=generator).to(torch.uint8)
    scales = torch.randint(0, 255, (32, depth // 32), generator=generator).to(torch.uint8)
    top = int(scales.max())
    blocks = formats.streamed_depth(depth) // 32
    tile = [word & 0xFFFFFFFF for word in formats.stream(packed[None], scales[None], top)[0, 1].tolist()]
    assert len(tile) == 68 * blocks
    filled = torch.nn.functional.pad(packed[16:], (0, 16 * blocks - depth // 2))
    for (lane, block), (first, second) in slow_words(filled, blocks).items():
        at = block // 2 * 128 + lane * 4 + block % 2 * 2
        halves = [half for pair in slow_spread(tile[at], tile[at + 1]) for half in (pair & 0xFFFF, pair >> 16)]
        assert halves == [(code >> 3) << 15 | (code & 7) << 6 for code in first + second]
    for column in range(16):
        for block in range(depth // 32):
            wanted = max(int(scales[16 + column, block]) + formats.HIGHEST_FIELD - top, 0)
            assert slow_field(tile[64 * blocks :], column, block, blocks) == wanted


def slow_field(words, column, block, blocks):
    """The field of a block of 32 codes of a column, as the kernel's lanes find it."""
    g, side = divmod(column, 2)
    word = words[side * 32 + g * 4 + block // 4] if blocks == 16 else words[g * 4 + side * 2 + block // 4]
    turn = 8 * (block % 4)
    return (word << turn | word >> (32 - turn)) >> 23 & 0xFF


def test_columns_are_filled_up_to_whole_units():
    packed = torch.full((80, 32), 0x77, dtype=torch.uint8)
    scales = torch.full((80, 2), 127, dtype=torch.uint8)
    [words] = formats.stream(packed[None], scales[None], 127, columns=32)
    assert words.shape == (6, 68 * 8)
    assert not words[5].any()
    assert words[4].any()


def test_a_scale_that_is_nan_and_a_depth_that_does_not_fit_are_named():
    packed, scales = torch.zeros(1, 16, 16, dtype=torch.uint8), torch.full((1, 16, 1), 255, dtype=torch.uint8)
    with pytest.raises(ValueError, match="255, the code of NaN"):
        formats.stream_all(packed, scales)
    with pytest.raises(ValueError, match="K is 544; the layout 'streamed' holds at most 512; use 'recoded'"):
        formats.streamed_depth(544)


# ---- the kernel, bit by bit, in the interpreter ----------------------------------------------------------------------

KNOBS = {"layout": "streamed", "rows": 8, "block_n": 16, "num_warps": 1, "num_stages": 2}


def interpreted_streamed():
    check_kernels(small(M=5, N=48, E=3, topk=2), **KNOBS, share=50, tiles=2)  # three experts, a quarter of K in use
    wide = {**KNOBS, "rows": 16, "block_n": 32}
    check_kernels(small(M=20, E=1, topk=1, BM=32, N=40, K=96), **wide, share=0, tiles=1)  # two parts, tail in N
    check_kernels(small(M=20, E=1, topk=1, BM=32, N=32), atomic=False, **KNOBS, share=100)  # three parts of four
    check_kernels(small(M=1, E=1, topk=1, N=16, K=288), atomic=False, **wide)  # idle programs


def interpreted_scales():
    """Scales at the ends of e8m0, and rows whose scales differ: each is relative to the largest of its rows."""
    case = small(M=2, K=32, N=16, topk=1, E=1)
    for rows, columns in ((0, 200), (230, 20), (20, 240)):
        x = inputs_of(case)
        x["a_scale"].fill_(rows)
        x["w_scale"].fill_(columns)
        check_kernels(case, x, atomic=False, **KNOBS)
    case = small(M=4, K=64, N=16, topk=1, E=1)
    x = inputs_of(case)
    x["a_scale"][:4] = torch.tensor([[127, 120], [60, 61], [130, 100], [127, 127]], dtype=torch.uint8)
    x["a"][2, 16:] = 0
    check_kernels(case, x, atomic=False, **KNOBS)


def interpreted_fault():
    faults_are_seen(small(M=7, N=16, E=3, topk=2), **KNOBS)


@pytest.mark.nightly
@pytest.mark.parametrize("function", ["interpreted_streamed", "interpreted_scales", "interpreted_fault"])
def test_the_streamed_kernel_gives_the_bits_of_the_reference(function):
    run_alone("tests.kernels.test_moe_streamed", function, TRITON_INTERPRET="1")


# ---- the PTX, which no interpreter runs ------------------------------------------------------------------------------


def registers_after(text, values):
    """The 32-bit registers after the integer instructions of `text`, from the values of its operands ($4, $5)."""
    found = dict(values)

    def value(name):
        return found[name] if name in found else int(name, 0)

    for line in text.splitlines():
        name, _, rest = line.strip().rstrip(";").partition(" ")
        args = [arg.strip() for arg in rest.split(",")]
        if name == "lop3.b32":
            a, b, c, table = (value(arg) for arg in args[1:])
            bits = (table >> ((a >> i & 1) * 4 + (b >> i & 1) * 2 + (c >> i & 1)) & 1 for i in range(32))
            found[args[0]] = sum(bit << i for i, bit in enumerate(bits))
        elif name == "and.b32":
            found[args[0]] = value(args[1]) & value(args[2])
        elif name == "mul.lo.u32":
            found[args[0]] = value(args[1]) * value(args[2]) & 0xFFFFFFFF
        elif name == "shf.l.wrap.b32":
            assert args[1] == args[2]
            word, by = value(args[1]), value(args[3])
            found[args[0]] = (word << by | word >> (32 - by)) & 0xFFFFFFFF
    return found


@given(first=st.integers(0, 2**32 - 1), second=st.integers(0, 2**32 - 1))
@settings(max_examples=50)
def test_the_ptx_decodes_pairs_as_the_layout_says(first, second):
    from kernels.moe_gemm2_mxfp4 import streamed_asm

    found = registers_after(streamed_asm._multiply(1), {"$4": first, "$5": second})
    wanted = slow_spread(first, second)
    # left operands: rows g and g + 8 in turn, pairs 0 to 3
    assert [found[f"a{i}"] for i in range(8)] == [wanted[side * 4 + pair] for pair in range(4) for side in (0, 1)]


@pytest.mark.parametrize("groups", [1, 2])
def test_the_ptx_multiplies_each_pair_with_its_own(groups):
    """By hand: results $0..., then two words, then four pairs of each group; pairs 0, 1 start a sum, 2, 3 go on."""
    from kernels.moe_gemm2_mxfp4 import streamed_asm

    text = streamed_asm._multiply(groups)
    found = re.findall(r"f32 \{(.*?)\}, \{(.*?)\}, \{(.*?)\}, \{?(.*?)\}?;", text)
    wanted = []
    for left, at in (("a0, a1, a2, a3", 0), ("a4, a5, a6, a7", 2)):
        for group in range(groups):
            out = ", ".join(f"${4 * group + i}" for i in range(4))
            first = 4 * groups + 2 + 4 * group + at
            wanted.append((out, left, f"${first}, ${first + 1}", out if at else "z, z, z, z"))
    assert found == wanted


# ---- knobs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arch", "changes", "message"),
    [
        ("gfx942", {}, "layout 'streamed' is in PTX and gfx942 is AMD's; allowed are recoded and plain"),
        ("sm_90", {"rows": 32}, "rows is 32 and num_warps 1; layout 'streamed' takes 8 or 16 rows and 1 warp"),
        ("sm_90", {"num_stages": 6, "tiles": 2}, "num_stages is 6 and tiles 2; .* less than 3 \\* tiles"),
        ("sm_90", {"num_stages": 12}, "12 stages need 52320 bytes of shared memory; sm_90 has 49152"),
    ],
)
def test_knobs_that_the_layout_cannot_have_are_named(arch, changes, message):
    case = moe_gemm2_mxfp4.case("kimi_m16_bm32")
    knobs = {**config.config(case, "sm_90"), **changes}
    with pytest.raises(ValueError, match=message):
        config.check_fits(case, knobs, arch)


def test_what_a_deep_case_takes_instead():
    deep = small(K=1024)
    assert config.config(deep, "sm_90")["layout"] == "recoded"
    assert config.config(small(K=512), "sm_90")["layout"] == "streamed"
    with pytest.raises(ValueError, match="K is 1024; the layout 'streamed' holds at most 512"):
        config.check_fits(deep, {**config.config(small(K=512), "sm_90")}, "sm_90")
