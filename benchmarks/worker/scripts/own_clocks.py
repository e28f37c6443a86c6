"""Loops with a clock of their own, in the text of a script: what stands between two readings becomes a timed closure.

Two forms are known, each in one list of statements:

    t0 = time.perfcounter()              start.record()                     (torch.cuda.Event, torch.Event)
    for _ in range(n): call()             for _ in range(n): call()
    torch.cuda.synchronize()              end.record()
    t1 = time.perfcounter()              ... start.elapsed_time(end)

What stands in a `with` of a profiler (torch.profiler.profile, a variable that may hold one, triton.profiler's scopes, a
context of the script's own with proton in its name) is such a region, too; the script has from the profiler what it
shows, of a run beside ours.  A profiler around a region that has clocks is left out where nothing reads it: it takes
0.1 to 1 s of a rank for which the others wait.  What flushes a cache before a call is not in what is timed: the harness
does that.

The text is rewritten before it is compiled, lines kept.  What is timed stays as it is and runs once as the script has
it, but for a loop whose rounds are all alike, of which some are enough; unless timers went off inside (then it is the
script's way of saying how long all took, and is left alone), one round of the loop, or all of it where it is no loop of
`range`, is handed to the interceptor, and the script's readings are as far apart as the samples say.  A region that is
met again with the same name and the same objects, as a warm-up or a repetition is, is not timed again; in a loop around
it some of its rounds are enough, and of a loop that calls the same without a clock, to warm up.  Where a region cannot
be handed over, its line is kept with the reason.
"""

from __future__ import annotations

import ast
import builtins
import copy
import dataclasses
import os
import statistics
import sys
import weakref
from collections import ChainMap
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .interception import MOST, REGION, Interceptor, TimerCall, counter

CLOCKS = ("perf_counter", "perf_counter_ns", "time", "time_ns", "monotonic", "monotonic_ns", "default_timer")
"""Functions of `time` and `timeit` that scripts read."""

WAITS = ("synchronize", "sync", "cudaProfilerStart", "cudaProfilerStop", "_sleep")
"""Calls that wait or mark, and time nothing."""

COLLECTIVES = ("all_reduce", "all_gather", "all_to_all", "reduce_scatter", "broadcast", "barrier")
"""How the names of functions begin in which ranks wait for each other."""

CACHES = ("cache", "flush", "l2")
"""In the name of what is written, or called, to flush a cache."""

CLOCK = "ridgeline_clock"
"""Under this name a rewritten text has its `OwnClocks`."""

ROUNDS = 10
"""Of a loop whose rounds are alike, that are run for what they leave to the script; one where it was timed before.
Scripts ask for up to 10,000, by their own clock: minutes on two sides, for nothing (vLLM, 2026-11)."""

OWN_SCOPE = (
    *(ast.Return, ast.Yield, ast.YieldFrom, ast.Await, ast.AsyncFor, ast.AsyncWith, ast.Delete),
    *(ast.FunctionDef, ast.ClassDef, ast.Global, ast.Nonlocal, ast.Import, ast.ImportFrom),
)
"""What cannot stand in a function of its own."""

KEEPS = ("append", "extend", "add", "insert", "update", "put")
"""Methods that keep what a round computes: the script may want that of every round."""

APART = "its two readings are not in one list of statements"
"""Why what stands between them is not taken over."""

MOST_TOLD = 10
"""Regions that could not be taken over, and are told."""


def rewritten(tree: ast.Module, file: str, clocks: OwnClocks) -> ast.Module | None:
    """A module in which regions are handed over; None where nothing reads a clock, or is in a profiler."""
    rewriter = _Rewriter(tree, os.path.basename(file))
    if not rewriter.names:
        return None
    tree = ast.fix_missing_locations(rewriter.visit(tree))
    clocks.untaken += rewriter.untaken
    clocks.totals += rewriter.totals
    if not (rewriter.count or rewriter.untaken or rewriter.totals):
        read: list[Any] = [node for node in ast.walk(tree) if rewriter.is_clock(node)]
        clocks.totals += [f"{rewriter.file}:{node.lineno}: {APART}" for node in read[:1]]
    return tree


