"""The shapes: the second expert product of Kimi-K2.5 and DeepSeek-V3 at decode and prefill sizes.

Dimensions: M tokens, N hidden size, K intermediate size of one rank, E experts with the fused shared one, topk slots
with the shared one, BM rows that belong to one expert (the padding of the sorted order).

Sources: huggingface.co moonshotai/Kimi-K2-Instruct and deepseek-ai/DeepSeek-V3 config.json (hidden_size,
moe_intermediate_size 2048, n_routed_experts 384 and 256, num_experts_per_tok 8).  K is 512 for Kimi under TP4 and 256
for DeepSeek-V3 under TP8, the shapes that aiter tunes.
"""

from __future__ import annotations

from kernels.spec import Case

KIMI = {"N": 7168, "K": 512, "E": 385, "topk": 9}
DEEPSEEK = {"N": 7168, "K": 256, "E": 257, "topk": 9}

DECODE = (4, 8, 16, 32, 64, 128, 256)
PREFILL = 16384

PULL_REQUEST = frozenset(
    {"kimi_m4_bm16", "kimi_m16_bm16", "kimi_m64_bm16", "kimi_m256_bm32", "dsv3_m16_bm16", "dsv3_m64_bm32"}
)


def cases() -> list[Case]:
    """Both models over M; BM 16 and 32 at decode, 64 and 128 at prefill.  The tiny case is for machines without a GPU.

    The distribution "exact" has sums that fp32 holds exactly in any order, so that `reduce` must be right bit by bit.
    """
    result = [
        Case("tiny_bm16", tier="sweep", dtype="mxfp4", M=5, N=96, K=64, E=6, topk=3, BM=16),
        Case("kimi_m16_bm16_exact", tier="nightly", dtype="mxfp4", distribution="exact", M=16, BM=16, **KIMI),
    ]
    for short, model in (("kimi", KIMI), ("dsv3", DEEPSEEK)):
        result += [_case(short, model, tokens, block) for tokens in DECODE for block in (16, 32)]
        result += [_case(short, model, PREFILL, block) for block in (64, 128)]
    return result


def _case(short: str, model: dict[str, int], tokens: int, block: int) -> Case:
    name = f"{short}_m{tokens}_bm{block}"
    return Case(name, tier="pr" if name in PULL_REQUEST else "nightly", dtype="mxfp4", M=tokens, BM=block, **model)
