"""What bounds each kernel statically: the limiter of its occupancy, LDS, registers, the make-up of its hot loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernels.hardware import DEVICES


def explain(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One explanation per compiled entry of a result file: its identity, `limiter`, and `sentences`."""
    identity = ("kernel", "backend", "label", "arch", "cases")
    return [
        {name: e[name] for name in identity}
        | {"limiter": limiter(e["metrics"], e["arch"]), "sentences": sentences(e["metrics"], e["arch"])}
        for e in result["entries"]
        if e["status"] == "ok"
    ]


def limiter(metrics: Mapping[str, Any], arch: str) -> str:
    """What keeps a SIMD from holding more waves: registers, LDS, both, or nothing."""
    registers, lds, now = metrics["occupancy_by_registers"], metrics["occupancy_by_lds"], metrics["occupancy"]
    if metrics["lds_bytes"] > metrics["lds_limit"]:
        return "LDS over the limit"
    by = [name for name, value in (("registers", registers), ("LDS", lds)) if value <= now]
    most = next(device.waves_per_simd for device in DEVICES if device.arch == arch)
    return " and ".join(by) if by and now < most else "nothing"


def sentences(metrics: Mapping[str, Any], arch: str) -> list[str]:
    """What a kernel engineer would want to know first, most telling first."""
    found = [_occupancy(metrics, arch), _spills(metrics), _loop(metrics, arch), _stores(metrics), _drains(metrics)]
    return [sentence for sentence in found if sentence]


def _occupancy(metrics: Mapping[str, Any], arch: str) -> str:
    registers = metrics.get("vgpr", metrics.get("registers"))
    share, by = 100 * metrics["lds_bytes"] / metrics["lds_limit"], limiter(metrics, arch)
    head = "the most there can be" if by == "nothing" else f"limited by {by}"
    unit, place = ("wave", "SIMD") if arch.startswith("gfx") else ("warp", "scheduler")
    waves = f"{metrics['occupancy']} {unit}{'s' * (metrics['occupancy'] != 1)} per {place}"
    return (
        f"{waves}, {head}: {registers} registers per lane "
        f"allow {metrics['occupancy_by_registers']}, {metrics['lds_bytes']} B of LDS ({share:.0f} % of the chip's) "
        f"allow {metrics['occupancy_by_lds']}."
    )


def _spills(metrics: Mapping[str, Any]) -> str:
    if not metrics["scratch_bytes"] and not metrics.get("vgpr_spills"):
        return ""
    spilled = f"{metrics['vgpr_spills']} registers spill, " if "vgpr_spills" in metrics else ""
    return (
        f"{spilled}{metrics['scratch_bytes']} B of scratch per lane; {metrics['scratch_ops_in_loops']} of "
        f"{metrics['scratch_ops']} scratch instructions lie in loops."
    )


def _loop(metrics: Mapping[str, Any], arch: str) -> str:
    loop = metrics["loop"]
    if not loop:
        return f"No loop; {metrics['instructions']} instructions."
    matrix = "MFMA" if arch.startswith("gfx") else "tensor-core instructions"
    counts = sorted(loop["mix"].items(), key=lambda item: -item[1])
    mix = ", ".join(f"{count} {name}" for name, count in counts)
    if not metrics["matrix"]:
        return f"The hot loop has {loop['instructions']} instructions, no {matrix} among them: {mix}."
    most, number = counts[0]
    share = "" if most in ("mfma", "matrix") else f", {100 * number / loop['instructions']:.0f} % {most}"
    return (
        f"The hot loop has {loop['instructions']} instructions, {100 * loop['matrix_share']:.0f} % of them "
        f"{matrix}{share}: {mix}.  Kinds: {', '.join(metrics['matrix'])}."
    )


def _stores(metrics: Mapping[str, Any]) -> str:
    parts = []
    for name, what in (("remote_store", "remote stores"), ("store", "all stores"), ("load", "loads")):
        if metrics.get(f"{name}_widths"):
            parts.append(f"{what}: {_widths(metrics[f'{name}_widths'])}")
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]} per lane." if text else ""


def _drains(metrics: Mapping[str, Any]) -> str:
    if not metrics.get("remote_store_drains"):
        return ""
    return (
        f"Between the first and the last remote store of a block it waits {metrics['remote_store_drains']} times for "
        "those before, an answer over the link each time; load all bases and values before the first store."
    )


def _widths(widths: Mapping[str, int]) -> str:
    """4 of 16 B, 1 of 4 B"""
    return ", ".join(f"{count} of {width} B" for width, count in widths.items())


def explain_markdown(explanations: list[dict[str, Any]]) -> str:
    """The explanations as Markdown, one heading per kernel."""
    lines: list[str] = []
    heading = None
    for one in explanations:
        if one["kernel"] != heading:
            heading = one["kernel"]
            lines += [f"## {heading}", ""]
        label = f" {one['label']}" if one["label"] else ""
        lines += [f"**{one['backend']}{label} on {one['arch']}** (cases: {', '.join(one['cases'])})", ""]
        lines += [f"- {sentence}" for sentence in one["sentences"]] + [""]
    return "\n".join(lines) or "Nothing was compiled.\n"