class OwnClocks:
    """What rewritten texts call.

    untaken: "FILE:LINE: why" of regions that are left as they are.  totals: of those that say how long all took.
    """

    def __init__(self, to: Interceptor) -> None:
        self._to = to
        self._known: dict[Any, tuple[Sequence[Any], float | None]] = {}
        self._pairs: dict[tuple[int, int], tuple[Any, Any, float | None]] = {}
        self._met: dict[str, tuple[int, float | None]] = {}
        self.untaken: list[str] = []
        self.totals: list[str] = []

    def region(
        self,
        site: str,
        timer: str,
        once: Callable[[], Any],
        whole: Callable[[int], Any],
        many: Callable[[], int],
        reads: Sequence[str],
        function: Callable[[], Any] | None,
        rounds: Sequence[str],
        alike: bool,
    ) -> float | None:
        """Seconds between the two readings, None for what the clock says.

        once: one round.  whole: as the script has it, in so many rounds where they are alike.  many: rounds.
        reads: variables that a round reads.  function: what is called, for its name.  rounds: variables that say how
        many.  alike: it does the same in every round of the loop around it.
        """
        times, seconds = self._met.get(site, (0, None))
        if times >= ROUNDS and seconds is not None:
            return seconds * max(1, many())
        frame = sys._getframe(1)
        if not self._to.wants(frame):
            whole(sys.maxsize)
            return None

        def call_and_key() -> tuple[TimerCall, Any]:
            scope = ChainMap(frame.f_locals, frame.f_globals)
            values = {name: scope[name] for name in reads if name in scope}
            named = _read(function) if function else None
            call = TimerCall(timer, once, tuple(values.values()), function=named, rounds=rounds)
            return call, (site, self._to.name(call, frame), *((name, _mark(one)) for name, one in values.items()))

        before = self._to.taken
        whole(ROUNDS if self._held(call_and_key()[1]) is None else 1)
        if self._to.taken != before:
            return None
        call, key = call_and_key()
        seconds = self._held(key)
        if seconds is None:
            seconds = statistics.fmean(self._to.time(call, frame).seconds)
            self._known[key] = list(filter(None, map(_weak, call.roots))), seconds
        if alike:
            self._met[site] = times + 1, seconds
        return seconds * max(1, many())

    def _held(self, key: Any) -> float | None:
        """Seconds of a round of a region that was timed, as long as its objects live."""
        refs, seconds = self._known.get(key, ((), None))
        return None if any(ref() is None for ref in refs) else seconds

    def rounds(self, over: range, most: int) -> Iterator[int]:
        """At most so many, the last among them; all of them once a timer went off in one."""
        before = self._to.taken
        for at, one in enumerate(over, 1):
            if at < most or at == len(over) or self._to.taken != before:
                yield one

    def repeated(self, over: range) -> Iterator[int]:
        """The rounds of a loop around regions: only in one run of it are they alike."""
        outer, self._met = self._met, {}
        try:
            yield from over
        finally:
            self._met = outer

    def events(self, start: Any, end: Any, seconds: float | None) -> None:
        """Two events lie so far apart; None for what they say themselves."""
        self._pairs[id(start), id(end)] = start, end, seconds

    def elapsed(self, start: Any, end: Any) -> Any:
        """start.elapsed_time(end): milliseconds."""
        pair, frame = self._pairs.get((id(start), id(end))), sys._getframe(1)
        if pair is None and self._to.wants(frame):
            line = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
            told = f"{line}: its events are recorded apart, not in one list of statements"
            self.untaken += [told] if told not in self.untaken else []
        return start.elapsed_time(end) if pair is None or pair[2] is None else 1e3 * pair[2]

    @staticmethod
    def after(begin: Any, seconds: float | None, reading: Any) -> Any:
        """The reading of a clock so many seconds after another, or its own; one of whole numbers counts nanoseconds."""
        if seconds is None:
            return reading
        return begin + (round(1e9 * seconds) if isinstance(begin, int) else seconds)


