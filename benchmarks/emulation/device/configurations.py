"""Triton's timers and autotuner on a device that has no clock.

A timer calls once and gives NaN.  A tuned kernel takes its first configuration that compiles and fits, or, where all
are wanted, runs every one on the same arguments and compares what they write: a test on a GPU sees only the fastest.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from ..triton_driver import CHOSEN, LATER, first_that_fits
from .refusals import NotOnThisDevice

TOLERANCE = {"float64": 1e-9, "float32": 2e-3, "bfloat16": 2e-2, "float16": 4e-3}
"""Norm of the difference of two configurations' outputs over that of the first's: sums have another order.
fp32 may be multiplied by MFMA of tf32; other floats have 2 to 4 bits."""

COARSE = 0.1
"""The same of types of 8 bits."""


class WrongConfiguration(AssertionError):
    """Configurations of a tuned kernel that write different outputs."""


def once(original: Any) -> Any:
    """A timer of triton.testing that calls once, and gives NaN in its form."""

    @functools.wraps(original)
    def timer(fn: Callable[[], Any], *args: Any, **kwargs: Any) -> Any:
        fn()
        quantiles, mode = kwargs.get("quantiles"), kwargs.get("return_mode", "mean")
        if quantiles is not None:
            return [math.nan] * len(quantiles) if len(quantiles) > 1 else math.nan
        return [math.nan] if mode == "all" else math.nan

    return timer


def change_testing(testing: Any) -> None:
    """triton.testing, as it is imported."""
    for name in ("do_bench", "do_bench_cudagraph", "do_bench_proton", "do_bench_cudagraph_proton"):
        if hasattr(testing, name):
            setattr(testing, name, once(getattr(testing, name)))


def change_autotuner(autotuner: Any, everything: bool, on_wrong: Callable[[str], None]) -> None:
    """triton.runtime.autotuner, as it is imported.  everything: run all configurations; on_wrong gets each sentence."""
    autotuner.Autotuner._bench = functools.partialmethod(_compared, on_wrong) if everything else first_that_fits


def _compared(tuner: Any, on_wrong: Callable[[str], None], *args: Any, config: Any, **meta: Any) -> list[float]:
    """In place of Autotuner._bench: run a configuration, hold what it writes against the first's, and undo it."""
    from triton.compiler.errors import CompileTimeAssertionFailure
    from triton.runtime.errors import OutOfResources

    first = getattr(tuner, "compared_with", (None, None, None))
    fresh = first[0] is not tuner.nargs
    arguments = {**meta, **config.all_kwargs()}
    tensors = {name: value for name, value in {**tuner.nargs, **meta}.items() if hasattr(value, "data_ptr")}
    before = {name: value.clone() for name, value in tensors.items()}
    try:
        if config.pre_hook:
            config.pre_hook({**tuner.nargs, **arguments})
        tuner.pre_hook({**tuner.nargs, **arguments})
        tuner.fn.run(*args, **arguments)
        outputs = {name: value.clone() for name, value in tensors.items()}
        tuner.post_hook({**tuner.nargs, **arguments}, exception=None)
    except (OutOfResources, CompileTimeAssertionFailure):
        return LATER
    finally:
        for name, value in tensors.items():
            value.copy_(before[name])
    if fresh:
        tuner.compared_with = (tuner.nargs, config, outputs)
        return CHOSEN
    kernel = getattr(tuner.base_fn, "__name__", "a kernel")
    for name, output in outputs.items():
        if unlike := difference(before[name], first[2][name], output):
            sentence = f"{kernel}: {config} writes another {name} than {first[1]} on equal arguments: {unlike}"
            on_wrong(sentence)
            raise WrongConfiguration(sentence)
    return LATER


def difference(before: Any, expected: Any, output: Any) -> str:
    """How two outputs of one argument differ; "" where it is rounding, and where each block writes its part of a sum:
    another number of elements than before, with the same total."""
    if not expected.is_floating_point():
        wrong = int((expected != output).sum())
        return f"{wrong} of {output.numel()} elements" if wrong else ""
    a, b = expected.double(), output.double()
    if (a.isnan() != b.isnan()).any():
        return f"{int((a.isnan() != b.isnan()).sum())} elements are NaN in one of them"
    equal = (a == b) | a.isnan()
    error = float((a - b).masked_fill(equal, 0).norm())
    norm = float(a.nan_to_num(0, 0, 0).norm())
    allowed = TOLERANCE.get(str(expected.dtype).removeprefix("torch."), COARSE)
    written = [one[(one != before) & ~one.isnan()] for one in (a, b)]
    totals = [float(one.sum()) for one in written]
    most = max(float(one.abs().sum()) for one in written)
    if len(written[0]) != len(written[1]) and abs(totals[0] - totals[1]) <= allowed * most:
        return ""
    return f"the norm of the difference is {error:.2g}, of {norm:.2g}" if error > allowed * norm else ""


def refuse_inductor(*args: Any, **kwargs: Any) -> Sequence[Any]:
    """In place of inductor's compile_fx."""
    raise NotOnThisDevice(
        "torch's inductor is not emulated; TORCH_COMPILE_DISABLE=1 runs functions as they are written"
    )
