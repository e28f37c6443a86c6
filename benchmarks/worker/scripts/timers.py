"""The timing functions that scripts use, what each takes and gives back, and the choice of configurations by times.

triton.testing       do_bench, do_bench_cudagraph (and their proton kin)      ms: a number, quantiles, or all
torch.utils          benchmark.Timer: timeit, blocked_autorange, adaptive_autorange   a Measurement, seconds
timeit               timeit, repeat, Timer                                     seconds of so many calls
aiter.test_common    run_perftest, @perftest (and copies in a module of that name)    (output, us)
flashinfer.testing   bench_gpu_time, with events, CUPTI or a graph                    a list of ms
iris                 do_bench, by which iris.bench times what state.exec was given    ms: a number, quantiles, or all

Each is replaced by a function that hands the closure to the interceptor and makes its samples into what the script
expects.  Sources: Triton 3.6 to 3.8, torch 2.11 to 2.13, aiter e404860, flashinfer fb28d72 (read 2026-11-22),
iris 2be182d (read 2026-11-28).
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import os
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...shapes import digest_of
from .interception import Call, Interceptor, TimerCall, Timing

DO_BENCH = ("do_bench", "do_bench_proton", "do_bench_cudagraph", "do_bench_cudagraph_proton")
BENCH_GPU_TIME = tuple(f"bench_gpu_time{how}" for how in ("", "_with_cuda_event", "_with_cupti", "_with_cudagraph"))

Replace = Callable[[Any, Interceptor], None]


def _replaced(original: Any, to: Interceptor, timed: Callable[..., Any]) -> Any:
    """A timer that the interceptor serves where it wants to, by timed(frame, ...), and that is the original else."""

    @functools.wraps(original)
    def timer(*args: Any, **kwargs: Any) -> Any:
        frame = sys._getframe(1)
        return timed(frame, *args, **kwargs) if to.wants(frame) else original(*args, **kwargs)

    return timer


def _replace(names: Sequence[str], timed: Callable[..., Any], owner: Any, to: Interceptor) -> None:
    """Replace those timers of a module or class that it has.  timed: (name, original, interceptor, frame, ...)."""
    for name in names:
        if original := getattr(owner, name, None):
            setattr(owner, name, _replaced(original, to, functools.partial(timed, name, original, to)))


def _do_bench(
    name: str, original: Any, to: Interceptor, frame: Any, fn: Any, *args: Any, named: Any = None, **kwargs: Any
) -> Any:
    """named: parameters that are known of the closure."""
    asked = _asked(original, (fn, *args), kwargs)
    before, cleared = asked.get("preamble_fn"), tuple(asked.get("grad_to_none") or ())
    hot = name == "do_bench_cudagraph"
    timing = to.time(TimerCall(name, fn, (fn, before), cleared, before, hot=hot, named=named or {}), frame)
    quantiles = asked.get("quantiles", asked.get("percentiles"))
    return summary([1e3 * one for one in timing.seconds], quantiles, str(asked.get("return_mode", "mean")))


def summary(times: Sequence[float], quantiles: Sequence[float] | None, mode: str) -> Any:
    """What triton.testing returns: linear between order statistics; a single quantile is a number."""
    if quantiles is not None:
        torch = sys.modules["torch"]
        held, shares = (torch.tensor(list(one), dtype=torch.float64) for one in (times, quantiles))
        found = torch.quantile(held, shares).tolist()
        return found[0] if len(found) == 1 else found
    if mode == "all":
        return list(times)
    return {"min": min, "max": max, "median": statistics.median}.get(mode, statistics.fmean)(times)


def _iris_do_bench(name: str, original: Any, to: Interceptor, frame: Any, fn: Any, *args: Any, **kwargs: Any) -> Any:
    """Ranks meet by our barrier, not by the timer's; what iris.bench sweeps names the closure."""
    swept = frame.f_locals.get("params")
    named = dict(swept) if isinstance(swept, dict) else {}
    named |= {"benchmark": bench.name} if hasattr(bench := frame.f_locals.get("bdef"), "name") else {}
    return _do_bench(f"iris.{name}", original, to, frame, fn, *args, named=named, **kwargs)


