"""One package that baselines call: is it there, is it the right one, does it import."""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import time

from benchmarks.bringup import vendor_packages
from benchmarks.bringup.context import StepContext
from benchmarks.bringup.rows import Row, failed, not_here, passed
from benchmarks.bringup.vendor_packages import VendorPackage


def package(context: StepContext) -> list[Row]:
    """The package that the step is named after.  Its baselines are called in the step `backend`."""
    chosen = vendor_packages.of(context.part)
    name = chosen.name
    install = f"pip install {chosen.distributions[0]}, in the build for this torch"
    if not vendor_packages.is_there(chosen):
        wanted = not context.gpu or chosen.vendor in ("", "amd" if context.amd else "nvidia")
        why = "not installed" if wanted else f"not installed; it is for {chosen.vendor.upper()} GPUs"
        return [not_here(name, why, install if wanted and context.gpu else "")]
    if other := wrong_distribution(chosen):
        next_step = f"pip uninstall {other}; {install}"
        return [failed(name, f"`{name}` is installed by {other}, another project of that name", next_step)]
    begin = time.monotonic()
    try:
        module = importlib.import_module(chosen.module)
    except Exception as error:
        why = f"{type(error).__name__}: {(str(error).strip().splitlines() or ['no message'])[0]}"
        return [failed(name, f"{_named(chosen)} does not import: {why}", install)]
    seconds = time.monotonic() - begin
    return [passed(name, _named(chosen, getattr(module, "__version__", "")), imported=(seconds, "s"))]


def wrong_distribution(chosen: VendorPackage) -> str:
    """The distribution that brings a module of this name but is not its project, "" if it is (or is not known)."""
    brought = importlib.metadata.packages_distributions().get(chosen.name, [])
    right = {normal(name) for name in chosen.distributions}
    return "" if not brought or any(normal(name) in right for name in brought) else brought[0]


def _named(chosen: VendorPackage, said: str = "") -> str:
    """Distribution and version."""
    brought = importlib.metadata.packages_distributions().get(chosen.name, [])
    if not brought:
        return f"{chosen.name} {said or 'of unknown version'} (no distribution)"
    return f"{brought[0]} {importlib.metadata.version(brought[0])}"


def normal(name: str) -> str:
    """A distribution's name as indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()
