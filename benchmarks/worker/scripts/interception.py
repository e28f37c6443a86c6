"""Where a timer's closure is named, measured, and made into seconds for the script.

Three ways, by what the coordinator asked for: the survey calls every closure a few times and tells what it saw; in a
trial the closures that are wanted wait for the coordinator, who times both sides in turn; all others are called once,
because a script may need what they write.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import enum
import functools
import gc
import itertools
import linecache
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import CodeType, FrameType
from typing import Any

from ...channel import error_answer
from ...shapes import JsonObject, text_digest
from . import skipping
from .ranks import Ranks

Call = Callable[[], Any]
"""What is timed: it takes nothing."""

Rounds = Sequence[str] | None
"""Variables that say how often a loop of the script's own calls something; None for a timer of a library."""

LIBRARIES = ("triton", "torch", "torchao._models", "_pytest")
"""Packages whose own calls of a timer choose a configuration; they time for themselves."""

TUNERS = ("autotun", "auto_tun", "tuner")
"""So do files and functions with these in their names, unless it is the script itself."""

STEPS = ("meet", "examine", "bundle", "samples", "keep_outputs", "compare", "check_after", "drop")
"""What the coordinator asks for of a closure, as of an arm of a case; the arm's label is not needed here."""


@dataclasses.dataclass(frozen=True)
class Timing:
    """What a timer gives back: seconds of a call, by sample, and what a call returned."""

    seconds: list[float]
    output: Any = None


@dataclasses.dataclass(frozen=True)
class ScriptTask:
    """What is run, and what the coordinator wants of it.

    script: its path in the checkout.  source: the file whose text runs, of either side.  paths: for imports.
    folder: in which it runs.  packages: names that the repository has, which must come from the checkout.
    pytest: run it by pytest.  wanted: keys to be timed in turn; None: survey everything.  flush_bytes: for cold caches.
    seed: of all random numbers.  tuned: folder in which sides of a session keep which configurations they chose.
    unwanted: calls of functions that need not be made (skipping.Skips).
    rank, world, port, store: see ranks.Ranks.  torchrun: it finds the variables of torchrun from its first line.
    """

    role: str
    checkout: str
    script: str
    source: str
    arguments: Sequence[str]
    folder: str
    paths: Sequence[str]
    packages: Sequence[str]
    pytest: bool
    on_cpu: bool
    wanted: Sequence[str] | None
    seed: int
    gpu: bool
    flush_bytes: int
    tuned: str
    unwanted: Sequence[tuple[str, int, Sequence[str]]]
    rank: int = 0
    world: int = 1
    port: int = 0
    store: str = ""
    torchrun: bool = False


