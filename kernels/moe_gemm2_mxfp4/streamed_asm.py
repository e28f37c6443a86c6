"""What the streamed kernel does in PTX, behind Triton functions, and the same in plain Triton for the interpreter.

Every tensor has 32 elements, one for each lane of the only warp.
"""

from __future__ import annotations

import triton
import triton.language as tl

# ---- the ring, in PTX: results first, then operands ------------------------------------------------------------------


@triton.constexpr_function
def _make_ring(stages, size):
    """$0, $1: where `stages` tiles of `size` bytes and their barriers lie in shared memory; $2: the lane."""
    text = "{\n.reg .pred first;\nsetp.eq.s32 first, $2, 0;\n"
    text += f".shared .align 128 .b8 ring[{stages * size}];\n.shared .align 8 .b64 full[{stages}];\n"
    text += "mov.u32 $0, ring;\nmov.u32 $1, full;\n"
    for i in range(stages):
        text += f"@first mbarrier.init.shared::cta.b64 [$1+{8 * i}], 1;\n"
    return text + "@first fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;\nbar.warp.sync -1;\n}"


@triton.constexpr_function
def _copy_tile(size):
    """Bring `size` bytes from $3 to $1 and complete barrier $2, where $4 is not 0; the lanes have left the place."""
    text = "{\n.reg .pred on;\n.reg .b64 policy;\nbar.warp.sync -1;\nsetp.ne.s32 on, $4, 0;\n"
    text += "createpolicy.fractional.L2::evict_first.b64 policy, 1.0;\n"
    text += f"@on mbarrier.arrive.expect_tx.shared::cta.b64 _, [$2], {size};\n"
    text += "@on cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
    return text + f"[$1], [$3], {size}, [$2], policy;\nmov.b32 $0, 0;\n}}"


_WAIT = tl.constexpr("""{
.reg .pred done;
AGAIN:
mbarrier.try_wait.parity.shared::cta.b64 done, [$1], $2;
@!done bra AGAIN;
mov.b32 $0, 0;
}""")
"""Wait for the phase of parity $2 of barrier $1."""

_LOAD_WORD = tl.constexpr("""{
.reg .pred on;
setp.ne.s32 on, $2, 0;
mov.b32 $0, 0;
@on ld.global.b32 $0, [$1];
}""")
_LOAD_BYTE = tl.constexpr(_LOAD_WORD.value.replace("b32 $0, [", "u8 $0, ["))

_DRAW = tl.constexpr("""{
.reg .pred on;
setp.ne.s32 on, $2, 0;
mov.b32 $0, 0;
@on atom.relaxed.gpu.global.add.u32 $0, [$1], 1;
}""")

_READ = tl.constexpr("ld.shared.v4.b32 {$0, $1, $2, $3}, [$4];")

# ---- one block of 32 codes, in PTX -----------------------------------------------------------------------------------


def _in_place(i: int, word: str, by: int) -> list[str]:
    """PTX: register a`i` is `word`, rotated to the left, under the mask of a pair; up to 6 bits, none wraps around."""
    if by == 0:
        return [f"and.b32 a{i}, {word}, 0x81C081C0;"]
    if by <= 6:
        return [f"mul.lo.u32 r{i}, {word}, {1 << by};", f"and.b32 a{i}, r{i}, 0x81C081C0;"]
    return [f"shf.l.wrap.b32 r{i}, {word}, {word}, {by};", f"and.b32 a{i}, r{i}, 0x81C081C0;"]


def _decode(first: str, second: str) -> str:
    """PTX: registers a0 to a7 of the left operands, pairs 0 to 3 of both words in turn (formats.recode)."""
    turns = [(first, 0), (second, 2), (first, 4), (second, 6), (first, 10), (second, 12), ("both", 8), ("both", 14)]
    lines = [".reg .b32 a<8>, r<8>, both;", f"lop3.b32 both, {first}, {second}, 0x06030603, 0xe4;"]
    for i, (word, by) in enumerate(turns):
        lines += _in_place(i, word, by)
    return "\n".join(lines)


