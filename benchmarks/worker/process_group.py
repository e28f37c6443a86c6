"""The default process group of a worker's ranks."""

from __future__ import annotations

import torch
import torch.distributed as dist


def make(rank: int, world: int, device: str, store: str) -> None:
    """Over a store of its own (a file): RCCL or NCCL for "cuda:0" and the like, gloo for "cpu"; not yet connected."""
    gpu = device != "cpu"
    dist.init_process_group(
        "nccl" if gpu else "gloo",
        store=dist.FileStore(store, world),
        rank=rank,
        world_size=world,
        device_id=torch.device(device) if gpu else None,
    )
