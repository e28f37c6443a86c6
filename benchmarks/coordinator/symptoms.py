"""What a person should know about a row of samples before trusting its median: one sentence per finding."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

FIRST_CALL_RATIO, FIRST_CALL_S = 20.0, 0.5
"""A first call this much longer than the median, and this long, did work that belongs to set-up.

Loading a process's first module or making a library handle takes up to 0.16 s (H200, 2026-11); searching takes more.
"""

FIRST_SAMPLE_RATIO = 3.0
"""A first timed sample this much longer than the median: the warm-up did not reach it."""

COLLAPSE_RATIO = 5.0
"""A sample this much longer than the median is a collapse, not noise."""

MODE_GAP, MODE_SHARE = 0.05, 0.2
"""Two modes: their means this far apart (relative), and each with at least this share of the samples."""


def of(seconds: Sequence[float], first_call_s: float | None = None) -> list[str]:
    """All findings about the samples of one arm."""
    median = statistics.median(seconds)
    if not median > 0:
        return ["the median sample is 0 s: the clock cannot resolve this call"]
    found = [
        first_call(first_call_s, median),
        first_sample(seconds, median),
        collapses(seconds, median),
        two_modes(seconds),
    ]
    return [sentence for sentence in found if sentence]


def first_call(first_s: float | None, median: float) -> str | None:
    """Work in the first call that belongs to set-up."""
    if first_s is None or first_s < FIRST_CALL_S or first_s < FIRST_CALL_RATIO * median:
        return None
    return f"first call ran {first_s / median:.0f} times longer than the median: work that belongs to set-up"


def first_sample(seconds: Sequence[float], median: float) -> str | None:
    """First-call work inside the timed region."""
    if len(seconds) < 4 or seconds[0] < FIRST_SAMPLE_RATIO * median:
        return None
    ratio = seconds[0] / median
    return f"the first timed sample ran {ratio:.1f} times longer than the median: first-call work is timed"


def collapses(seconds: Sequence[float], median: float) -> str | None:
    """Single samples many times slower than the rest."""
    slow = [s for s in seconds[1:] if s >= COLLAPSE_RATIO * median]
    if not slow:
        return None
    return (
        f"{len(slow)} of {len(seconds)} samples took more than {COLLAPSE_RATIO:g} times the median "
        f"(worst: {max(slow) / median:.1f} times): an intermittent collapse"
    )


def two_modes(seconds: Sequence[float]) -> str | None:
    """Two separate levels: the median then depends on how often each was met."""
    ordered = sorted(seconds)
    least = max(3, round(MODE_SHARE * len(ordered)))
    if len(ordered) < 2 * least:
        return None
    cut = max(range(least, len(ordered) - least + 1), key=lambda i: ordered[i] - ordered[i - 1])
    low, high = ordered[:cut], ordered[cut:]
    gap, inside = ordered[cut] - ordered[cut - 1], max(_spread(low), _spread(high))
    if statistics.fmean(high) < (1 + MODE_GAP) * statistics.fmean(low) or gap < 2 * inside:
        return None
    return (
        f"bimodal: {len(low)} samples around {statistics.median(low) * 1e6:.1f} us and {len(high)} around "
        f"{statistics.median(high) * 1e6:.1f} us"
    )


def _spread(values: Sequence[float]) -> float:
    """Distance between the quartiles."""
    first, _, third = statistics.quantiles(values, n=4)
    return third - first
