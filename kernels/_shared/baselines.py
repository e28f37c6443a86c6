"""Baselines that a sweep can turn a knob of, without becoming another yardstick."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

Build = Callable[..., Callable[[], Any]]


def with_knobs(plain: Build, build: Build) -> Build:
    """`build`, with its keyword arguments as knobs, under the benchmark definition of `plain`.

    It must be `plain` where no knob is given: what the definition's digest covers is what is then timed.
    """
    build.__signature__ = inspect.signature(build)  # type: ignore[attr-defined]
    return functools.update_wrapper(build, plain)