class Interceptor:
    """Takes the closures of a script.  channel: to the coordinator, of this process.  taken: how many it took.

    tuning: a timers.Tuning.  busy: one of them is looked at or timed.
    """

    def __init__(self, channel: Any, task: ScriptTask, ranks: Ranks, tuning: Any) -> None:
        self._channel, self._task, self._script, self._ranks = channel, task, task.script, ranks
        self._root = task.checkout.rstrip(os.sep) + os.sep
        self._names = ClosureNames(self.is_users)
        self.busy = False
        self.process, self._thread = os.getpid(), 0
        self._one_at_a_time = threading.Lock()
        self.taken = 0
        self._clock = functools.cache(self._made_clock)
        self._closures: Any = None
        self._calls = itertools.count(1)
        self.skips = skipping.Skips(task.unwanted, self._root, self._passed, lambda: self.taken)
        self.tuning = tuning
        self._begin = time.monotonic()

    def wants(self, frame: FrameType) -> bool:
        """Whether a timer called from this frame is the script's: not a closure's own, and not a tuner's.

        In a process that the script forked nothing is taken over: the channel is its parent's.
        """
        if (self.busy and self._thread == threading.get_ident()) or os.getpid() != self.process:
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
        with self._one_at_a_time:
            name = self._names.of(frame, call)
            self.taken += 1
            with self._measuring(call.threads):
                bench, users = self._bench(call), list(self._users(frame))
                line = _line_of(users[0]) if users else ""
                here = {"backend": name.backend, "case": name.case, "timer": call.timer, "line": line}
                if self._task.wanted is None:
                    if self._ranks.world > 1:
                        self._said(event="at", **here)  # from here on ranks wait for each other: are all at this timer?
                    calls = skipping.call_names(reversed(users), self._root, self._calls)
                    timing, error = self._surveyed(bench, here, calls)
                    del bench
                    if (cuda := sys.modules["torch"].cuda).is_initialized():
                        gc.collect()
                        cuda.empty_cache()  # the next may need all of the device (97 GiB, seen 2026-11)
                elif name.key in self._task.wanted:
                    with self.tuning.measuring():
                        timing, error = self._in_turn(bench, here)
                else:
                    timing, error = _glimpsed(call.call)
                if error is None and call.gives_output:
                    timing = dataclasses.replace(timing, output=call.call())
            if error is not None and call.gives_output:
                raise error
            return timing

    def wait_for_turn(self, frame: FrameType) -> None:
        """The script makes the group of its ranks: from here on it uses devices, so the coordinator says when."""
        if os.getpid() == self.process:
            begin = time.monotonic()
            self._said(event="group", line=_line_of(next(self._users(frame), frame)))
            self._begin += time.monotonic() - begin

    def name(self, call: TimerCall, frame: FrameType) -> str:
        """The name of a closure, without the number that tells it from others of that name."""
        return self._names.unnumbered(frame, call).key

    # ---- the three ways ------------------------------------------------------------------------------------------

    def _surveyed(
        self, bench: Any, here: Mapping[str, str], calls: Sequence[str]
    ) -> tuple[Timing, BaseException | None]:
        at_s = time.monotonic() - self._begin
        looking, skipped = time.monotonic(), self.tuning.skipped
        failed: BaseException | None = None
        try:
            facts = bench.examine(watch=True) | bench.code()
        except Exception as error:
            told, failed = error_answer(error), error
            facts = {what: told[what] for what in ("status", "why", "detail")}
            if isinstance(error, self._closures.StaleResult):
                facts, failed = {"status": "untimed", "why": str(error)}, None
        took_s = time.monotonic() - looking
        seen = {**here, "at_s": at_s, "took_s": took_s}
        self._said(event="seen", **seen, **facts, untuned=self.tuning.skipped - skipped, calls=calls)
        return Timing([max(facts["expected_s"], 1e-9)]) if "expected_s" in facts else _NOTHING, failed

    def _in_turn(self, bench: Any, here: Mapping[str, str]) -> tuple[Timing, BaseException | None]:
        failed: BaseException | None = None
        request = self._said(event="at", **here)
        while request["op"] != "resume":
            try:
                assert request["op"] in STEPS, request["op"]
                fields = {name: value for name, value in request["fields"].items() if name != "label"}
                answer = {"ok": True, "result": getattr(bench, request["op"])(**fields)}
            except Exception as error:
                failed, answer = error, error_answer(error)
            request = self._channel.exchange(answer)
        return Timing(bench.samples_s) if bench.samples_s else _NOTHING, failed

    # ---- parts ---------------------------------------------------------------------------------------------------

    def _said(self, **event: Any) -> JsonObject:
        """Tell the coordinator that the script is at a timer; returns the request that follows."""
        request: JsonObject = self._channel.exchange({"ok": True, "result": event})
        return request

    def _bench(self, call: TimerCall) -> Any:
        from . import closure  # it needs torch, which the script imports first, if at all

        self._closures = closure
        clock = functools.partial(self._clock, hot=call.hot)
        task = self._task
        return closure.ClosureBench(call, task.seed, clock, self.is_users, task.checkout, self._ranks)

    def _made_clock(self, gpu: bool, hot: bool) -> Any:
        """The clock of the device, or the host's for closures that never touch one."""
        from .. import clocks

        gpu = gpu and self._task.gpu
        flush, barrier = 0 if hot else self._task.flush_bytes, self._ranks.barrier(gpu)
        if not gpu:
            return clocks.HostClock(flush, barrier)
        torch = sys.modules["torch"]
        return clocks.DeviceClock(torch.device("cuda", torch.cuda.current_device()), flush, barrier)

    def _passed(self, keys: Sequence[str]) -> None:
        """Closures of a call that was not made: what comes after it has the names that it has always."""
        self.taken += len(keys)
        self._names.used.update(keys)
        if self._closures is not None:
            self._closures.seeded(self._task.seed)

    def _users(self, frame: FrameType) -> Iterator[FrameType]:
        """The frames of the user's code, the innermost first."""
        return (one for one in _up(frame) if self.is_users(one.f_code.co_filename))

    def is_users(self, file: str) -> bool:
        """Whether a file is the user's: the script, or of the checkout."""
        return file == self._script or (file.startswith(self._root) and "site-packages" not in file)

    @contextlib.contextmanager
    def _measuring(self, threads: int) -> Iterator[None]:
        """Timers inside are their own; as many threads as the timer asks for; afterwards equal random numbers."""
        torch = sys.modules.get("torch") or __import__("torch")
        before = torch.get_num_threads()
        self.busy, self._thread = True, threading.get_ident()
        try:
            if threads and threads != before:
                torch.set_num_threads(threads)
            with _unprofiled(torch):
                yield
        finally:
            self.busy = False
            if torch.get_num_threads() != before:
                torch.set_num_threads(before)
            if self._closures is not None:
                self._closures.seeded(self._task.seed)


