"""Which expert every token goes to, and the sorted order in which the product reads its rows.

A sorted row is (slot << 24) | token; every expert's rows are padded to a multiple of `block` rows with
(topk << 24) | tokens.  So a block of rows belongs to one expert.
"""

from __future__ import annotations

import dataclasses
import functools

import torch

from kernels.numerics import seed_for
from kernels.spec import Case


@dataclasses.dataclass(frozen=True)
class Sorted:
    """ids int32 and weights fp32 [padded rows], experts int32 [blocks] (-1: unused), valid int32 [2].

    padded rows: tokens * topk + experts * block - topk, the most that any routing can need.  valid[0]: rows in use, a
    multiple of the block; valid[1]: tokens.
    """

    ids: torch.Tensor
    weights: torch.Tensor
    experts: torch.Tensor
    valid: torch.Tensor


def sort(choice: torch.Tensor, weights: torch.Tensor, experts: int, block: int) -> Sorted:
    """Sort int64 choices and fp32 weights [tokens, topk] by expert; within an expert by token, then by slot."""
    tokens, topk = choice.shape
    if tokens >= 1 << 24:
        raise ValueError(f"{tokens} tokens; a sorted row keeps the token in 24 bits, so at most {(1 << 24) - 1}")
    if topk > 127:
        raise ValueError(f"top-{topk}; a sorted row keeps the slot in 7 bits, so at most 127")
    padded = tokens * topk + experts * block - topk
    ids = torch.full((padded,), topk << 24 | tokens, dtype=torch.int32, device=choice.device)
    sorted_weights = torch.zeros(padded, dtype=torch.float32, device=choice.device)
    counts = torch.bincount(choice.flatten(), minlength=experts)
    room = (counts + block - 1) // block * block
    order = torch.argsort(choice.flatten(), stable=True)
    owner = choice.flatten()[order]
    inside = torch.arange(order.numel(), device=choice.device) - (counts.cumsum(0) - counts)[owner]
    at = (room.cumsum(0) - room)[owner] + inside
    ids[at] = ((order % topk) << 24 | order // topk).to(torch.int32)
    sorted_weights[at] = weights.flatten()[order]
    owners = torch.full((-(-padded // block),), -1, dtype=torch.int32, device=choice.device)
    used = torch.repeat_interleave(torch.arange(experts, device=choice.device), room // block)
    owners[: used.numel()] = used.to(torch.int32)
    valid = torch.tensor([int(room.sum()), tokens], dtype=torch.int32, device=choice.device)
    return Sorted(ids, sorted_weights, owners, valid)


@functools.lru_cache(maxsize=64)
def _choice(name: str, tokens: int, experts: int, topk: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed_for(0, name, "routing"))
    routed = torch.rand((tokens, experts - 1), generator=generator, device="cpu").topk(topk - 1, dim=-1).indices
    return torch.cat((routed, torch.full((tokens, 1), experts - 1, device="cpu")), dim=-1)


def choice(case: Case) -> torch.Tensor:
    """int64 [tokens, topk] on the CPU: uniform routed experts, all different, and the fused shared expert as the last.

    Depends on the case only, not on the seed of a run, so that the bytes of a case are a property of it.
    """
    return _choice(case.name, case.M, case.E, case.topk)


def weights(case: Case, seed: int) -> torch.Tensor:
    """fp32 [tokens, topk]: routed ones sum to 1, the shared one is 1.  Of the distribution "exact": powers of two."""
    generator = torch.Generator().manual_seed(seed_for(seed, case.name, "routing weights"))
    if case.distribution == "exact":
        return torch.exp2(-torch.randint(0, 3, (case.M, case.topk), generator=generator, device="cpu").float())
    routed = torch.rand((case.M, case.topk - 1), generator=generator, device="cpu") + 0.1
    return torch.cat((routed / routed.sum(-1, keepdim=True), torch.ones(case.M, 1, device="cpu")), dim=-1)


@functools.lru_cache(maxsize=64)
def _tokens(name: str, tokens: int, experts: int, topk: int) -> torch.Tensor:
    return torch.bincount(_choice(name, tokens, experts, topk).flatten(), minlength=experts)


def tokens_of(case: Case) -> torch.Tensor:
    """int64 [experts] on the CPU: how many tokens each has."""
    return _tokens(case.name, case.M, case.E, case.topk)


def active_experts(case: Case) -> int:
    """Experts with at least one token: those whose weights a call must read."""
    return int((tokens_of(case) > 0).sum())


def used_blocks(case: Case) -> int:
    """Blocks of rows in use."""
    return int(((tokens_of(case) + case.BM - 1) // case.BM).sum())
