"""Which code one call of a script's closure runs, as digests by name that are equal for equal code on both sides.

Four things are in it: the Python functions of the checkout that run (bytecode without lines, and the plain values of
the globals that they name), what they launch (code_hash: Triton kernels, grids, arguments, operations of torch), the
shared libraries of the checkout that the process has loaded, and what the call computes.  torch, Triton and what else
is installed are those of the machine: whoever compares two sides holds the environments against each other.

A kernel whose configuration is chosen by times (triton.autotune) counts as it is written, with all its configurations:
which of them wins is chance, on equal sides too.

Of what torch.compile made (inductor), the text that it generated counts, with all kernels in it and with the options of
inductor; so do the arguments of each call.  A graph that torch interprets (its eager backend, and flex_attention's way
without a compiler) is a function that torch.fx wrote: its bytecode counts.

Nothing is told where code runs that cannot be seen from here: graphs that were captured before, or compiled by others
than inductor, and functions of other packages' C code.  Such a closure is timed, and the reason is kept.
"""

from __future__ import annotations

import ast
import contextlib
import enum
import hashlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

import torch

from ...naming import mapped
from ...shapes import digest_of
from .. import code_hash

KNOWN_C = frozenset(
    {*sys.stdlib_module_names, "torch", "triton", "numpy", "__triton_launcher", "cuda_utils", "hip_utils"}
)
"""Packages whose C functions do what their arguments say; of others' nobody here knows what they launch.  The last
three are what Triton compiles for its launches (3.6 to 3.9)."""

COMPILED = (f"torch{os.sep}_functorch{os.sep}_aot_autograd", f"torch{os.sep}_inductor{os.sep}", "torchinductor_")
"""In the path of a file that runs when a compiled graph does.  Every autograd.Function runs others of _functorch."""

GENERATED = "TORCHINDUCTOR_CACHE_DIR"
"""Environment variable: where inductor writes the modules that it generates.  It sets it itself (torch 2.5 to 2.13)."""

INTERPRETED = "<eval_with_key>"
"""Begins the name of the file of a graph that torch.fx wrote as a function; a number and the user's line follow."""

COUNTED = re.compile(r"\b(?:(__compiled_fn|__resume_at|__builtins_dict__)_\w+|(torch_dynamo_resume_in_\w+_at)_\d+)")
"""Names that torch.compile gives: with numbers of a process, of a line, and random ones (torch 2.11 to 2.13)."""

ENTERS_COMPILED = "_TorchDynamoContext"
"""Begins the qualified name of the wrapper through which code of torch.compile is entered (torch 2.11 to 2.13)."""

COMPILERS = (
    ("torch._dynamo.convert_frame", "CatchErrorsWrapper", "__call__"),
    ("torch._inductor.compile_fx", "", "_compile_fx_inner"),
)
"""(module, class in it, name) of what torch.compile compiles by, the second in a backward pass (torch 2.11 to 2.13).
Nothing of a call runs inside, and watched it takes four times as long: 2.6 s in place of 0.65 s (2026-11-26)."""

REPLAYS = "CUDAGraph.replay"
"""Of Python in torch.cuda.graphs (torch 2.6 to 2.13).  What it calls is bound by pybind11 and names no graph: a loop of
vLLM around a replay was the same code on two sides whose captured launches differed (seen on an H100, 2026-11)."""

BUILDS = "TORCH_EXTENSIONS_DIR"
"""Environment variable: where torch.utils.cpp_extension builds; each side has a folder of its own."""

DEEPEST, MOST = 3, 200
"""Of a container among the globals: levels, and elements of each, that count."""