@contextlib.contextmanager
def _unprofiled(torch: Any) -> Iterator[None]:
    """A profiler of torch's in which the script times sees nothing of ours: it slows the host of the rank that has it,
    for which the others wait, and digests every event of our samples at its end.
    """
    toggle = getattr(torch._C._autograd, "_toggle_collection_dynamic", None)
    if toggle is None or not torch.autograd._profiler_enabled():
        yield
        return
    of = torch.profiler.ProfilerActivity
    kinds = {of.CPU, of.CUDA, of.XPU}  # it warns of those that are left out, whatever there is (torch 2.11 to 2.13)
    toggle(False, kinds)
    try:
        yield
    finally:
        toggle(True, kinds)


_NOTHING = Timing([float("nan")])


def _glimpsed(call: Call) -> tuple[Timing, BaseException | None]:
    """One call, for what it writes; its time is no measurement."""
    begin = time.perf_counter()
    try:
        call()
    except Exception as error:
        return _NOTHING, error
    return Timing([max(time.perf_counter() - begin, 1e-9)]), None


# What a timed closure is called: by where the script times it, and with which parameters.
#
# A name must be the same in two commits of the library, so it holds no line numbers and no measured values:
#
# backend  the provider, where there is one (an argument or loop variable of such a name, perf_report's line_arg, a
#          Timer's description), else the function that is timed, else the function of the script that times it
# case     the functions of the script that lead to the timer, and the printable scalars among their arguments and among
#          the variables of the loops around the call; a second closure of the same name gets "#2"


PROVIDERS = (
    *("provider", "kernel_provider", "backend", "impl", "implementation", "attn_impl", "engine", "library"),
    *("method", "algo", "variant", "kernel_name", "line"),
)
"""Parameters that say whose code runs; the first that is there and is a text names the backend."""

NO_NAME = (
    "<lambda>",
    "<module>",
    "fn",
    "f",
    "func",
    "fun",
    "wrapper",
    "inner",
    "call",
    "main",
    "run",
    "_run",
    "worker",
    "replay",
)
"""ClosureNames of functions that say nothing."""

REGION, MOST = "ridgeline_", "ridgeline_most"
"""Beginning of the names of functions that a rewritten script has more than the original, and their argument."""

LONGEST, LONGEST_VALUE, MOST_FIELDS = 160, 40, 16
"""Characters of a name and of a value in it; fields of an object that count as parameters."""

NEVER = (
    *("self", "cls", "args", "kwargs", "quantiles", "warmup", "rep", "num_iters", "num_warmup", "device", "verbose"),
    *("iters", "n_iters", "iterations", "repeat", "repeats", "n_repeat", "num_repeats", "trials", "num_trials"),
    *("warmup_iters", "num_warmup_iters", "n_warmup", "warmups", "profile", "benchmark_iters", "profile_ranks"),
    *("flush_l2", "l2_flush", "baseline_backend", "backends", MOST),
    *("rank", "local_rank", "global_rank", "my_rank", "rank_id", "gpu", "gpu_id", "device_id", "port", "init_method"),
)
"""Arguments that say how, or on which rank, something is timed or run, and not what."""