# ---- torch -------------------------------------------------------------------------------------------------------


def of_torch(module: Any, to: Interceptor) -> None:
    """Replace the timing methods of torch.utils.benchmark.Timer."""

    def timed(name: str, original: Any, to: Interceptor, frame: Any, timer: Any, *args: Any, **kwargs: Any) -> Any:
        spec = timer._task_spec
        if timer._language != module.Language.PYTHON:
            return original(timer, *args, **kwargs)
        named = {"label": spec.label, "sub_label": spec.sub_label, "provider": spec.description}
        named |= {"threads": spec.num_threads} if spec.num_threads > 1 else {}
        more = {key: value for key, value in named.items() if value}
        call, roots = statement(spec.stmt, spec.setup, timer._globals), (timer._globals,)
        asked = TimerCall(f"Timer.{name}", call, roots, threads=spec.num_threads, named=more, function=None)
        timing = to.time(asked, frame)
        number = int(kwargs.get("number", args[0] if args else 1000000)) if name == "timeit" else 1
        times = [statistics.fmean(timing.seconds)] if name == "timeit" else list(timing.seconds)
        return module.common.Measurement(number, [number * one for one in times], spec)

    _replace(("timeit", "blocked_autorange", "adaptive_autorange"), timed, module.Timer, to)


def statement(stmt: str, setup: str, names: Mapping[str, Any]) -> Call:
    """What a Timer times, as a call; an expression gives its value."""
    held = dict(names)
    exec(compile(setup, "<setup>", "exec"), held)
    try:
        code = compile(stmt, "<timed statement>", "eval")
    except SyntaxError:
        body = compile(stmt, "<timed statement>", "exec")
        return lambda: exec(body, held)

    return lambda: eval(code, held)


# ---- timeit ------------------------------------------------------------------------------------------------------


