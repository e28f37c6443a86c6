"""The last-level cache of the CPU; read by the coordinator, so without torch."""

from __future__ import annotations

from pathlib import Path

HOST_CACHE_BYTES = 32 << 20
"""Assumed last-level cache of a CPU that reports none (2026: most servers have 32 MiB per cluster of cores)."""


def host_cache_bytes() -> int:
    """Size of the largest cache of the first CPU in bytes, as Linux reports it."""
    sizes = [_bytes(path.read_text()) for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
    return max(sizes, default=HOST_CACHE_BYTES)


def _bytes(text: str) -> int:
    text = text.strip()
    scale = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:].upper(), 1)
    return int(text.rstrip("KMGkmg")) * scale