def _read(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except Exception:  # a name that has no value yet, an attribute that is not there
        return None


def _mark(value: Any) -> Any:
    """What tells a value from another one: of a tensor shape and type, of other objects which one it is."""
    if isinstance(value, (int, float, complex, str, bytes, type(None))):
        return value
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    return (tuple(shape), str(dtype)) if isinstance(shape, tuple) and dtype is not None else id(value)


def _weak(value: Any) -> Any:
    try:
        return None if isinstance(_mark(value), tuple) else weakref.ref(value)
    except TypeError:  # a list, a dict, a number
        return None


# The rewriting.


class _Untaken(Exception):
    """Why a region is not taken over."""


@dataclasses.dataclass(frozen=True)
class _Begin:
    """Of a region: the variable that holds the first reading of the host's clock, or the event that is recorded."""

    held: ast.expr
    host: bool


class _Total(_Untaken):
    """Why a region is taken for the time of the whole script, or of a part of it that is no benchmark."""


class _Rewriter(ast.NodeTransformer):
    """Rewrites a module.  names: of what reads a clock in it, in any way.  count: regions that it has handed over."""

    def __init__(self, tree: ast.Module, file: str) -> None:
        self.file = file
        self._readings = _readings(tree)
        self._scopes: list[ast.AST] = [tree]
        self._loops: list[ast.For] = []
        self._repeated = False
        self._timed: set[tuple[ast.AST, str]] = set()
        self._warm_ups: list[tuple[ast.AST, ast.For]] = []
        self.count = 0
        made = [one for one in ast.walk(tree) if isinstance(one, ast.Assign) and any(map(_is_profiler, ast.walk(one)))]
        self._profilers = {one.id for node in made for one in node.targets if isinstance(one, ast.Name)}
        profilers = {"profile" for node in ast.walk(tree) if self._profiles(node)}
        events = {"elapsed_time"} & {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        self._events = events
        self.names = self._readings | events | profilers
        self.untaken: list[str] = []
        self.totals: list[str] = []

    def visit(self, node: ast.AST) -> Any:
        """Inner regions first: what holds one is no region."""
        scope = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda))
        outer = self._loops
        repeated = self._repeated
        self._repeated = isinstance(node, ast.For) or (repeated and not scope)
        if scope:
            self._scopes.append(node)
            self._loops = []
        elif counter(node):
            self._loops = [*outer, node]
        node = super().generic_visit(node)
        for field in ("body", "orelse", "finalbody"):
            if isinstance(held := getattr(node, field, None), list):
                setattr(node, field, self._rewritten(held))
        if isinstance(node, ast.For) and self._loops != outer:
            if _has_clock(node):
                node.iter = ast.copy_location(_call("repeated", node.iter), node)
            elif _alike(node.body, [node]):
                self._warm_ups.append((self._scopes[-1], node))
        self._loops, self._repeated = outer, repeated
        for where, loop in self._warm_ups if isinstance(node, ast.Module) else ():
            if (where, _work(loop.body)) in self._timed:
                loop.iter = ast.copy_location(_call("rounds", loop.iter, ast.Constant(ROUNDS)), loop)
        if scope:
            self._scopes.pop()
        called = node.func if isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords else None
        if isinstance(called, ast.Attribute) and called.attr == "elapsed_time":
            return ast.copy_location(_call("elapsed", called.value, node.args[0]), node)
        return node

    def _rewritten(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        done: list[ast.stmt] = []
        left = list(statements)
        while left:
            first = left.pop(0)
            if isinstance(first, ast.With) and self._profiles(first):
                timed = _has_clock(first)
                if not (timed and self._is_read(first.items[0])):
                    done += first.body if timed else self._of_profiler(first)
                    continue
            done.append(first)
            begins = self._begins(first)
            if not begins:
                continue
            at = next((index for index, one in enumerate(left) if self._ends(begins, one)), None)
            if at is None:
                continue
            inside, last = left[:at], left[at]
            if not any(_calls(one) for one in inside) or any(map(_has_clock, inside)):
                continue
            try:
                made, name = self._handed_over(inside, all(one.host for one in begins), before=done[-2:-1])
            except _Untaken as why:
                told = self.totals if isinstance(why, _Total) else self.untaken
                told.append(f"{self.file}:{inside[0].lineno}: {why}")
                continue
            done += [ast.copy_location(one, inside[0]) for one in made]
            done += self._read_after(self._ends(begins, last), last, name)
            left = left[at + 1 :]
        return done

    def _of_profiler(self, node: ast.With) -> list[ast.stmt]:
        """Statements in place of a profiler's `with`, which runs as it stands beside what is handed over."""
        try:
            made, _ = self._handed_over([node], False, node.body, "profiler")
        except _Untaken as why:
            self.untaken.append(f"{self.file}:{node.lineno}: {why}")
            return [node]
        return [ast.copy_location(one, node) for one in made]

    def _profiles(self, node: ast.AST) -> bool:
        """Whether it is the `with` of a profiler."""
        items = [one.context_expr for one in node.items] if isinstance(node, ast.With) else []
        return any(_is_profiler(one) or getattr(one, "id", "") in self._profilers for one in items)

    def _is_read(self, item: ast.withitem) -> bool:
        """Whether a profiler is used anywhere but in its `with`."""
        name = getattr(item.optional_vars or item.context_expr, "id", "")
        loads = [node for node in ast.walk(self._scopes[-1]) if isinstance(node, ast.Name) and node.id == name]
        return sum(isinstance(node.ctx, ast.Load) for node in loads) > (item.optional_vars is None)

    # ---- where a region begins and ends --------------------------------------------------------------------------

    def _begins(self, one: ast.stmt) -> list[_Begin]:
        """Readings with which regions may begin; of a choice the last in both branches, or none."""
        if isinstance(one, ast.If):
            ways = [self._begins(branch[-1]) if branch else [] for branch in (one.body, one.orelse)]
            return sum(ways, []) if all(ways) else []
        if isinstance(one, ast.Assign) and self.is_clock(one.value):
            return [_Begin(one.targets[0], True)]
        event = self._recorded(one)
        return [] if event is None else [_Begin(event, False)]

    def _recorded(self, one: ast.stmt) -> ast.expr | None:
        """The event that a statement records."""
        return one.value.func.value if self._events and _callee(one).endswith(".record") else None  # type: ignore

    def _ends(self, begins: list[_Begin], one: ast.stmt) -> list[tuple[_Begin, ast.stmt]]:
        """Regions that end in a statement, each with the statement that reads the clock again."""
        return [(begin, end) for begin in begins for end in _first(one) if self._ends_at(begin, end)]

    def _ends_at(self, begin: _Begin, one: ast.stmt) -> bool:
        if not begin.host:
            event = self._recorded(one)
            return event is not None and ast.dump(event) != ast.dump(begin.held)
        reading = self._reading(one)
        held = one.targets[0] if isinstance(one, ast.Assign) and one.value is reading else reading
        return held is not None and self._subtracts(held, begin.held)

    def _reading(self, one: ast.stmt) -> ast.Call | None:
        """The reading of a clock in a simple statement."""
        if hasattr(one, "body"):
            return None
        return next((node for node in ast.walk(one) if self.is_clock(node)), None)  # type: ignore[return-value]

    def _subtracts(self, later: ast.expr, begin: ast.expr) -> bool:
        """Whether the scope has the difference of the two readings somewhere."""
        differences = (node for node in ast.walk(self._scopes[-1]) if isinstance(node, ast.BinOp))
        return any(
            isinstance(node.op, ast.Sub)
            and ast.unparse(node.right) == ast.unparse(begin)
            and ast.unparse(node.left) == ast.unparse(later)
            for node in differences
        )

    def is_clock(self, node: ast.AST) -> bool:
        """Whether it reads a clock."""
        return isinstance(node, ast.Call) and ast.unparse(node) in self._readings

    # ---- what a region becomes -----------------------------------------------------------------------------------

    def _handed_over(
        self,
        inside: list[ast.stmt],
        host: bool,
        within: list[ast.stmt] | None = None,
        timer: str = "",
        before: Sequence[ast.stmt] = (),
    ) -> tuple[list[ast.stmt], str]:
        """Statements in place of the region, and the name of the variable with its seconds.

        within: what of it is timed, where that is not all.  before: the statement before it, which may wait.
        """
        if isinstance(self._scopes[-1], ast.ClassDef):
            raise _Untaken("it stands in the body of a class")
        doing = inside if within is None else [one for one in within if not _steps(one)]
        loop = self._loop(doing)
        body = loop.body if loop is not None else doing
        repeated = (
            loop is not None or self._repeated or (len(self._scopes) > 1 and any(map(_meets, (*before, *inside))))
        )
        if host and not repeated:
            raise _Total("it runs once, and nothing waits for a device: taken for a total")
        _refuse(inside)
        body = [one for one in body if not (_waits(one) or _flushes(one) or (timer and _steps(one)))]
        if not any(map(_calls, body)):
            raise _Untaken("it calls nothing")
        self.count += 1
        self._timed.add((self._scopes[-1], _work(body)))
        once, whole, name = (f"{REGION}{what}_{self.count}" for what in ("once", "whole", "seconds"))
        carried, stored, read = _names(body)
        own = {counter(loop)} if loop is not None else set()
        reads = sorted((read - own - set(map(counter, self._loops))) | (carried - own))
        marked = [one for one in reads if one not in carried]
        made: list[ast.stmt] = []
        written = sorted(_names(inside)[1])
        if written and len(self._scopes) > 1:  # a name that only the region binds is to be one of the function
            made += ast.parse(f"if 0: {' = '.join(written)} = None").body
        made += [
            self._function(
                once, body if loop is None else [_one_round(loop, body)], sorted(carried - own), loop is None
            ),
            self._whole(whole, inside, written, loop if within is None else None),
        ]
        many = ast.Constant(1) if loop is None else loop.iter.args[0]  # type: ignore[attr-defined]
        names = ast.Tuple([ast.Constant(one) for one in marked], ast.Load())
        called = _called(body)
        function = _lambda(called) if called is not None else ast.Constant(None)
        named = ast.Constant(timer or ("clock" if host else "events"))
        counts = ast.Tuple([ast.Constant(n.id) for n in ast.walk(many) if isinstance(n, ast.Name)], ast.Load())
        site = ast.Constant(f"{self.file}:{self.count}")
        alike = ast.Constant(
            bool(self._loops) and _alike(inside, self._loops) and not self._differ(inside, reads, written)
        )
        taken = _call("region", site, named, _load(once), _load(whole), _lambda(many), names, function, counts, alike)
        made.append(ast.Assign([ast.Name(name, ast.Store())], taken))
        return made, name

    def _differ(self, inside: list[ast.stmt], reads: Sequence[str], written: Sequence[str]) -> bool:
        """Whether the loop around a region gives it other values in every round, or takes what it computes in each."""
        own = set(map(id, _nodes(inside)))
        others = [one for one in _nodes(self._loops[-1].body) if isinstance(one, ast.Name) and id(one) not in own]
        return any(one.id in (reads if isinstance(one.ctx, ast.Store) else written) for one in others)

    def _loop(self, inside: list[ast.stmt]) -> ast.For | None:
        """The loop of range(n), if it is all that the region does beside waiting, for a device or for other ranks."""
        doing = [one for one in inside if not (_waits(one) or _callee(one).endswith("barrier"))]
        return doing[0] if len(doing) == 1 and counter(doing[0]) else None  # type: ignore[return-value]

    def _whole(self, name: str, inside: list[ast.stmt], written: list[str], loop: ast.For | None) -> ast.FunctionDef:
        """What stands in the region, as a function of how many rounds are enough of a loop whose rounds are alike."""
        if loop is not None and _alike(loop.body, [loop]):
            few = copy.copy(loop)
            few.iter = _call("rounds", loop.iter, _load(MOST))
            inside = [few if one is loop else one for one in inside]
        made = self._function(name, [self._declared(written), *inside] if written else inside, (), False)
        made.args.args = [ast.arg(MOST)]
        return made

    def _declared(self, written: list[str]) -> ast.stmt:
        scope = self._scopes[-1]
        if isinstance(scope, ast.Module):
            return ast.Global(written)
        outer = {name for node in ast.walk(scope) if isinstance(node, ast.Global) for name in node.names}
        if shared := outer & set(written):
            raise _Untaken(f"it writes the global {min(shared)}")
        return ast.Nonlocal(written)

    @staticmethod
    def _function(name: str, body: list[ast.stmt], carried: Sequence[str], returns: bool) -> ast.FunctionDef:
        body = copy.deepcopy(_returning(body) if returns else body)
        arguments = ast.arguments(
            [], [ast.arg(one) for one in carried], None, [], [], None, [_load(n) for n in carried]
        )
        made = ast.FunctionDef(name, arguments, body, [])
        made.type_params = []
        return made

    def _read_after(self, ends: list[tuple[_Begin, ast.stmt]], last: ast.stmt, name: str) -> list[ast.stmt]:
        """The second reading."""
        statements: Any = [last]
        for begin, one in ends:
            if begin.host:
                old: Any = self._reading(one)
                new: Any = ast.copy_location(_call("after", _loaded(begin.held), _load(name), old), old)
            else:
                events = _call("events", *map(copy.deepcopy, (begin.held, self._recorded(one))), _load(name))
                old, new = one, [one, ast.copy_location(ast.Expr(events), one)]
            statements = _Replaced(old, new).visit(ast.Module(statements, [])).body
        return statements


class _Replaced(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST | list[ast.stmt]) -> None:
        self._old, self._new = old, new

    def visit(self, node: ast.AST) -> Any:
        return self._new if node is self._old else self.generic_visit(node)


def _readings(tree: ast.Module) -> set[str]:
    """Texts by which a module reads a clock of `time` or `timeit`: "time.perf_counter()"."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules = [one.asname or one.name for one in node.names if one.name in ("time", "timeit")]
            found |= {f"{module}.{clock}()" for module in modules for clock in CLOCKS}
        elif isinstance(node, ast.ImportFrom) and node.module in ("time", "timeit"):
            found |= {f"{one.asname or one.name}()" for one in node.names if one.name in CLOCKS}
    return found


def _first(one: ast.stmt) -> Iterator[ast.stmt]:
    """A statement; of a choice those in its branches before which nothing is called."""
    if not isinstance(one, ast.If):
        yield one
        return
    for branch in (one.body, one.orelse):
        for inner in branch:
            yield from _first(inner)
            if not _waits(inner):
                break


def _nodes(statements: Sequence[ast.AST]) -> Iterator[ast.AST]:
    for one in statements:
        yield from ast.walk(one)


def _calls(one: ast.stmt) -> bool:
    """Whether a statement calls what does something."""
    return any(isinstance(node, ast.Call) and not _waiting(node) for node in ast.walk(one))


def _waiting(node: ast.Call) -> bool:
    return ast.unparse(node.func).rpartition(".")[2] in (*WAITS, "range", "cudart")


def _waits(one: ast.stmt) -> bool:
    """Whether a statement only waits: for a device, or for nothing."""
    if isinstance(one, ast.If):
        return _both_ways(one, _waits)
    if not isinstance(one, ast.Expr):
        return isinstance(one, ast.Pass)
    return not _calls(one) or (isinstance(one.value, ast.Call) and _waiting(one.value))


def _meets(one: ast.stmt) -> bool:
    """Whether a statement waits, or calls a collective."""
    called = (ast.unparse(node.func).rpartition(".")[2] for node in ast.walk(one) if isinstance(node, ast.Call))
    return _waits(one) or any(name.startswith(COLLECTIVES) for name in called)


def _both_ways(one: ast.If, does: Callable[[ast.stmt], bool]) -> bool:
    """Whether a choice does nothing but this, whatever is chosen."""
    return all(map(does, [*one.body, *one.orelse])) and not _calls(ast.Expr(one.test))


def _callee(one: ast.stmt) -> str:
    """What a statement calls, where it is nothing but a call, as text; else ""."""
    called = one.value.func if isinstance(one, ast.Expr) and isinstance(one.value, ast.Call) else None
    return ast.unparse(called) if called is not None else ""


def _is_profiler(made: ast.AST) -> bool:
    """Whether an expression makes a profiler."""
    name = ast.unparse(made.func) if isinstance(made, ast.Call) else ""
    return name.rpartition(".")[2] == "profile" or "proton" in name


def _flushes(one: ast.stmt) -> bool:
    """Whether a statement only flushes a cache: `cache.zero_()`, `clear_cache(c)`, or that if it is asked for."""
    if isinstance(one, ast.If):
        return _both_ways(one, _flushes)
    return any(word in _callee(one).lower() for word in CACHES)


def _steps(one: ast.stmt) -> bool:
    """Whether a statement tells a profiler that a step is done: `prof.step()`."""
    return _callee(one).endswith(".step")


def _has_clock(node: ast.AST) -> bool:
    """Whether a region in it was handed over."""
    return any(getattr(one, "id", "") == CLOCK for one in ast.walk(node))


def _refuse(inside: list[ast.stmt]) -> None:
    """_Untaken for what cannot stand in a function of its own."""
    for node in _nodes(inside):
        if isinstance(node, OWN_SCOPE):
            raise _Untaken(f"{ast.unparse(node).strip('(').split()[0]} stands in it")
        if isinstance(node, ast.Name) and node.id in ("super", "locals", "exec", "eval"):
            raise _Untaken(f"it calls {node.id}()")
    if any(isinstance(node, (ast.Break, ast.Continue)) for one in inside for node in _outside_loops(one)):
        raise _Untaken("it leaves a loop")


def _alike(body: Sequence[ast.stmt], loops: Sequence[ast.For]) -> bool:
    """Whether every round of loops does the same and leaves nothing but its own: it changes no container, carries
    nothing on, and knows its number modulo something at most.
    """
    nodes, counters = list(_nodes(body)), set(map(counter, loops))
    modulo = [node.left for node in nodes if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod)]
    numbered = [node for node in nodes if getattr(node, "id", "") in counters and node not in modulo]
    stored = [node for node in nodes if isinstance(getattr(node, "ctx", None), ast.Store)]
    kept = [node for node in nodes if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in KEEPS]
    plain = all(isinstance(one, (ast.Name, ast.Tuple)) for one in stored)
    return plain and not (numbered or kept or _names(body)[0])


def _work(body: Sequence[ast.stmt]) -> str:
    """What statements compute, as text, apart from waiting and flushing."""
    work = [one for one in body if not (_waits(one) or _flushes(one))]
    return " ".join(ast.dump(getattr(one, "value", None) or one) for one in work)


def _outside_loops(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    if not isinstance(node, (ast.For, ast.While)):
        for one in ast.iter_child_nodes(node):
            yield from _outside_loops(one)


def _names(statements: Sequence[ast.stmt]) -> tuple[set[str], set[str], set[str]]:
    """(read and then written, written, read before they are written), builtins left out of what is read.

    In the order of the text, but that an assignment writes behind its value; names of comprehensions and lambdas are
    their own.
    """
    nodes = list(_nodes(statements))
    inner = {
        name.id
        for one in nodes
        if isinstance(one, ast.comprehension)
        for name in ast.walk(one.target)
        if isinstance(name, ast.Name)
    }
    inner |= {one.arg for node in nodes if isinstance(node, ast.Lambda) for one in node.args.args}
    assigned = [node for node in nodes if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign))]
    behind = {
        id(name): (one.end_lineno, one.end_col_offset)
        for one in assigned
        for name in _nodes(one.targets if isinstance(one, ast.Assign) else [one.target])
    }
    both = {id(one.target) for one in assigned if isinstance(one, ast.AugAssign)}
    names = [node for node in nodes if isinstance(node, ast.Name) and node.id not in inner]
    carried, stored, read = set[str](), set[str](), set[str]()
    for name in sorted(names, key=lambda one: behind.get(id(one), (one.lineno, one.col_offset))):
        if isinstance(name.ctx, ast.Load) or id(name) in both:
            read |= {name.id} - stored
        if not isinstance(name.ctx, ast.Load):
            carried |= {name.id} & read
            stored.add(name.id)
    return carried, stored, {name for name in read if not hasattr(builtins, name)}


def _one_round(loop: ast.For, body: list[ast.stmt]) -> ast.stmt:
    """The loop's first round; what it returns is what its last statement computes."""
    over = ast.Call(_load("range"), [ast.Constant(1)], [])
    return ast.For(copy.deepcopy(loop.target), over, _returning(body), [])


def _returning(body: list[ast.stmt]) -> list[ast.stmt]:
    """Statements that return what the last of them computes."""
    last = body[-1]
    if isinstance(last, ast.Expr):
        return [*body[:-1], ast.Return(last.value)]
    if isinstance(last, ast.Assign) and isinstance(last.targets[0], (ast.Name, ast.Tuple)):
        return [*body, ast.Return(_loaded(last.targets[0]))]
    return body


def _called(body: Sequence[ast.stmt]) -> ast.expr | None:
    """The function that a body of one call calls, where naming it calls nothing."""
    value = getattr(body[-1], "value", None) if len(body) == 1 else None
    called = value.func if isinstance(value, ast.Call) else None
    quiet = (ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.Load)
    plain = called is not None and all(isinstance(one, quiet) for one in ast.walk(called))
    return copy.deepcopy(called) if plain else None


def _loaded(target: ast.expr) -> ast.expr:
    return ast.parse(ast.unparse(target), mode="eval").body


def _load(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _lambda(value: ast.expr) -> ast.Lambda:
    return ast.Lambda(ast.arguments([], [], None, [], [], None, []), copy.deepcopy(value))


def _call(method: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Attribute(_load(CLOCK), method, ast.Load()), list(arguments), [])
