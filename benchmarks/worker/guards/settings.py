"""What one arm can set for the whole process, and so for the time and the truth of all others."""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

import torch

from . import bound

Settings = Mapping[str, Any]
"""Value by the name of what reads it."""

_READ: dict[str, Callable[[], Any]] = {
    "torch.get_num_threads()": torch.get_num_threads,
    "torch.get_default_dtype()": torch.get_default_dtype,
    "torch.get_float32_matmul_precision()": torch.get_float32_matmul_precision,
    "torch.backends.cuda.matmul.allow_tf32": lambda: torch.backends.cuda.matmul.allow_tf32,
    "torch.backends.cudnn.allow_tf32": lambda: torch.backends.cudnn.allow_tf32,
    "torch.backends.cuda.matmul.allow_fp16_accumulation": lambda: torch.backends.cuda.matmul.allow_fp16_accumulation,
    "torch.backends.cudnn.benchmark": lambda: torch.backends.cudnn.benchmark,
    "torch.are_deterministic_algorithms_enabled()": torch.are_deterministic_algorithms_enabled,
    "torch.is_grad_enabled()": torch.is_grad_enabled,
    "torch.is_autocast_enabled()": torch.is_autocast_enabled,
    "torch.get_default_device()": torch.get_default_device,
    "the torch function modes in use": torch._C._len_torch_function_stack,
    "the torch dispatch modes in use": torch._C._len_torch_dispatch_stack,
    "gc.isenabled()": gc.isenabled,
    "gc.callbacks": lambda: len(gc.callbacks),
    "sys.gettrace()": sys.gettrace,
    "sys.getprofile()": sys.getprofile,
    "sys.getswitchinterval()": sys.getswitchinterval,
    "threading.settrace()": threading.gettrace,
    "the current stream": lambda: bound.current_stream().cuda_stream if torch.cuda.is_initialized() else None,
}


def now() -> Settings:
    """Every setting.  One that this torch cannot read (two ways to set TF32 were mixed) is left out."""
    found = {}
    for name, read in _READ.items():
        with contextlib.suppress(RuntimeError, AttributeError):
            found[name] = read()
    return found


def disturbed(before: Settings) -> str:
    """What is said if a function that the harness measures with was replaced, or a setting has another value now."""
    if names := bound.WATCH.replaced():
        return f"it replaces {_list(names)}, which the harness measures with"
    after = now()
    changed = [f"{name} from {before[name]} to {after.get(name)}" for name in before if after.get(name) != before[name]]
    return f"it changes for the whole process {_list(changed)}" if changed else ""


def _list(names: list[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