def of_timeit(module: Any, to: Interceptor) -> None:
    """Replace the methods of Timer, by which timeit.timeit and repeat measure."""
    init = module.Timer.__init__

    @functools.wraps(init)
    def asked(self: Any, /, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        self.ridgeline_asked = _asked(init, (self, *args), kwargs)

    module.Timer.__init__ = asked
    _replace(("timeit", "repeat", "autorange"), _timeit, module.Timer, to)


def _timeit(name: str, original: Any, to: Interceptor, frame: Any, timer: Any, *args: Any, **kwargs: Any) -> Any:
    stmt, setup, names = (timer.ridgeline_asked.get(one) for one in ("stmt", "setup", "globals"))
    if callable(setup):
        setup()
    call = stmt if callable(stmt) else statement(stmt or "pass", setup if isinstance(setup, str) else "", names or {})
    timing = to.time(TimerCall(f"timeit.{name}", call, (stmt, names), function=stmt if callable(stmt) else None), frame)
    asked, mean = _asked(original, (timer, *args), kwargs), statistics.fmean(timing.seconds)
    if name == "autorange":
        return 1, mean
    total = mean * int(asked.get("number", 1_000_000))
    return total if name == "timeit" else [total] * int(asked.get("repeat", 5))


# ---- aiter -------------------------------------------------------------------------------------------------------


def of_aiter(module: Any, to: Interceptor) -> None:
    """Replace run_perftest and @perftest; both give (output, us)."""
    if hasattr(module, "perftest"):
        module.perftest = _perftest(module.perftest, to)
    _replace(("run_perftest",), _run_perftest, module, to)


def _perftest(original: Any, to: Interceptor) -> Any:
    @functools.wraps(original)
    def perftest(*how: Any, **named: Any) -> Any:
        def decorator(function: Any) -> Any:
            def timed(frame: Any, *args: Any, **kwargs: Any) -> Any:
                return _output_and_us(to, frame, "perftest", function, args, kwargs)

            return _replaced(original(*how, **named)(function), to, timed)

        return decorator

    return perftest


def _run_perftest(
    name: str, original: Any, to: Interceptor, frame: Any, func: Any, *args: Any, **kwargs: Any
) -> tuple[Any, float]:
    own = {name for name, one in inspect.signature(original).parameters.items() if one.kind is one.KEYWORD_ONLY}
    return _output_and_us(to, frame, name, func, args, {key: one for key, one in kwargs.items() if key not in own})


def _output_and_us(to: Interceptor, frame: Any, name: str, function: Any, args: Any, kwargs: Any) -> tuple[Any, float]:
    call = functools.partial(function, *args, **kwargs)
    timing: Timing = to.time(
        TimerCall(name, call, (function, args, kwargs), function=function, gives_output=True), frame
    )
    return timing.output, 1e6 * statistics.fmean(timing.seconds)


# ---- flashinfer --------------------------------------------------------------------------------------------------


def _bench_gpu_time(
    name: str, original: Any, to: Interceptor, frame: Any, fn: Any, *args: Any, **kwargs: Any
) -> list[float]:
    asked = _asked(original, (fn, *args), kwargs)
    given, named = tuple(asked.get("input_args") or ()), dict(asked.get("input_kwargs") or {})
    call, hot = functools.partial(fn, *given, **named), asked.get("cold_l2_cache") is False
    timing = to.time(TimerCall(name, call, (fn, given, named), function=fn, hot=hot), frame)
    return [1e3 * one for one in timing.seconds]


def _asked(original: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by name; those that this version of the timer does not know stay as they are."""
    try:
        return dict(inspect.signature(original).bind_partial(*args, **kwargs).arguments)
    except TypeError:
        return dict(kwargs)


REPLACED: dict[str, Replace] = {
    "triton.testing": functools.partial(_replace, DO_BENCH, _do_bench),
    "torch.utils.benchmark.utils.timer": of_torch,
    "timeit": of_timeit,
    "iris.util": functools.partial(_replace, ("do_bench",), _iris_do_bench),
    "flashinfer.testing.utils": functools.partial(_replace, BENCH_GPU_TIME, _bench_gpu_time),
}
"""By module; and a module whose last name is TEST_COMMON is taken for aiter's, or a copy of it."""

TEST_COMMON = "test_common"


def replacement(module: str) -> Replace | None:
    """What replaces the timers of a module, None for one that has none."""
    return of_aiter if module.rpartition(".")[2] == TEST_COMMON else REPLACED.get(module)


# Kernels that choose their configuration by times (triton.autotune): by none but in closures that are timed.
#
# Where it is only asked what a closure runs and computes, or what a script leaves to the next one, the first
# configuration that can be launched serves.  In trials each side measures all, in the first closure that is timed and
# comes to the kernel; what it chose holds in the trials that follow.  Where both sides have the same kernel and a
# side's times do not tell the other's choice from its own best, it takes that one: else equal kernels would run in two
# configurations by chance, in every trial.  A kernel that was changed is run in its own best configuration, as its
# users will run it.


ALIKE = 0.05
"""A configuration that takes at most so much longer than the fastest is as good: times of one kernel on one GPU are 2
to 5 % apart (DESIGN section 1)."""

SHORT = {"warmup": 5, "rep": 25}
"""Milliseconds for which a configuration is called and measured, where the kernel names no timer of its own; Triton's
are 25 and 100."""


class Tuning:
    """What a process knows of choices.  folder: of the session, shared by both sides.  role: of this side.

    surveys: nothing is timed at all.  skipped: how many configurations were not timed, since this began.
    """

    def __init__(self, folder: str, role: str, surveys: bool) -> None:
        self._folder, self._role, self._surveys, self._measures = Path(folder), role, surveys, False
        self._untimed: list[Any] = []
        self.skipped = 0

    @contextlib.contextmanager
    def measuring(self) -> Iterator[None]:
        """Configurations are timed inside; what was chosen without times before is chosen again."""
        for tuner in self._untimed:
            tuner.cache.clear()
        self._untimed, self._measures = [], True
        try:
            yield
        finally:
            self._measures = False

    def of_inductor(self, module: Any) -> None:
        """torch._inductor.runtime.triton_heuristics: a survey takes the first configuration of its kernels, too.

        By chance sides chose others, and so summed in another order: torch.compile keeps what it chose on disk, and a
        survey must leave nothing there (torch 2.5 to 2.13).
        """
        kind = module.CachingAutotuner
        if self._surveys:
            kind.autotune_to_one_config = lambda tuner, *_, **__: setattr(tuner, "launchers", tuner.launchers[:1])
            kind.coordinate_descent_tuning = lambda _, launcher, *__, **___: launcher

    def of_triton(self, module: Any) -> None:
        """Have triton.runtime.autotuner choose by this."""
        prune, bench = module.Autotuner.prune_configs, module.Autotuner._bench
        self._bench = bench

        @functools.wraps(prune)
        def pruned(tuner: Any, kwargs: Any) -> Any:
            found = prune(tuner, kwargs)
            if len(found) == 1 or sys._getframe(1).f_code.co_name != "run":  # warmup compiles them all
                return found
            tuner.ridgeline_chosen = self._config_for(tuner, found, kwargs)
            return [tuner.ridgeline_chosen]

        @functools.wraps(bench)
        def benched(tuner: Any, *args: Any, config: Any, **kwargs: Any) -> Any:
            """Triton 3.6 measures a single configuration, too."""
            known = vars(tuner).get("ridgeline_chosen") is config
            return [0.0] * 3 if known else bench(tuner, *args, config=config, **kwargs)

        module.Autotuner.prune_configs, module.Autotuner._bench = pruned, benched

    def _config_for(self, tuner: Any, configs: Any, kwargs: Mapping[str, Any]) -> Any:
        args = tuple(tuner.nargs.values())
        if self._measures:
            chosen = self._measured(tuner, configs, args, kwargs)
        else:
            chosen = self._first(tuner, configs, args, kwargs)
        tuner.pre_hook({**tuner.nargs, **kwargs, **chosen.all_kwargs()}, reset_only=True)
        return chosen

    def _first(self, tuner: Any, configs: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """The first that can be launched."""
        self.skipped += len(configs)
        self._untimed.append(tuner)
        runs = (one for one in configs if math.isfinite(self._time(tuner, one, args, kwargs, _called)))
        return next(runs, configs[0])

    def _measured(self, tuner: Any, configs: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        from .executed import written

        by_name = {str(one): one for one in configs}
        name = digest_of([tuner.base_fn.__name__, _key(tuner, kwargs), sorted(by_name), written(tuner)])
        files = {role: self._folder / f"{name}.{role}" for role in ("base", "head")}
        held = {role: file.read_text() for role, file in files.items() if file.is_file()}
        if self._role not in held:
            times = {said: self._time(tuner, one, args, kwargs) for said, one in by_name.items()}
            others = (said for role, said in held.items() if role != self._role)
            held[self._role] = fastest_or_alike(times, next(others, ""))
            _write(files[self._role], held[self._role])
        return by_name[held[self._role]]

    def _time(
        self,
        tuner: Any,
        config: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        by: Callable[..., Any] | None = None,
    ) -> float:
        """Milliseconds of a configuration as the tuner measures them, inf where it cannot be launched."""
        from ..code_hash import in_place_of  # imports torch, which a script may want to set up first

        named = vars(tuner).get("_do_bench", vars(tuner).get("do_bench")) is not None
        by = by or (tuner.do_bench if named else functools.partial(tuner.do_bench, **SHORT))
        with in_place_of(tuner, "do_bench", by):
            return float(self._bench(tuner, *args, config=config, **kwargs)[0])


def fastest_or_alike(times: Mapping[str, float], other: str) -> str:
    """The fastest, or what the other side took where that is as good here."""
    best = min(times, key=times.__getitem__)
    return other if times.get(other, math.inf) <= times[best] * (1 + ALIKE) else best


def _called(call: Callable[[], Any], **_: Any) -> list[float]:
    """In the place of a timer: one call."""
    call()
    return [0.0]


def _key(tuner: Any, kwargs: Mapping[str, Any]) -> list[str]:
    """What a choice is made for: values of the key's arguments, and types of tensors."""
    given = {name: one for name, one in {**tuner.nargs, **kwargs}.items() if name in tuner.arg_names}
    named = [repr(given[name]) for name in tuner.keys if name in given]
    return [*named, *(str(one.dtype) for one in given.values() if hasattr(one, "dtype"))]


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f"{file.name}.{os.getpid()}")
    partial.write_text(text)
    partial.replace(file)
