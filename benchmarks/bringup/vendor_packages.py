"""Packages that baselines call, by the name they are imported under.  Standard library only.

What a baseline needs of a package is the business of kernels/*/vendors.py; here stands only how to find and name it.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
from collections.abc import Iterator


@dataclasses.dataclass(frozen=True)
class VendorPackage:
    """name: its top module.  module: what is imported.  distributions: whose installation brings the right one.

    vendor: "amd", "nvidia", or "" for both.  about: what it is.
    """

    name: str
    module: str
    distributions: tuple[str, ...]
    vendor: str
    about: str


PACKAGES = (
    VendorPackage("aiter", "aiter", ("amd-aiter",), "amd", "aiter (MXFP4 MoE)"),
    VendorPackage("flydsl", "flydsl", ("flydsl",), "amd", "FlyDSL (MXFP4 MoE)"),
    VendorPackage("primus_turbo", "primus_turbo.pytorch", ("primus_turbo",), "amd", "Primus-Turbo (CK grouped GEMM)"),
    VendorPackage("grouped_gemm", "grouped_gemm.backend", ("grouped_gemm",), "", "grouped_gemm (gmm)"),
    VendorPackage(
        "triton_kernels", "triton_kernels", ("tokenspeed-triton-kernels", "triton-kernels"), "nvidia",
        "triton_kernels (MXFP4 MoE)",
    ),
    VendorPackage("humming", "humming", ("humming-kernels",), "nvidia", "humming (MXFP4 MoE)"),
)  # fmt: skip
"""Names on PyPI and of the wheels of ROCm/aiter, ROCm/FlyDSL, AMD-AGI/Primus-Turbo, tgale96/grouped_gemm (2026-11)."""


def of(name: str) -> VendorPackage:
    """The package of that name."""
    return next(one for one in PACKAGES if one.name == name)


def is_there(package: VendorPackage) -> bool:
    """Whether its top module can be found; imports nothing."""
    try:
        return importlib.util.find_spec(package.name) is not None
    except (ImportError, ValueError):
        return False


def installed() -> dict[str, str]:
    """Version by distribution of those that are there, under their own names."""
    return dict(_installed())


def _installed() -> Iterator[tuple[str, str]]:
    brought = importlib.metadata.packages_distributions()
    for package in PACKAGES:
        for name in dict.fromkeys(brought.get(package.name, ())):
            yield name, importlib.metadata.version(name)
