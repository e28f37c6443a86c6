"""MoE gemm2 in MXFP4: the format, the sorted order, both kernels bit by bit, and what is refused."""

from __future__ import annotations

import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.moe_gemm2_mxfp4 import config, formats, launch, moe_gemm2_mxfp4, sorting, vendors
from kernels.numerics import compare
from kernels.spec import Case, Place, Tolerance
from tests.kernels.ranks import run_alone

CPU, EXACT = Place(), Tolerance()


def small(**changes):
    dims = {"M": 7, "N": 96, "K": 64, "E": 6, "topk": 3, "BM": 16, "distribution": "exact", **changes}
    return Case("small", dtype="mxfp4", **dims).at(CPU)


def inputs_of(case, seed=0):
    return moe_gemm2_mxfp4.function("inputs")(case, seed)


# ---- the format ----------------------------------------------------------------------------------------------------


def slow_value(code, scale):
    """The value of one code, from the definition of e2m1 and e8m0."""
    sign, exponent, mantissa = code >> 3, code >> 1 & 3, code & 1
    size = mantissa * 0.5 if exponent == 0 else 2.0 ** (exponent - 1) * (1 + mantissa / 2)
    return (-1) ** sign * size * 2.0 ** (scale - 127)


def test_every_code_has_the_value_of_the_definition():
    codes = torch.arange(16, dtype=torch.uint8).repeat(2)
    for scale in (0, 1, 100, 127, 130, 250):
        scales = torch.tensor([scale], dtype=torch.uint8)
        values = formats.dequantise(formats.pack(codes), scales, formats.byte_values(torch.float64, "cpu"))
        assert values.tolist() == [slow_value(int(c), scale) for c in codes]


def test_the_even_index_is_the_low_nibble():
    assert formats.pack(torch.tensor([3, 12], dtype=torch.uint8)).tolist() == [3 | 12 << 4]
    assert formats.unpack(torch.tensor([0xC3], dtype=torch.uint8)).tolist() == [3, 12]


def test_quantising_takes_the_nearest_value_and_ties_to_the_even_code():
    ties = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.0] * 4)
    packed, scales = formats.quantise(ties)
    assert scales.tolist() == [127]
    assert formats.dequantise(packed, scales)[:8].tolist() == [0.0, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0, 6.0]


@given(seed=st.integers(0, 10**6), power=st.integers(-100, 100))
@settings(max_examples=30)
def test_quantising_keeps_within_half_a_step(seed, power):
    values = torch.randn(4, 64, generator=torch.Generator().manual_seed(seed)) * 2.0**power
    packed, scales = formats.quantise(values)
    back = formats.dequantise(packed, scales)
    step = torch.exp2(scales.float() - 127).repeat_interleave(32, -1)
    assert bool(((back - values).abs() <= step).all())  # codes 4 and 6 are two steps apart
    assert bool((values.abs() <= 6 * step).all())  # nothing saturates
    again = formats.quantise(back)
    assert torch.equal(formats.dequantise(*again), back)


def rotated(word, by):
    return (word << by | word >> 32 - by) & 0x81C081C0


def slow_spread(first, second):
    """What the kernel does with a couple of re-coded words: eight words of two bf16 bit patterns."""
    both = first & 0x06030603 | second & 0xF9FCF9FC
    return [
        first & 0x81C081C0,
        rotated(first, 4),
        rotated(first, 10),
        rotated(both, 8),
        rotated(second, 2),
        rotated(second, 6),
        rotated(second, 12),
        rotated(both, 14),
    ]


@given(codes=st.lists(st.integers(0, 15), min_size=64, max_size=64))
def test_recoded_words_hold_the_codes_as_bf16_bits(codes):
    packed = formats.pack(torch.tensor(codes, dtype=torch.uint8))
    words = [word & 0xFFFFFFFF for word in formats.recode(packed).tolist()]
    places = [(code >> 3) << 15 | (code & 7) << 6 for code in codes]
    for j in range(4):
        pairs = slow_spread(words[j], words[j + 4])
        halves = [half for pair in pairs for half in (pair & 0xFFFF, pair >> 16)]
        assert halves == places[8 * j : 8 * j + 8] + places[8 * j + 32 : 8 * j + 40]


def test_rows_that_end_in_half_a_couple_are_filled_with_zeros():
    codes = torch.arange(96, dtype=torch.uint8) % 16
    filled = torch.cat((codes, torch.zeros(32, dtype=torch.uint8)))
    assert torch.equal(formats.recode(formats.pack(codes)), formats.recode(formats.pack(filled)))
    fields, _ = formats.fields(torch.tensor([[100, 101, 102]], dtype=torch.uint8))
    assert fields.tolist() == [[226, 227, 228, 0]]


def test_large_scales_are_moved_into_the_factor():
    fields, factor = formats.fields(torch.tensor([0, 100, 128, 1], dtype=torch.uint8))
    assert (fields.tolist(), factor) == ([126, 226, 254, 127], 1.0)
    fields, factor = formats.fields(torch.tensor([0, 100, 138, 1], dtype=torch.uint8))
    assert (fields.tolist(), factor) == ([116, 216, 254, 117], 1024.0)
    with pytest.raises(ValueError, match="255, the code of NaN"):
        formats.fields(torch.tensor([255], dtype=torch.uint8))


