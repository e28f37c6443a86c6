"""When a call to GitHub is tried again, how long after, and when not any more: rules without any input or output.

Rules: docs.github.com, "Best practices for using the REST API" (read 2026-11-22): wait as long as Retry-After says;
else until x-ratelimit-reset if nothing remains; else at least a minute, growing with every refusal.
"""

from __future__ import annotations

import email.utils
from collections.abc import Callable, Mapping

import tenacity

BUSY_S = 600.0
"""Seconds.  Server errors, time-outs and a network that is away are retried this long: enough for a restart."""
LONGEST_PAUSE_S = 900.0
"""Seconds.  A server that asks for a longer pause is an error: a job must not sleep for an hour."""
LIMITED_S = 1800.0
"""Seconds that one call waits for limits in all: two of the longest pauses."""
FIRST_LIMIT_S = 60.0
"""Seconds to wait for a limit that names no time; twice as long after each refusal (GitHub: "at least one minute")."""
SLOWEST_BEAT_S = 60.0
"""Seconds between two attempts at most while the server is down."""
WORDS = ("secondary rate limit", "abuse detection", "rate limit exceeded")
"""What a 403 says that is a limit and not a missing right."""


class Trouble(Exception):
    """An attempt failed in a way that passes.  asked: seconds that the server asks us to wait, None if it does not."""

    def __init__(self, said: str, limited: bool = False, asked: float | None = None) -> None:
        super().__init__(said)
        self.limited, self.asked = limited, asked


class Patience:
    """How long one call is tried again; for `tenacity.Retrying(wait=.., stop=..)`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._began, self._waited = clock, clock(), 0.0
        self._slept = 0.0
        self._limits = self._faults = 0

    def wait(self, state: tenacity.RetryCallState) -> float:
        """Seconds until the next attempt."""
        trouble = _trouble(state)
        if not trouble.limited:
            self._faults += 1
            return float(min(2.0 ** (self._faults - 1), SLOWEST_BEAT_S))
        if trouble.asked is None:
            self._limits += 1
            return float(min(FIRST_LIMIT_S * 2.0 ** (self._limits - 1), LONGEST_PAUSE_S))
        return max(trouble.asked, 0.0)

    def stop(self, state: tenacity.RetryCallState) -> bool:
        """Whether the pause that was worked out is one too many."""
        pause = state.upcoming_sleep
        if not _trouble(state).limited:
            self._slept += pause  # also where somebody's clock stands still
            return max(self._slept, self._clock() - self._began - self._waited + pause) > BUSY_S
        if pause > LONGEST_PAUSE_S or self._waited + pause > LIMITED_S:
            return True
        self._waited += pause
        return False


def gave_up(state: tenacity.RetryCallState) -> str:
    """Why no further attempt is made."""
    trouble, tried = _trouble(state), state.attempt_number
    last = f"last: {trouble}"
    if trouble.limited and state.upcoming_sleep > LONGEST_PAUSE_S:
        return f"it asks for a pause of {state.upcoming_sleep:.0f} s, more than {LONGEST_PAUSE_S:.0f} s; {last}"
    return f"no success in {tried} attempts; {last}"


def limit(status: int, headers: Mapping[str, str], said: str, now: float) -> Trouble | None:
    """The limit that an answer speaks of, None if it speaks of none.  headers: lower-case names."""
    if status not in (403, 429):
        return None
    asked = retry_after(headers.get("retry-after"), now)
    spent = headers.get("x-ratelimit-remaining") == "0"
    if asked is None and spent:
        asked = _number(headers.get("x-ratelimit-reset"), now) - now
    named = any(words in said.lower() for words in WORDS)
    return Trouble(said, limited=True, asked=asked) if status == 429 or asked is not None or named else None


def retry_after(header: str | None, now: float) -> float | None:
    """Seconds from a Retry-After header: a number or an HTTP date (RFC 9110, 10.2.3); None if absent or unreadable."""
    if header is None:
        return None
    if header.strip().isdigit():
        return float(header)
    try:
        return email.utils.parsedate_to_datetime(header).timestamp() - now
    except ValueError:
        return None


def _number(text: str | None, otherwise: float) -> float:
    try:
        return float(text) if text else otherwise
    except ValueError:
        return otherwise


def _trouble(state: tenacity.RetryCallState) -> Trouble:
    error = state.outcome.exception() if state.outcome else None
    assert isinstance(error, Trouble)
    return error
