"""Where a timer's closure is named, measured, and made into seconds for the script.

Three ways, by what the coordinator asked for: the survey calls every closure a few times and tells what it saw; in a
trial the closures that are wanted wait for the coordinator, who times both sides in turn; all others are called once,
because a script may need what they write.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from .. import failures
from .naming import ClosureNames, TimedName
from .wanted import TimerCall

LIBRARIES = ("triton", "torch", "torchao._models", "_pytest")
"""Packages whose own calls of a timer choose a configuration; they time for themselves."""

TUNERS = ("autotun", "auto_tun", "tuner")
"""So do files and functions with these in their names, unless it is the script itself."""

STEPS = ("examine", "bundle", "samples", "keep_outputs", "compare", "check_after", "drop")
"""What the coordinator asks for of a closure, as of an arm of a case; the arm's label is not needed here."""


@dataclasses.dataclass(frozen=True)
class Timing:
    """What a timer gives back: seconds of a call, by sample, and what a call returned."""

    seconds: list[float]
    output: Any = None


@dataclasses.dataclass(frozen=True)
class ScriptTask:
    """What the coordinator wants.  wanted: keys to be timed in turn; None: survey everything.

    flush_bytes: for cold caches.  seed: of all random numbers.
    """

    wanted: frozenset[str] | None
    seed: int
    gpu: bool
    flush_bytes: int


class Interceptor:
    """Takes the closures of a script.  channel: to the coordinator.  root: the checkout.  script: its path there."""

    def __init__(self, channel: Any, task: ScriptTask, root: str, script: str) -> None:
        self._channel, self._task, self._script = channel, task, script
        self._root = root.rstrip(os.sep) + os.sep
        self._names = ClosureNames(self._is_users)
        self._busy = False
        self._clocks: dict[tuple[bool, bool], Any] = {}
        self._closures: Any = None
        self._begin = time.monotonic()
        self.timed = 0

    def wants(self, frame: FrameType) -> bool:
        """Whether a timer called from this frame is the script's: not a closure's own, and not a tuner's."""
        if self._busy:
            return False
        one: FrameType | None = frame
        while one is not None:
            code, module = one.f_code, str(one.f_globals.get("__name__", ""))
            if code.co_filename == self._script:
                return True
            if module.partition(".")[0] in LIBRARIES and "testing" not in module and "benchmark" not in module:
                return False
            if any(word in f"{os.path.basename(code.co_filename)} {code.co_name}".lower() for word in TUNERS):
                return False
            one = one.f_back
        return True

    def time(self, call: TimerCall, frame: FrameType) -> Timing:
        """Seconds of the closure for the script; nan where it raised, so that the script's other cases come too."""
        name = self._names.of(frame, call.timed, call.named)
        self.timed += 1
        with self._measuring(call.threads):
            bench = self._bench(call)
            if self._task.wanted is None:
                timing, error = self._surveyed(bench, name, call)
            elif name.key in self._task.wanted:
                timing, error = self._in_turn(bench, name)
            else:
                timing, error = _glimpsed(call.call)
            if error is None and call.gives_output:
                timing = dataclasses.replace(timing, output=call.call())
        if error is not None and call.gives_output:
            raise error
        return timing

    # ---- the three ways ------------------------------------------------------------------------------------------

    def _surveyed(self, bench: Any, name: TimedName, call: TimerCall) -> tuple[Timing, BaseException | None]:
        at_s = time.monotonic() - self._begin
        told = {"event": "seen", "backend": name.backend, "case": name.case, "timer": call.timer, "at_s": at_s}
        try:
            facts = bench.examine()
        except Exception as error:
            self._said(**told, error=failures.answer(error), took_s=time.monotonic() - self._begin - at_s)
            return _NOTHING, error
        self._said(**told, facts=facts, took_s=time.monotonic() - self._begin - at_s)
        return Timing([max(facts["expected_s"], 1e-9)]), None

    def _in_turn(self, bench: Any, name: TimedName) -> tuple[Timing, BaseException | None]:
        failed: BaseException | None = None
        request = self._said(event="at", backend=name.backend, case=name.case)
        while request["op"] != "resume":
            try:
                assert request["op"] in STEPS, request["op"]
                fields = {name: value for name, value in request["fields"].items() if name != "label"}
                answer = {"ok": True, "result": getattr(bench, request["op"])(**fields)}
            except Exception as error:
                failed, answer = error, failures.answer(error)
            request = self._channel.exchange(answer)
        return Timing(bench.samples_s) if bench.samples_s else _NOTHING, failed

    # ---- parts ---------------------------------------------------------------------------------------------------

    def _said(self, **event: Any) -> dict[str, Any]:
        """Tell the coordinator that the script is at a timer; returns the request that follows."""
        request: dict[str, Any] = self._channel.exchange({"ok": True, "result": event})
        return request

    def _bench(self, call: TimerCall) -> Any:
        from . import closure  # it needs torch, which the script imports first, if at all

        self._closures = closure
        return self._closures.ClosureBench(call, self._task.seed, lambda gpu: self._clock(gpu, call.hot))

    def _clock(self, gpu: bool, hot: bool) -> Any:
        """The clock of the device, or the host's for closures that never touch one; made once."""
        gpu = gpu and self._task.gpu
        if (gpu, hot) not in self._clocks:
            from .. import clocks

            flush = 0 if hot else self._task.flush_bytes
            torch = sys.modules["torch"]
            device = torch.device("cuda", torch.cuda.current_device()) if gpu else None
            self._clocks[gpu, hot] = clocks.DeviceClock(device, flush, None) if gpu else clocks.HostClock(flush, None)
        return self._clocks[gpu, hot]

    def _is_users(self, file: str) -> bool:
        return file == self._script or (file.startswith(self._root) and "site-packages" not in file)

    @contextlib.contextmanager
    def _measuring(self, threads: int) -> Iterator[None]:
        """Timers inside are their own; as many threads as the timer asks for; afterwards equal random numbers."""
        torch = sys.modules.get("torch") or __import__("torch")
        before = torch.get_num_threads()
        self._busy = True
        try:
            if threads and threads != before:
                torch.set_num_threads(threads)
            yield
        finally:
            self._busy = False
            if torch.get_num_threads() != before:
                torch.set_num_threads(before)
            if self._closures is not None:
                self._closures.seeded(self._task.seed)


_NOTHING = Timing([float("nan")])


def _glimpsed(call: Callable[[], Any]) -> tuple[Timing, BaseException | None]:
    """One call, for what it writes; its time is no measurement."""
    begin = time.perf_counter()
    try:
        call()
    except Exception as error:
        return _NOTHING, error
    return Timing([max(time.perf_counter() - begin, 1e-9)]), None
