"""Kernels that choose their configuration by times (triton.autotune): by none but in closures that are timed.

Where it is only asked what a closure runs and computes, or what a script leaves to the next one, the first
configuration that can be launched serves.  In trials each side measures all, in the first closure that is timed and
comes to the kernel; what it chose holds in the trials that follow.  Where
both sides have the same kernel and a side's times do not tell the other's choice from its own best, it takes that one:
else equal kernels would run in two configurations by chance, in every trial.  A kernel that was changed is run in its
own best configuration, as its users will run it.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

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
            tuner.ridgeline_chosen = self._chosen(tuner, found, kwargs)
            return [tuner.ridgeline_chosen]

        @functools.wraps(bench)
        def benched(tuner: Any, *args: Any, config: Any, **kwargs: Any) -> Any:
            """Triton 3.6 measures a single configuration, too."""
            known = vars(tuner).get("ridgeline_chosen") is config
            return [0.0] * 3 if known else bench(tuner, *args, config=config, **kwargs)

        module.Autotuner.prune_configs, module.Autotuner._bench = pruned, benched

    def _chosen(self, tuner: Any, configs: Any, kwargs: Mapping[str, Any]) -> Any:
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
        from .executed import written  # imports torch, which a script may want to set up first

        by_name = {str(one): one for one in configs}
        name = _digest(tuner.base_fn.__name__, _key(tuner, kwargs), sorted(by_name), written(tuner))
        files = {role: self._folder / f"{name}.{role}" for role in ("base", "head")}
        held = {role: file.read_text() for role, file in files.items() if file.is_file()}
        if self._role not in held:
            times = {said: self._time(tuner, one, args, kwargs) for said, one in by_name.items()}
            others = (said for role, said in held.items() if role != self._role)
            held[self._role] = chosen(times, next(others, ""))
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
        held = vars(tuner).get("do_bench")
        named = vars(tuner).get("_do_bench", held) is not None
        if by is None:
            by = tuner.do_bench if named else functools.partial(tuner.do_bench, **SHORT)
        tuner.do_bench = by
        try:
            return float(self._bench(tuner, *args, config=config, **kwargs)[0])
        finally:
            del tuner.do_bench  # what Triton has there is made when it is asked for
            vars(tuner).update({} if held is None else {"do_bench": held})


def chosen(times: Mapping[str, float], other: str) -> str:
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


def _digest(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f"{file.name}.{os.getpid()}")
    partial.write_text(text)
    partial.replace(file)