@dataclasses.dataclass(frozen=True)
class TimedName:
    """backend and case of the trial file."""

    backend: str
    case: str

    @property
    def key(self) -> str:
        """Both."""
        return f"{self.backend}/{self.case}"


class ClosureNames:
    """Gives every timed closure of a run its name.  owns: whether a file belongs to the user.

    used: names of those that the script came to, or would have in calls that are not made.
    """

    def __init__(self, owns: Any) -> None:
        self._owns = owns
        self.used: set[str] = set()

    def of(self, frame: FrameType | None, call: TimerCall) -> TimedName:
        """The name of what is timed from a frame."""
        name = self.unnumbered(frame, call)
        numbered = (dataclasses.replace(name, case=f"{name.case}#{number}") for number in itertools.count(2))
        free = next(one for one in itertools.chain([name], numbered) if one.key not in self.used)
        self.used.add(free.key)
        return free

    def unnumbered(self, frame: FrameType | None, call: TimerCall) -> TimedName:
        """The name that several closures may share."""
        frames = [one for one in _up(frame) if self._owns(one.f_code.co_filename)]
        found: dict[str, str] = {}
        for one in reversed(frames):
            found |= _parameters(one, call.rounds)
        found |= {name: text for name, value in call.named.items() if (text := printed(value))}
        provider, found = _provider(found, _line_arg(frame))
        sites = [_short(one.f_code) for one in reversed(frames)]
        own = function_name(call.timed)
        site = ".".join(dict.fromkeys(part for part in (*sites[-2:], own) if part and part not in NO_NAME))
        backend = provider or (own if own not in NO_NAME else "") or site or "script"
        said = ",".join(f"{name}={text}" for name, text in found.items())
        case = ":".join(part for part in (site if site != backend else "", said) if part) or "call"
        return TimedName(_cut(backend), _cut(case))


DTYPES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "float64": "fp64"}
"""The words of the trial file for torch's types."""


def printed(value: Any) -> str:
    """A parameter as text without spaces and slashes, "" for what is none: a tensor, a measured time, an object."""
    if isinstance(value, enum.Enum):
        return _plain(value.name)
    if isinstance(value, (int, str)):
        return _plain(str(value)) if len(str(value)) <= LONGEST_VALUE else ""
    if isinstance(value, float):
        return f"{value:g}"
    if type(value).__name__ in ("dtype", "device") and type(value).__module__ == "torch":
        return DTYPES.get(str(value).removeprefix("torch."), str(value).removeprefix("torch."))
    if isinstance(value, (tuple, list)) and 0 < len(value) <= 8:
        parts = [printed(one) for one in value]
        return "x".join(parts) if all(parts) and len("x".join(parts)) <= LONGEST_VALUE else ""
    if callable(value) and hasattr(value, "__name__"):
        return _plain(value.__name__) if value.__name__ not in NO_NAME else ""
    return ""


def function_name(function: Any) -> str:
    """The name of what is timed: of a partial the inner function's, of a method its own, of a module its class."""
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__name__", "") or type(function).__name__) if function is not None else ""


# ---- parts -------------------------------------------------------------------------------------------------------


def _line_of(frame: FrameType) -> str:
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