def _multiply(groups: int) -> str:
    """PTX: $0 to $3 are the results of the first 8 rows, and so on; then come the words of the first and of the second
    column, then 4 pairs of codes of each group's rows.  One matrix instruction for pairs 0 and 1, one for 2 and 3."""
    mma = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
    words = 4 * groups
    lines = ["{", _decode(f"${words}", f"${words + 1}"), ".reg .f32 z;", "mov.f32 z, 0f00000000;"]
    for half, left in ((0, "{a0, a1, a2, a3}"), (1, "{a4, a5, a6, a7}")):
        for group in range(groups):
            out = "{" + ", ".join(f"${4 * group + i}" for i in range(4)) + "}"
            pair = words + 2 + 4 * group + 2 * half
            lines.append(f"{mma} {out}, {left}, {{${pair}, ${pair + 1}}}, {out if half else '{z, z, z, z}'};")
    return "\n".join([*lines, "}"])


_ONE_GROUP, _TWO_GROUPS = tl.constexpr(_multiply(1)), tl.constexpr(_multiply(2))
_ONE_GROUP_TYPES = tl.constexpr(",".join(["=&f"] * 4 + ["r"] * 6))
_TWO_GROUPS_TYPES = tl.constexpr(",".join(["=&f"] * 8 + ["r"] * 10))


# ---- the same in plain Triton, for the interpreter ------------------------------------------------------------------


@triton.jit
def half(pairs, PLACE: tl.constexpr):
    """fp32 values of bf16 bits: the low half if PLACE is 0, else the high one."""
    if PLACE == 0:
        bits = pairs << 16
    else:
        bits = pairs & -65536
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def _rotated(words, BY: tl.constexpr):
    bits = words.to(tl.uint32, bitcast=True)
    if BY > 0:
        bits = (bits << BY) | (bits >> (32 - BY))
    return (bits & 0x81C081C0).to(tl.int32, bitcast=True)


@triton.jit
def _emulated_sum(left, right, sums):
    """sums [8 columns, 8 rows] plus products of bf16 bits over the four lanes of each; left is 2^126 times its bits."""
    for place in tl.static_range(2):
        x = (half(left, place) * 8.507059173023462e37).reshape(8, 1, 4)
        sums += tl.sum(x * half(right, place).reshape(1, 8, 4), 2)
    return sums


@triton.jit
def _emulated(first, second, rights, AT: tl.constexpr):
    """What _multiply does for one group."""
    both = (first & 0x06030603) | (second & ~0x06030603)
    upper = _emulated_sum(_rotated(first, 0), rights[AT], tl.zeros((8, 8), tl.float32))
    upper = _emulated_sum(_rotated(first, 4), rights[AT + 1], upper)
    upper = _emulated_sum(_rotated(first, 10), rights[AT + 2], upper)
    upper = _emulated_sum(_rotated(both, 8), rights[AT + 3], upper)
    lower = _emulated_sum(_rotated(second, 2), rights[AT], tl.zeros((8, 8), tl.float32))
    lower = _emulated_sum(_rotated(second, 6), rights[AT + 1], lower)
    lower = _emulated_sum(_rotated(second, 12), rights[AT + 2], lower)
    lower = _emulated_sum(_rotated(both, 14), rights[AT + 3], lower)
    x, y = (upper * 1.1754943508222875e-38).reshape(8, 4, 2).split()
    u, v = (lower * 1.1754943508222875e-38).reshape(8, 4, 2).split()
    return x.reshape(32), y.reshape(32), u.reshape(32), v.reshape(32)


# ---- what the kernel calls: PTX, or plain Triton where not ASM -----------------------------------------------------


@triton.jit
def four(place, ASM: tl.constexpr):
    """Four words of each lane: from shared memory, or, in the interpreter, from a tensor."""
    found = ()
    if ASM:
        found = tl.inline_asm_elementwise(
            _READ, "=r,=r,=r,=r,r", [place], dtype=(tl.int32, tl.int32, tl.int32, tl.int32), is_pure=False, pack=1
        )
    else:
        for i in tl.static_range(4):
            found = found + (tl.load(place + i),)
    return found


