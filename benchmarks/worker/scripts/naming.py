"""What a timed closure is called: by where the script times it, and with which parameters.

A name must be the same in two commits of the library, so it holds no line numbers and no measured values:

backend  the provider, where there is one (an argument or loop variable of such a name, perf_report's line_arg, a
         Timer's description), else the function that is timed, else the function of the script that times it
case     the functions of the script that lead to the timer, and the printable scalars among their arguments and among
         the variables of the loops around the call; a second closure of the same name gets "#2"
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import functools
import hashlib
import linecache
import re
from collections.abc import Iterable, Iterator, Mapping
from types import CodeType, FrameType
from typing import Any

PROVIDERS = (
    *("provider", "kernel_provider", "backend", "impl", "implementation", "attn_impl", "engine", "library"),
    *("method", "algo", "variant", "kernel_name", "line"),
)
"""Parameters that say whose code runs; the first that is there and is a text names the backend."""

NO_NAME = (
    *("<lambda>", "<module>", "fn", "f", "func", "fun", "wrapper", "inner", "call", "main", "run", "_run", "worker"),
)
"""ClosureNames of functions that say nothing."""

LONGEST, LONGEST_VALUE, MOST_FIELDS = 160, 40, 16
"""Characters of a name and of a value in it; fields of an object that count as parameters."""

NEVER = ("self", "cls", "args", "kwargs", "quantiles", "warmup", "rep", "num_iters", "num_warmup", "device", "verbose")
"""Arguments that say how something is timed or run, and not what."""


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
    """Gives every timed closure of a run its name.  owns: whether a file belongs to the user."""

    def __init__(self, owns: Any) -> None:
        self._owns = owns
        self._seen: dict[TimedName, int] = {}

    def of(self, frame: FrameType | None, function: Any = None, more: Mapping[str, Any] | None = None) -> TimedName:
        """The name of what is timed from a frame.  function: the timed one.  more: parameters that the timer knows."""
        frames = [one for one in _up(frame) if self._owns(one.f_code.co_filename)]
        found: dict[str, str] = {}
        for one in reversed(frames):
            found |= _parameters(one)
        found |= {name: text for name, value in (more or {}).items() if (text := printed(value))}
        provider, found = _provider(found, _line_arg(frame))
        sites = [_short(one.f_code) for one in reversed(frames)]
        own = function_name(function)
        site = ".".join(dict.fromkeys(part for part in (*sites[-2:], own) if part and part not in NO_NAME))
        backend = provider or (own if own not in NO_NAME else "") or site or "script"
        said = ",".join(f"{name}={text}" for name, text in found.items())
        case = ":".join(part for part in (site if site != backend else "", said) if part) or "call"
        return self._numbered(TimedName(_cut(backend), _cut(case)))

    def _numbered(self, name: TimedName) -> TimedName:
        count = self._seen[name] = self._seen.get(name, 0) + 1
        return name if count == 1 else TimedName(name.backend, f"{name.case}#{count}")


DTYPES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "float64": "fp64"}
"""The words of the trial file for torch's types."""


def printed(value: Any) -> str:
    """A parameter as text without spaces and slashes, "" for what is none: a tensor, a measured time, an object."""
    if isinstance(value, enum.Enum):
        return _plain(value.name)
    if isinstance(value, (bool, int, str)):
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


def _up(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _short(code: CodeType) -> str:
    name = code.co_qualname.rpartition("<locals>.")[2]
    return "" if name.startswith("<") else name


def _parameters(frame: FrameType) -> dict[str, str]:
    """Arguments of the frame's function, and variables of the loops around its current line."""
    code, local = frame.f_code, frame.f_locals
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    more = code.co_varnames[len(names) + bool(code.co_flags & 0x04)] if code.co_flags & 0x08 else ""
    values = {name: local[name] for name in names if name in local} | dict(local.get(more) or {})
    loops = {name: local[name] for name in _loop_variables(code.co_filename, frame.f_lineno) if name in local}
    found: dict[str, str] = {}
    for name, value in (*values.items(), *loops.items()):
        found |= _printable(name, value)
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
        flat = [(key, one) for key, one in value.items() if isinstance(key, str) and key.isidentifier()]
    elif hasattr(value, "_fields"):
        flat = [(key, getattr(value, key, None)) for key in value._fields]
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
def _loops(file: str) -> tuple[tuple[int, int, tuple[str, ...]], ...]:
    """(first line, last line, variables) of every loop of a file; () for a file that cannot be read."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return ()
    found = [node for node in ast.walk(tree) if isinstance(node, ast.For)]
    named = [(node, [n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)]) for node in found]
    return tuple((node.lineno, node.end_lineno or node.lineno, tuple(names)) for node, names in named)


def _loop_variables(file: str, line: int) -> list[str]:
    return [name for first, last, names in _loops(file) if first <= line <= last for name in names if name != "_"]


def _plain(text: str) -> str:
    return re.sub(r"[^\w.+:=,<>#-]+", "-", text.replace("torch.", "")).strip("-")


def _cut(name: str) -> str:
    """A name of bounded length: a long one ends in a digest of all of it."""
    if len(name) <= LONGEST:
        return name
    return f"{name[: LONGEST - 9]}~{hashlib.sha256(name.encode()).hexdigest()[:8]}"