def _up(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _short(code: CodeType) -> str:
    name = code.co_qualname.rpartition("<locals>.")[2]
    return "" if name.startswith(("<", REGION)) else name


def _parameters(frame: FrameType, rounds: Rounds) -> dict[str, str]:
    """Arguments of the frame's function, and variables of the loops around its current line."""
    code, local = frame.f_code, frame.f_locals
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    more = code.co_varnames[len(names) + bool(code.co_flags & 0x04)] if code.co_flags & 0x08 else ""
    values = {name: local[name] for name in names if name in local} | dict(local.get(more) or {})
    loops_of = [one for one in _loops(code.co_filename) if rounds is None or not counter(one)]
    around = [one.target for one in loops_of if one.lineno <= frame.f_lineno <= (one.end_lineno or 0)]
    names = [node.id for target in around for node in ast.walk(target) if isinstance(node, ast.Name)]
    loops = {name: local[name] for name in names if name in local and name != "_"}
    found: dict[str, str] = {}
    for name, value in (*values.items(), *loops.items()):
        found |= _printable(name, value) if name not in (rounds or ()) else {}
    return found


def _printable(name: str, value: Any) -> dict[str, str]:
    """A parameter as text; of an object or a small dict, its fields."""
    if name in NEVER or name.startswith("__"):
        return {}
    if text := printed(value):
        return {name: text}
    return {key: text for key, one in _fields(value) if key not in NEVER and (text := printed(one))}


def _fields(value: Any) -> Iterable[tuple[str, Any]]:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        flat = [(field.name, getattr(value, field.name, None)) for field in dataclasses.fields(value)]
    elif isinstance(value, dict):
        named = ((key, one) for key, one in value.items() if not isinstance(one, float))  # a result, perhaps
        flat = [(key, one) for key, one in named if isinstance(key, str) and key.isidentifier()]
    else:
        return ()
    inner = [pair for _, one in flat if isinstance(one, dict) for pair in _fields(one)]
    return [*flat, *inner][:MOST_FIELDS]


def _provider(found: dict[str, str], line: str) -> tuple[str, dict[str, str]]:
    """The backend among the parameters, and the rest."""
    name = next((one for one in (line, *PROVIDERS) if one and one in found), "")
    return found.get(name, ""), {key: text for key, text in found.items() if key != name}


def _line_arg(frame: FrameType | None) -> str:
    """The argument of triton.testing.perf_report that has a value for each line of the plot, if it is running."""
    for one in _up(frame):
        bench = one.f_locals.get("bench") if one.f_code.co_name == "_run" else None
        if isinstance(getattr(bench, "line_arg", None), str):
            return str(bench.line_arg)  # type: ignore[union-attr]
    return ""


@functools.cache
def _loops(file: str) -> list[ast.For]:
    """Every loop of a file; none for a file that cannot be read."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return []
    return [node for node in ast.walk(tree) if isinstance(node, ast.For)]


def counter(node: ast.AST) -> str:
    """The variable of a loop of range(n), which repeats or counts; "" for another statement."""
    if not isinstance(node, ast.For) or node.orelse or not isinstance(node.target, ast.Name):
        return ""
    over = node.iter
    counts = isinstance(over, ast.Call) and getattr(over.func, "id", "") == "range" and len(over.args) == 1
    plain = counts and not any(isinstance(one, ast.Call) for one in ast.walk(over.args[0]))  # type: ignore[attr-defined]
    return node.target.id if plain else ""


def _plain(text: str) -> str:
    return re.sub(r"[^\w.+:=,<>#-]+", "-", text.replace("torch.", "")).strip("-")


def _cut(name: str) -> str:
    """A name of bounded length: a long one ends in a digest of all of it."""
    if len(name) <= LONGEST:
        return name
    return f"{name[: LONGEST - 9]}~{text_digest(name, 8)}"


# What a timer was asked for, in one form for all of them.


@dataclasses.dataclass(frozen=True)
class TimerCall:
    """timer: its name.  call: the closure, without arguments.  roots: where its tensors are looked for.

    no_grad_of: tensors whose gradients are cleared before each call.  before: called before each call, untimed.
    threads: of torch, 0 for as they are.  hot: it asks for warm caches.  named: parameters that it knows.  function:
    what is timed, for its name.  gives_output: the script gets what the call returned.  rounds: of a loop of the
    script's own, variables that say how often it is called.
    """

    timer: str
    call: Call
    roots: tuple[Any, ...] = ()
    no_grad_of: tuple[Any, ...] = ()
    before: Call | None = None
    threads: int = 0
    hot: bool = False
    named: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    function: Any = dataclasses.field(default="call")
    gives_output: bool = False
    rounds: Rounds = None

    @property
    def timed(self) -> Any:
        """The function that gives the closure its name."""
        return self.call if self.function == "call" else self.function
