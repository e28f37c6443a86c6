"""The models whose expert layers the cases take their shapes from, with sources; and the cases themselves."""

from __future__ import annotations

import dataclasses

from kernels.spec import Case


@dataclasses.dataclass(frozen=True)
class Model:
    """Expert layers of one model.  hidden, intermediate: features; experts: routed experts of a layer.

    local_experts: how many of them one rank holds under the usual expert parallelism.
    """

    short: str
    name: str
    hidden: int
    intermediate: int
    experts: int
    local_experts: tuple[int, ...]
    source: str

    def layers(self) -> dict[str, tuple[int, int]]:
        """(N, K) of the two grouped products: gate and up projections as one, then the down projection."""
        return {"gateup": (2 * self.intermediate, self.hidden), "down": (self.hidden, self.intermediate)}


MODELS = (
    Model(
        "dsv3",
        "DeepSeek-V3",
        7168,
        2048,
        256,
        (8, 16, 32),
        "huggingface.co/deepseek-ai/DeepSeek-V3 config.json: hidden_size, moe_intermediate_size, n_routed_experts",
    ),
    Model(
        "gptoss20b",
        "gpt_oss_20B",
        2880,
        2880,
        32,
        (4, 8, 32),
        "huggingface.co/openai/gpt-oss-20b config.json: hidden_size, intermediate_size, num_local_experts; "
        "2880 is 22.5 x 128: every tile of 128 or more has a tail",
    ),
    Model(
        "lfm2",
        "LFM2-8B-A1B",
        2048,
        1792,
        32,
        (4, 8, 32),
        "huggingface.co/LiquidAI/LFM2-8B-A1B config.json: hidden_size, moe_intermediate_size, num_experts",
    ),
)

MEANS = (2048, 4096)
"""Mean tokens per local expert of a training step (Primus-Turbo's grid has 512 to 16384; these two are its middle)."""

NIGHTLY_ROUTINGS = ("balanced", "mild", "extreme")
"""Routings of the tiers `pr` and `nightly`; unbalanced routing lies between balanced and mild, and is for the study."""

SMALL_MEANS = (16, 32, 64, 128, 256, 512, 1024)
"""More tokens per expert, balanced: where the products of several experts fit the GPU side by side."""

SMALL_MODELS = ("dsv3", "lfm2")
"""The largest and the smallest weights."""

PULL_REQUEST = frozenset(
    {
        "dsv3_gateup_b8_m2048_balanced",
        "dsv3_down_b8_m2048_mild",
        "gptoss20b_gateup_b4_m2048_mild",
        "gptoss20b_down_b4_m2048_extreme",
        "lfm2_gateup_b4_m4096_balanced",
        "lfm2_down_b32_m2048_extreme",
    }
)
"""The cases of every pull request: each model, layer and routing, and both ends of B, at least once."""


def cases() -> list[Case]:
    """All shapes, in bf16.  nightly: the smallest and the largest B, with the skewed routings at M = 2048.

    sweep: the rest, unbalanced routing of all, and experts with fewer tokens.
    Dimensions: G experts on this rank, M mean tokens per expert, N and K as in the forward product, routing.
    The tiny case is for machines without a GPU.
    """
    result = [Case("tiny_extreme", tier="sweep", dtype="bf16", G=5, M=24, N=80, K=96, routing="extreme")]
    for model in MODELS:
        for layer, (n, k) in model.layers().items():
            for groups in model.local_experts:
                for mean in MEANS:
                    result += [_case(model, layer, n, k, groups, mean, routing) for routing in NIGHTLY_ROUTINGS]
    return [*result, *_unbalanced(), *_small()]


def _unbalanced() -> list[Case]:
    return [
        _case(model, layer, n, k, groups, mean, "unbalanced")
        for model in MODELS
        for layer, (n, k) in model.layers().items()
        for groups in model.local_experts
        for mean in MEANS
    ]


def _small() -> list[Case]:
    return [
        _case(model, layer, n, k, groups, mean, "balanced")
        for model in MODELS
        if model.short in SMALL_MODELS
        for layer, (n, k) in model.layers().items()
        for groups in (model.local_experts[0], model.local_experts[-1])
        for mean in SMALL_MEANS
    ]


def _case(model: Model, layer: str, n: int, k: int, groups: int, mean: int, routing: str) -> Case:
    name = f"{model.short}_{layer}_b{groups}_m{mean}_{routing}"
    at_the_ends = groups in (model.local_experts[0], model.local_experts[-1])
    nightly = at_the_ends and (mean == MEANS[0] or (mean == MEANS[1] and routing == "balanced"))
    nightly = nightly and routing in NIGHTLY_ROUTINGS
    tier = "pr" if name in PULL_REQUEST else "nightly" if nightly else "sweep"
    return Case(name, tier=tier, dtype="bf16", G=groups, M=mean, N=n, K=k, routing=routing)