class Watch:
    """What ran in one call.  owns: whether a file is the user's.  compiled: code of torch.compile was entered."""

    def __init__(self, owns: Callable[[str], bool]) -> None:
        self._owns = owns
        self._known: dict[int, CodeType] = {}
        self._functions: list[tuple[CodeType, dict[str, Any]]] = []
        self._generated: dict[str, dict[str, Any]] = {}
        self._given: list[tuple[str, Any]] = []
        self._folder, self._interpreted, self._unseen = "", False, ""
        self.compiled = False

    def __call__(self, frame: FrameType, event: str, given: Any) -> None:
        """The profiling function of the interpreter."""
        if event == "call":
            code = frame.f_code
            if id(code) not in self._known:
                self._known[id(code)] = code
                self._meet(code, frame.f_globals)
            if code.co_filename in self._generated and "args" in code.co_varnames[: code.co_argcount]:
                self._given.append((code.co_name, code_hash.value_of(frame.f_locals["args"])))
        elif event == "c_call" and frame.f_code.co_filename not in self._generated:  # its text has all kernels
            self._hear(given)

    def _meet(self, code: CodeType, held: dict[str, Any]) -> None:
        """A function that is called for the first time."""
        file = code.co_filename
        if any(part in file for part in COMPILED) or code.co_qualname.startswith(ENTERS_COMPILED):
            self.compiled = True
            self._folder = os.environ.get(GENERATED, "").rstrip(os.sep) + os.sep
        if self.compiled and self._folder != os.sep and file.startswith(self._folder):
            self._generated[file] = held
        elif code.co_qualname == REPLAYS:
            self._unseen = "a captured graph"
        elif self._owns(file) or file.startswith(INTERPRETED):
            self._interpreted |= file.startswith(INTERPRETED)
            self._functions.append((code, held))

    def _hear(self, function: Any) -> None:
        name, home = getattr(function, "__name__", "a function"), type(getattr(function, "__self__", None))
        for one in home.__mro__:  # a class of Python may inherit it; Dynamo takes a generator for one of the script
            if name in vars(one):
                home = one
                break
        package = str(getattr(function, "__module__", None) or home.__module__).partition(".")[0]
        if package not in KNOWN_C:
            self._unseen = f"C code, {package}.{name}"

    @property
    def unseen(self) -> str:
        """What of it cannot be seen, or ""."""
        hidden = self.compiled and not (self._interpreted or self._generated)
        return self._unseen or ("a compiled graph" if hidden else "")

    def functions(self) -> Iterator[tuple[str, Any]]:
        """Every function once, in the order of their first calls."""
        for code, held in self._functions:
            file = INTERPRETED if code.co_filename.startswith(INTERPRETED) else os.path.basename(code.co_filename)
            yield f"function {_name(code.co_qualname)} ({file})", _code(code)
            for name in code.co_names:
                if name in held and (value := _plain(held[name], DEEPEST)) is not None:
                    yield f"value of {_name(name)} in {file}", value

    def generated(self) -> Iterator[tuple[str, Any]]:
        """Every module of inductor once, with the tensors that it holds; each call of one; the options."""
        for file, held in self._generated.items():
            constants = {name: digest(one) for name, one in held.items() if isinstance(one, torch.Tensor)}
            yield "code of inductor", [_generated(Path(file).read_text()), constants]
        yield from ((f"arguments of inductor's {name}", given) for name, given in self._given)
        if config := sys.modules.get("torch._inductor.config") if self._generated else None:
            yield "options of inductor", config.get_hash().hex()


@contextlib.contextmanager
def watched(owns: Callable[[str], bool]) -> Iterator[Watch]:
    """Watch this thread inside; a backward pass runs in it, too.  What compiles for torch.compile is not watched."""
    watch, before = Watch(owns), sys.getprofile()
    with torch.autograd.set_multithreading_enabled(False), contextlib.ExitStack() as stack:
        for module, kind, name in COMPILERS:
            owner = sys.modules.get(module)
            owner = getattr(owner, kind, None) if kind else owner
            if original := getattr(owner, name, None):
                stack.enter_context(code_hash.in_place_of(owner, name, _unwatched(original)))
        sys.setprofile(watch)
        try:
            yield watch
        finally:
            sys.setprofile(before)


def _unwatched(original: Callable[..., Any]) -> Callable[..., Any]:
    """A function in which this thread is not watched."""

    def unwatched(*args: Any, **kwargs: Any) -> Any:
        before = sys.getprofile()
        sys.setprofile(None)
        try:
            return original(*args, **kwargs)
        finally:
            sys.setprofile(before)

    return unwatched


def parts(
    call: Callable[[], Any],
    owns: Callable[[str], bool],
    checkout: str,
    results: str,
    inputs: list[str],
    first: Watch | None = None,
    on_any: Callable[[bool], bool] = bool,
) -> tuple[dict[str, str], str]:
    """(digests by what runs in two calls, one watched and one traced; ""), or ({}, what of it cannot be seen).

    results: what the call computes, where equal calls give equal bits.  inputs: what it reads; they stand for the
    results where chance chooses a kernel, and with it the order of sums.  first: what ran in the first call of all: it
    may choose a configuration, or compute what later calls return.
    """
    if found := next((name for name in code_hash.LAUNCHERS if name in sys.modules), ""):
        return {}, f"kernels of {found}"
    with watched(owns) as watch:
        call()
    if on_any(bool(watch.unseen)):
        return {}, watch.unseen or "what another rank runs"
    with (
        torch.autograd.set_multithreading_enabled(False),
        code_hash.traced(not watch.compiled) as trace,
        _tuned(trace) as by_chance,
    ):
        call()
    if watch.compiled and (by_chance or not results):  # without records of operations, only results can tell
        return {}, "a compiled graph whose results do not repeat"
    computed = ("inputs", inputs) if by_chance else ("results", results)
    seen = [
        *watch.functions(),
        *watch.generated(),
        *(first.functions() if first else ()),
        *_launched(trace),
        ("libraries", libraries(checkout)),
        computed,
    ]
    told: dict[str, list[Any]] = {}
    for name, one in seen:
        told.setdefault(name, []).append(one)
    named = [name for name, _ in seen]
    return {name: digest_of(one) for name, one in {**told, "order of calls": named}.items()}, ""


