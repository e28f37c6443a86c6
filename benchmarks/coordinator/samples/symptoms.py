"""What only the run itself can tell about the samples of an arm: one sentence per finding.

Whether samples have two modes or collapse is decided where they are read (ci.stats), with one set of limits.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

FIRST_CALL_RATIO, FIRST_CALL_S = 20.0, 0.5
"""A first call this many times longer than the median, and this long, did work that belongs to set-up.

Loading a process's first module or making a library handle takes up to 0.16 s (H200, 2026-11); searching takes more.
"""

FIRST_SAMPLE_RATIO = 3.0
"""A first timed sample this many times longer than the median: the warm-up did not cover it (2026-11)."""


def of(seconds: Sequence[float], first_call_s: float | None = None) -> list[str]:
    """All findings about the samples of one arm."""
    median = statistics.median(seconds)
    if not median > 0:
        return ["the median sample is 0 s: the clock cannot resolve this call"]
    found = [first_call(first_call_s, median), first_sample(seconds, median)]
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
