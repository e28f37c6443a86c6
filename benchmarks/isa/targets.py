"""The architectures that can be compiled for on any machine, and what a compiling process must not inherit."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

SCRUBBED = ("TRITON_", "AMDGCN_", "MLIR_", "LLVM_", "HIP_", "ROCM_", "CUDA_", "NVPTX_", "DISABLE_", "ALLOW_")
"""Prefixes of environment variables that change code or its text; a compiling process starts without them."""

FIXED = {"TRITON_DISABLE_LINE_INFO": "1", "TRITON_DEFAULT_FP_FUSION": "1", "PYTHONHASHSEED": "0"}
"""Set in every compiling process: without line numbers the text does not depend on the folder; Triton 3.9 warns that
the default of floating-point fusion changes in 3.10."""


class UnknownArch(ValueError):
    """An architecture that cannot be compiled for; the text lists the known ones."""


@dataclasses.dataclass(frozen=True)
class Target:
    """What triton.backends.compiler.GPUTarget takes: backend, its name of the architecture, lanes of a wave."""

    backend: str
    arch: str | int
    wave_size: int


ARCHES: dict[str, Target] = {
    "gfx942": Target("hip", "gfx942", 64),
    "gfx950": Target("hip", "gfx950", 64),
    "sm_90": Target("cuda", 90, 32),
}
"""MI300X, MI325X; MI350X, MI355X; H100, H200.  Metrics are read for these, see benchmarks/isa/readers."""


def target(arch: str) -> Target:
    """The target of an architecture; UnknownArch lists the known ones."""
    if arch not in ARCHES:
        raise UnknownArch(f"architecture {arch!r} is not known; known: {', '.join(ARCHES)}")
    return ARCHES[arch]


def environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment of a compiling process: the inherited one without what changes code, and FIXED."""
    kept = {name: value for name, value in inherited.items() if not name.startswith(SCRUBBED)}
    return kept | FIXED