# ---- the sorted order ----------------------------------------------------------------------------------------------


@given(
    tokens=st.integers(1, 40),
    experts=st.integers(1, 12),
    topk=st.integers(1, 5),
    block=st.sampled_from([16, 32]),
    seed=st.integers(0, 999),
)
@settings(max_examples=60)
def test_every_pair_is_sorted_once_into_a_block_of_its_expert(tokens, experts, topk, block, seed):
    generator = torch.Generator().manual_seed(seed)
    topk = min(topk, experts)
    choice = torch.rand((tokens, experts), generator=generator).topk(topk, -1).indices
    weights = torch.rand((tokens, topk), generator=generator)
    order = sorting.sort(choice, weights, experts, block)
    used = int(order.valid[0])
    assert used % block == 0
    assert order.ids.numel() == tokens * topk + experts * block - topk >= used
    assert bool((order.experts[used // block :] == -1).all())
    seen = set()
    for row, packed in enumerate(order.ids.tolist()):
        token, slot = packed & 0xFFFFFF, packed >> 24
        if token == tokens:
            assert slot == topk
            continue
        assert row < used
        assert int(order.experts[row // block]) == int(choice[token, slot])
        assert float(order.weights[row]) == float(weights[token, slot])
        seen.add((token, slot))
    assert len(seen) == tokens * topk


def test_routing_is_a_property_of_the_case():
    case = moe_gemm2_mxfp4.case("kimi_m64_bm16")
    choice = sorting.choice(case)
    assert bool((choice[:, -1] == 384).all())
    assert all(len(set(row)) == 9 for row in choice.tolist())
    expected = 384 * (1 - (1 - 8 / 384) ** 64) + 1
    assert sorting.active_experts(case) == pytest.approx(expected, rel=0.05)
    packed = sorting.active_experts(case) * 7168 * (256 + 16)
    assert moe_gemm2_mxfp4.function("cost")(case).hbm_bytes == packed + 64 * 9 * (256 + 16) + 64 * 7168 * 2


# ---- the reference, and what a CPU can run -------------------------------------------------------------------------


def test_the_reference_agrees_with_a_loop_over_pairs():
    case = small(M=3, N=32, topk=2, E=4, distribution="normal")
    x = inputs_of(case)
    out = torch.zeros(3, 32)
    for row in range(int(x["valid"][0])):
        token = int(x["ids"][row]) & 0xFFFFFF
        if token < 3:
            expert = int(x["experts"][row // 16])
            a = formats.dequantise(x["a"][row], x["a_scale"][row])
            w = formats.dequantise(x["w"][expert], x["w_scale"][expert])
            out[token] += float(x["weights"][row]) * (w @ a)
    expected = moe_gemm2_mxfp4.function("reference")(case, x)
    assert compare(expected, out, Tolerance(norm=3e-3, peak=2e-2)).ok


@pytest.mark.parametrize("changes", [{"M": 5, "E": 40, "topk": 3}, {"M": 40, "E": 3, "topk": 2}])
def test_the_baseline_is_right_with_few_blocks_and_with_many(changes):
    case = small(distribution="normal", **changes)
    x = inputs_of(case)
    call = vendors.dequantise_and_multiply(case, x)
    call().fill_(float("nan"))
    assert compare(call(), moe_gemm2_mxfp4.function("reference")(case, x), Tolerance(norm=1e-2, peak=0.1)).ok


# ---- the kernels, bit by bit, in the interpreter -------------------------------------------------------------------


def check_kernels(case, x=None, atomic=True, **changes):
    """Both epilogues must give the bits of the reference; the data has sums that fp32 holds exactly in any order."""
    x = x or inputs_of(case)
    knobs = {**config.config(case, "cpu"), **changes}
    expected = moe_gemm2_mxfp4.function("reference")(case, x).float()
    for build in (launch.reduce_call, launch.atomic_call)[: 1 + atomic]:
        call = build(case, x, knobs, torch.float32)
        call().fill_(float("nan"))
        verdict = compare(call().bfloat16().float() + 0, expected + 0, EXACT)
        assert verdict.ok, (build.__name__, case, knobs, verdict.why)


def interpreted_recoded():
    check_kernels(small())
    check_kernels(small(N=80, K=96), block_n=64, block_k=128, tiles=2)  # tails in N and K
    check_kernels(small(K=160), block_k=128, tiles=2)  # several steps, the last half empty
    check_kernels(small(M=40, E=2, topk=2, BM=32), block_n=32, tiles=3)  # several blocks of one expert
    check_kernels(small(M=1, E=1, topk=1), programs_per_cu=2)  # one pair, idle programs
    for rows in (16, 32):  # parts of blocks, some empty
        check_kernels(small(M=20, E=3, topk=2, BM=32), rows=rows, few=8, tiles=2, programs_per_cu=3)


def interpreted_plain():
    check_kernels(small(), layout="plain", block_k=64, block_n=32, tiles=3)
    check_kernels(small(N=80, K=96), atomic=False, layout="plain", block_k=64, block_n=64, tiles=2, non_temporal=True)


def interpreted_scales():
    """Scales at the ends of e8m0: 2^-127 for activations, weights so large that the factor takes over."""
    case = small(M=2, K=32, topk=1, E=2)
    x = inputs_of(case)
    x["a_scale"].fill_(0)
    x["w_scale"].fill_(200)
    check_kernels(case, x, atomic=False)
    x["a_scale"].fill_(230)
    x["w_scale"].fill_(20)
    check_kernels(case, x, atomic=False)


def interpreted_fault():
    faults_are_seen(small())


def faults_are_seen(case, **knobs):
    """One wrong nibble, one wrong scale or one wrong owner of a block must change the output."""
    right = inputs_of(case)
    expected = moe_gemm2_mxfp4.function("reference")(case, right).float()
    for name, change in (("a", 0x10), ("w", 0x10), ("w_scale", 1), ("a_scale", 1), ("experts", 1)):
        x = {key: value.clone() for key, value in right.items()}
        x[name].view(-1)[0] ^= change
        got = launch.reduce_call(case, x, {**config.config(case, "cpu"), **knobs}, torch.float32)()
        assert not compare(got.bfloat16().float() + 0, expected + 0, EXACT).ok, name


def interpreted_halves():
    """The values that AMD's bf16 matrix units get are cut, not rounded: they must be the right ones to the last bit."""
    from tests.kernels.interpreted import decoded

    words = torch.arange(256, dtype=torch.int32)
    both = torch.tensor(
        [[slow_value(code & 15, 127), slow_value(code >> 4, 127)] for code in range(256)], dtype=torch.float64
    ).flatten()
    for scale in (0, 1, 2, 100, 126, 127, 128, 200, 250):
        got = torch.zeros(2, 512, dtype=torch.int16)
        decoded[1,](words, torch.full((256,), scale, dtype=torch.uint8), got[0], got[1], 256)
        for row, power in ((0, scale - 253), (1, scale - 127)):  # a weight's field e stands for the scale 2^(e - 253)
            expected = (both * 2.0**power).bfloat16()
            fits = both.abs() * 2.0**power >= 2.0**-133  # below, bf16 has no such number, and what is cut is lost
            assert torch.equal(got[row].view(torch.bfloat16)[fits], expected[fits]), (scale, row)
            assert fits.any() or power < -133


@pytest.mark.nightly
@pytest.mark.parametrize(
    "function",
    ["interpreted_halves", "interpreted_recoded", "interpreted_plain", "interpreted_scales", "interpreted_fault"],
)
def test_kernels_give_the_bits_of_the_reference(function):
    run_alone("tests.kernels.test_moe_gemm2_mxfp4", function, TRITON_INTERPRET="1")


# ---- bad input -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [0, 100])
def test_a_depth_that_is_no_multiple_of_32_is_named(depth):
    with pytest.raises(ValueError, match=f"K is {depth}; MXFP4 needs a positive multiple of 32"):
        formats.check_depth(depth)
    with pytest.raises(ValueError, match=f"K is {depth}"):
        launch.check(small(K=depth), {})


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("w", lambda w: w[:, :, :16], r"w is torch.uint8 \(6, 96, 16\); it must be torch.uint8 \(6, 96, 32\)"),
        ("ids", lambda i: i[:-1], "ids is torch.int32"),
        ("a", lambda a: a.T.contiguous().T, "contiguous"),
    ],
)
def test_operands_that_do_not_fit_are_named(name, change, message):
    case = small()
    x = inputs_of(case)
    with pytest.raises(ValueError, match=message):
        launch.check(case, {**x, name: change(x[name])})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"block_k": 64}, "block_k is 64; it must be a power of two, at least 128"),
        ({"rows": 24}, "rows is 24; it must be a power of two, at least 16"),
        ({"layout": "odd"}, "layout 'odd' is not one of recoded, plain"),
        ({"num_stages": 80}, "80 stages need [0-9]+ bytes of shared memory; sm_90 has 232448"),
    ],
)
def test_knobs_that_do_not_fit_are_named_before_a_launch(changes, message):
    case = moe_gemm2_mxfp4.case("kimi_m16384_bm64")
    with pytest.raises(ValueError, match=message):
        config.check_fits(case, {**config.config(case, "sm_90"), **changes}, "sm_90")


# The streamed kernel: its layout lane by lane, its bits in the interpreter, and its PTX.


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


def streamed_scales():
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


def streamed_fault():
    faults_are_seen(small(M=7, N=16, E=3, topk=2), **KNOBS)


@pytest.mark.nightly
@pytest.mark.parametrize("function", ["interpreted_streamed", "streamed_scales", "streamed_fault"])
def test_the_streamed_kernel_gives_the_bits_of_the_reference(function):
    run_alone("tests.kernels.test_moe_gemm2_mxfp4", function, TRITON_INTERPRET="1")


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