def _launched(trace: code_hash.Trace) -> Iterator[tuple[str, Any]]:
    """Launches and operations by name; of a kernel its code, and how it is launched."""
    for head, *how in trace.events:
        if kernel := trace.kernels.get(head):
            yield f"kernel {kernel}", head
            yield f"grid and arguments of {kernel}", how
        else:
            yield f"operation {head}", how


@contextlib.contextmanager
def _tuned(trace: code_hash.Trace) -> Iterator[list[str]]:
    """Launches of kernels whose configuration is chosen by times are recorded as the kernel is written; names of those
    of Triton's autotuner.  Inductor's count by the text in which it wrote them.
    """
    names: list[str] = []

    def of_triton(tuner: Any, launches: list[Any], args: Any, kwargs: Any) -> list[Any]:
        if len(tuner.configs) == 1 or not launches:
            return launches
        choosing = [getattr(tuner, name, None) for name in ("perf_model", "early_config_prune")]
        rules = [_code(one.__code__) for one in choosing if inspect.isfunction(one)]
        digest = digest_of([written(tuner), [list(map(str, tuner.configs)), rules]])
        names.append(tuner.base_fn.__name__)
        trace.kernels[digest] = names[-1]
        return [
            [digest, [*map(code_hash.value_of, args), {key: code_hash.value_of(one) for key, one in kwargs.items()}]]
        ]

    with contextlib.ExitStack() as stack:
        for module, name, recorded in (
            ("triton.runtime.autotuner", "Autotuner", of_triton),
            ("torch._inductor.runtime.triton_heuristics", "CachingAutotuner", lambda *_: []),
        ):
            if tuner := getattr(sys.modules.get(module), name, None):
                stack.enter_context(code_hash.in_place_of(tuner, "run", _recording(trace, tuner.run, recorded)))
        yield names


def _recording(trace: code_hash.Trace, original: Any, recorded: Callable[..., list[Any]]) -> Any:
    """The `run` of a tuner, of whose launches something else is recorded."""

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = len(trace.events)
        returned = original(self, *args, **kwargs)
        trace.events[before:] = recorded(self, trace.events[before:], args, kwargs)
        return returned

    return run


def _generated(text: str) -> str:
    """A module of inductor without comments, which name files and lines of the user's.

    Kernels of Triton in it are Python, those of a CPU are C++.
    """
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" in node.value:
            node.value = _kernel(node.value)
    return ast.dump(tree)


def _kernel(text: str) -> str:
    try:
        return ast.dump(ast.parse(text))
    except SyntaxError:
        return re.sub(
            r"//.*|(?<=\")/[^\"\n]*/(?=[^/\"\n]*\")", "", text
        )  # a header by its name: that is of what it holds


def written(kernel: Any) -> list[Any]:
    """A kernel of Triton and all kernels that it calls, as they are written, with the plain values that they name."""
    from triton.language import constexpr
    from triton.runtime import KernelInterface

    found: dict[int, list[Any]] = {}
    waiting = [kernel]
    while waiting:
        one = waiting.pop()
        while not hasattr(one, "src"):
            one = one.fn
        if id(one) in found:
            continue
        tree = ast.parse(one.src)
        named = {node.id if isinstance(node, ast.Name) else getattr(node, "attr", "") for node in ast.walk(tree)}
        held = one.fn.__globals__ | dict(inspect.getclosurevars(one.fn).nonlocals)
        values = {name: held[name] for name in sorted(named) if name in held}
        for module, inside in list(values.items()):
            if isinstance(inside, ModuleType) and inside.__name__.partition(".")[0] not in KNOWN_C:
                values |= {f"{module}.{name}": vars(inside)[name] for name in sorted(named) if name in vars(inside)}
        bare = {name: value.value if isinstance(value, constexpr) else value for name, value in values.items()}
        plain = {name: text for name, value in bare.items() if (text := _plain(value, DEEPEST)) is not None}
        options = [repr(getattr(one, name, None)) for name in ("do_not_specialize", "noinline", "debug")]
        found[id(one)] = [ast.dump(tree), plain, options]
        waiting += [value for value in values.values() if isinstance(value, KernelInterface)]
    return list(found.values())


