"""What the emulated device does not have: each raises, with a sentence."""

from __future__ import annotations

import functools
import os
from typing import Any

from ..code_object import NotExecutable


class NotOnThisDevice(NotExecutable, NotImplementedError):
    """Something that a machine with a GPU has and its emulator does not."""


DISABLING = ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE")
"""Variables by which torch is told to compile nothing."""

EAGER = ("eager", "aot_eager")
"""Backends of torch.compile that compile nothing."""


def torch_compile(model: Any = None, *, backend: Any = "inductor", disable: bool = False, **how: Any) -> Any:
    """torch.compile: what a backend would compile raises when it is called, unless torch is told not to compile."""
    if model is None:
        return lambda function: torch_compile(function, backend=backend, disable=disable, **how)
    if disable or getattr(backend, "__name__", backend) in EAGER or "1" in (*map(os.environ.get, DISABLING),):
        return model

    def refused(*args: Any, **kwargs: Any) -> Any:
        raise NotOnThisDevice(
            f"torch.compile of {getattr(model, '__name__', type(model).__name__)} by {backend} is not emulated; "
            "TORCH_COMPILE_DISABLE=1 runs it as it is written"
        )

    if isinstance(model, type) or not callable(model):
        return model
    return functools.wraps(model, updated=())(refused) if hasattr(model, "__name__") else refused


def refusing(what: str, instead: str = "") -> Any:
    """A function that raises NotOnThisDevice."""

    def refused(*args: Any, **kwargs: Any) -> Any:
        raise NotOnThisDevice(f"{what} is not emulated{': ' if instead else ''}{instead}")

    return refused


def process_groups(original: Any) -> Any:
    """torch.distributed.init_process_group that refuses RCCL."""

    @functools.wraps(original)
    def init_process_group(backend: Any = None, *args: Any, **kwargs: Any) -> Any:
        if "nccl" in str(backend).lower():
            raise NotOnThisDevice("RCCL (nccl) is not emulated: a collective of several GPUs needs them")
        return original(backend, *args, **kwargs)

    return init_process_group