@triton.jit
def products(first, second, rights, BLOCK: tl.constexpr, BLOCKS: tl.constexpr, GROUPS: tl.constexpr, ASM: tl.constexpr):
    """One block of 32 codes, without its weights' scale: for each group of 8 rows, rows 2 t and 2 t + 1 of the first
    column, then of the second one."""
    A: tl.constexpr = BLOCK * 4
    B: tl.constexpr = ((GROUPS - 1) * BLOCKS + BLOCK) * 4
    found = ()
    if not ASM:
        for group in tl.static_range(GROUPS):
            found = found + _emulated(first, second, rights, (group * BLOCKS + BLOCK) * 4)
    elif GROUPS == 1:
        found = tl.inline_asm_elementwise(
            _ONE_GROUP, _ONE_GROUP_TYPES, [first, second, rights[A], rights[A + 1], rights[A + 2], rights[A + 3]],
            dtype=(tl.float32, tl.float32, tl.float32, tl.float32), is_pure=True, pack=1,
        )  # fmt: skip
    else:
        found = tl.inline_asm_elementwise(
            _TWO_GROUPS, _TWO_GROUPS_TYPES,
            [first, second, rights[A], rights[A + 1], rights[A + 2], rights[A + 3],
             rights[B], rights[B + 1], rights[B + 2], rights[B + 3]],
            dtype=(tl.float32, tl.float32, tl.float32, tl.float32, tl.float32, tl.float32, tl.float32, tl.float32),
            is_pure=True, pack=1,
        )  # fmt: skip
    return found


@triton.jit
def load(pointers, on, BYTES: tl.constexpr, ASM: tl.constexpr):
    """int32 of the words or bytes at the pointers, 0 where not `on`.  Not tl.load: with 100 of those the compiler looks
    20 s for a layout."""
    if ASM:
        return tl.inline_asm_elementwise(
            _LOAD_WORD if BYTES == 4 else _LOAD_BYTE, "=&r,l,r", [pointers, on.to(tl.int32)], dtype=tl.int32,
            is_pure=False, pack=1,
        )  # fmt: skip
    return tl.load(pointers, mask=on, other=0).to(tl.int32)


@triton.jit
def ring(STAGES: tl.constexpr, SIZE: tl.constexpr):
    """(place of STAGES copies of SIZE bytes, place of their barriers) in shared memory."""
    return tl.inline_asm_elementwise(
        _make_ring(STAGES, SIZE), "=r,=r,r", [tl.arange(0, 32)], dtype=(tl.int32, tl.int32), is_pure=False, pack=1
    )


@triton.jit
def copy(place, barrier, source, on, SIZE: tl.constexpr):
    """Start to bring SIZE bytes from the pointer `source` to `place`, if `on`; all lanes have left the place."""
    lanes = tl.arange(0, 32)
    tl.inline_asm_elementwise(
        _copy_tile(SIZE), "=r,r,r,l,r", [place, barrier, source + lanes * 0, ((lanes == 0) & on).to(tl.int32)],
        dtype=tl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@triton.jit
def wait(barrier, turn):
    """Wait until the copy number `turn` of this place, from 0 on, is there."""
    tl.inline_asm_elementwise(_WAIT, "=r,r,r", [barrier, turn % 2], dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def draw(counter_ptr, on, ASM: tl.constexpr):
    """Add 1 to a counter, if `on`; what it was before in the first lane, 0 in the others.  Nothing waits for it yet."""
    lanes = tl.arange(0, 32)
    alone = (lanes == 0) & on
    if ASM:
        return tl.inline_asm_elementwise(
            _DRAW, "=&r,l,r", [counter_ptr + lanes * 0, alone.to(tl.int32)], dtype=tl.int32, is_pure=False, pack=1
        )
    return tl.where(alone, tl.atomic_add(counter_ptr + lanes * 0, 1, mask=alone, sem="relaxed"), 0)