def libraries(checkout: str) -> list[str]:
    """Digests of the shared libraries that are loaded from below a folder, or that torch built of C++ at run time."""
    roots = (checkout.rstrip(os.sep) + os.sep, os.environ.get(BUILDS, os.sep + "none"))
    return sorted(_of_file(file) for file in set(mapped(roots)) if ".so" in os.path.basename(file))


def _of_file(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return f"{path} cannot be read"


def _code(code: CodeType) -> list[Any]:
    """What a function does, without lines, files and its docstring."""
    constants = [_constant(one) for one in code.co_consts]
    documented = bool(constants) and isinstance(code.co_consts[0], str) and code.co_name[:1] != "<"
    constants = ["a docstring", *constants[1:]] if documented else constants
    names = [*map(_name, code.co_names)]
    return [_name(code.co_name), code.co_code.hex(), constants, names, code.co_varnames, code.co_freevars]


def _name(name: str) -> str:
    """Without what torch.compile counts."""
    return COUNTED.sub(lambda found: found[1] or found[2], name)


def _constant(value: Any) -> Any:
    if isinstance(value, CodeType):
        return _code(value)
    return sorted(map(repr, value)) if isinstance(value, frozenset) else repr(value)


def _plain(value: Any, depth: int) -> Any:
    if isinstance(value, (int, float, complex, str, bytes, enum.Enum, torch.dtype)):
        return repr(value)
    if isinstance(value, (tuple, list)) and depth:
        return [_plain(one, depth - 1) for one in value[:MOST]]
    if isinstance(value, dict) and depth:
        return [[repr(key), _plain(one, depth - 1)] for key, one in list(value.items())[:MOST] if isinstance(key, str)]
    return None


# What a tensor holds, as a digest that is equal for equal bits.


COLUMNS = (31, 1021)
"""A digest on a GPU sums a tensor's words of 8 bytes in so many columns, so that a swap of two words shows unless they
are a multiple of both apart.  Narrower words torch would copy into words of 8 bytes first: 4 GiB for 1 GiB of bf16."""

LARGE = 1 << 26
"""Bytes.  A larger tensor in host memory is summed in columns, too: 0.6 s/GB of CPU time, on all threads, in place of
1.7 s/GB of one (busy machine, 2026-11-26).  Caches of keys and values have gigabytes."""

HOST_COLUMNS = (1021, 8191)
"""Wide enough for the vectors of a CPU: columns of 31 take three times as long as those of 8191."""


def digest(tensor: torch.Tensor) -> str:
    """What a tensor holds, shape and type included; "" for a kind of tensor whose bits cannot be read.

    Raises torch.cuda.OutOfMemoryError: that says nothing of the tensor.
    """
    try:
        with torch.no_grad():
            return _of_bits(tensor.detach())
    except torch.cuda.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError, AttributeError):
        return ""


def _of_bits(tensor: torch.Tensor) -> str:
    head = f"{tensor.dtype}{list(tensor.shape)}"
    if tensor.numel() == 0:
        return head
    flat = tensor.contiguous().view(-1).view(torch.uint8)
    on_host = flat.device.type == "cpu"
    if on_host and flat.nbytes <= LARGE:
        return hashlib.blake2b(memoryview(flat.numpy()), digest_size=12, key=head.encode()[:64]).hexdigest()
    edge = flat.nbytes // 8 * 8
    whole, rest = flat[:edge], flat[edge:]
    whole = whole.clone() if (whole.storage_offset() | whole.data_ptr()) % 8 else whole
    sums = _sums(whole.view(torch.int64), HOST_COLUMNS if on_host else COLUMNS) + rest.tolist()
    return f"{head}{hashlib.blake2b(repr(sums).encode(), digest_size=12).hexdigest()}"


def _sums(flat: torch.Tensor, widths: tuple[int, ...]) -> list[int]:
    """Of a tensor of whole numbers, the sums of its columns, and of what is left."""
    sums: list[int] = []
    for columns in widths:
        edge = flat.numel() // columns * columns
        whole, rest = flat[:edge].view(-1, columns).sum(0, dtype=torch.int64), flat[edge:].sum(dtype=torch.int64)
        sums += [*whole.tolist(), int(rest)]
    return sums
