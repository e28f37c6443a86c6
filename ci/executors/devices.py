"""Which GPUs this machine offers to jobs, found without a GPU library: by restricting variables, else by drivers."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

VISIBLE = ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")


def gpus(environ: Mapping[str, str] = os.environ, root: Path = Path("/")) -> list[str]:
    """What a job may be given: the entries of the first restricting variable that is set, else indices from 0.

    AMD GPUs are the nodes of the KFD topology that have compute units (a CPU's node has none); NVIDIA GPUs are device
    files.
    """
    for name in VISIBLE:
        if name in environ:
            entries = (entry.strip() for entry in environ[name].split(","))
            return [entry for entry in entries if entry not in ("", "-1", "NoDevFiles")]
    return [str(index) for index in range(_amd(root) or _nvidia(root))]


def identities(given: Sequence[str], environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What each entry is called on the whole machine, the same in every clone and shell: "gpu-4", "gpu-GPU-<uuid>".

    An entry of HIP_VISIBLE_DEVICES counts within ROCR_VISIBLE_DEVICES, where both are set.
    """
    outer = [entry.strip() for entry in environ.get("ROCR_VISIBLE_DEVICES", "").split(",") if entry.strip()]
    inner = "HIP_VISIBLE_DEVICES" in environ and bool(outer)
    return {one: f"gpu-{outer[int(one)] if inner and _counts(one, outer) else one}" for one in given}


def _counts(entry: str, outer: Sequence[str]) -> bool:
    return entry.isdigit() and int(entry) < len(outer)


def visible(given: list[str], root: Path = Path("/"), environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variable that shows a job these GPUs only.

    Where a variable restricts us already, that one is narrowed: HIP_VISIBLE_DEVICES indexes into
    ROCR_VISIBLE_DEVICES, so setting both to the same list would hide GPUs.
    """
    name = next((name for name in VISIBLE if name in environ), None)
    if name is None:
        name = "HIP_VISIBLE_DEVICES" if _amd(root) else "CUDA_VISIBLE_DEVICES"
    return {name: ",".join(given)}


def _amd(root: Path) -> int:
    nodes = (root / "sys/class/kfd/kfd/topology/nodes").glob("*/properties")
    return sum(1 for node in nodes if re.search(r"^simd_count [1-9]", node.read_text(), re.MULTILINE))


def _nvidia(root: Path) -> int:
    return sum(1 for entry in (root / "dev").glob("nvidia[0-9]*") if entry.name[6:].isdigit())
