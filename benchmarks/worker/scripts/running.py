"""Run a user's script as Python would, with its timers intercepted; say how it ended and which files it used."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import itertools
import linecache
import os
import random
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType, ModuleType, SimpleNamespace
from typing import Any

from ... import channel as wire
from ...naming import Change, changing
from ...shapes import JsonObject
from . import own_clocks, skipping, timers
from .interception import Interceptor, ScriptTask
from .ranks import Ranks, SeveralProcesses, is_distributed, of_symmetric_memory, without

TIMING = ("bench", "timing", "timer", "perf", "profil")
"""In the name of a module of a checkout that times for scripts in other folders."""

MOST_FILES = 2000
"""Files of imported modules that are looked at."""


def run(task: JsonObject, channel: Any) -> JsonObject:
    """The whole life of a script.  Answers with `code` (its exit code), `why`, `error`, `files` and `programs`."""
    what = ScriptTask(**task)
    ranks = Ranks(what.rank, what.world, what.port, what.store)
    os.environ.update(ranks.variables() if what.torchrun else {})
    tuning = timers.Tuning(ranks.path(what.tuned), what.role, what.wanted is None)
    to = Interceptor(channel, what, ranks, tuning)
    ranks.before_group = to.wait_for_turn
    programs = Programs(to.is_users, what.packages, ranks)
    clocks = own_clocks.OwnClocks(to)
    random.seed(what.seed)

    def run_other(script: str, arguments: Sequence[str]) -> None:
        main, argv = sys.modules["__main__"], sys.argv[:]
        path = os.path.abspath(script)
        _execute(dataclasses.replace(what, script=path, source=path, arguments=arguments), clocks, to)
        sys.modules["__main__"], sys.argv[:] = main, argv

    def change(name: str) -> Change | None:
        if name == "subprocess":
            return lambda module: ranks.of_subprocess(module, run_other)
        return _change(name, to, ranks, what, programs)

    with changing(change):
        ended = _ended(what, clocks, to)
        if os.getpid() != to.process:  # forked by the script, and left by what it raised: the channel is its parent's
            os._exit(ended["code"])
    ended_at = time.time()
    programs.stop()
    untaken = [*clocks.untaken, *(() if to.taken else clocks.totals)][: own_clocks.MOST_TOLD]
    return {**ended, "ended_at": ended_at, "programs": programs.started[:5], "untaken": untaken, **_files(what)}


def _ended(what: ScriptTask, clocks: own_clocks.OwnClocks, to: Interceptor) -> JsonObject:
    """Execute the script; how it ended."""
    try:
        _execute(what, clocks, to)
        return {"code": 0}
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
        return {"code": code, "why": "" if isinstance(error.code, int) else str(error.code or ""), "kind": "exit"}
    except SeveralProcesses as error:
        return {"code": 1, "why": str(error), "kind": "several", "ranks": error.ranks}
    except BaseException as error:
        kind = "import" if isinstance(error, ImportError) else "raised"
        why = f"{type(error).__name__}: {wire.first_line(error)}"
        detail = wire.error_answer(error)["detail"]
        return {"code": 1, "why": f"{why} ({_line_of(error)})", "kind": kind, "detail": detail}


def _line_of(error: BaseException) -> str:
    """FILE:LINE where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [one for one in frames if not one.filename.startswith(("<frozen", OURS))]
    return f"{os.path.basename(theirs[-1].filename)}:{theirs[-1].lineno}" if theirs else "at its start"


def _execute(what: ScriptTask, clocks: own_clocks.OwnClocks, to: Interceptor) -> None:
    os.chdir(what.folder)
    sys.argv[:] = [what.script, *what.arguments]
    sys.path[:0] = [os.path.dirname(what.script), *what.paths]
    text = Path(what.source).read_bytes()
    lines = text.decode("utf-8", "replace").splitlines(keepends=True)
    if not (os.path.exists(what.script) and Path(what.script).read_bytes() == text):  # inspect.getsource must see it
        linecache.cache[what.script] = (len(text), None, lines, what.script)
    if what.pytest:
        _by_pytest(what)
        return
    main, tree = ModuleType("__main__"), ast.parse(text, what.script)
    package = _package(tree, what.script)
    main.__dict__.update(__file__=what.script, __builtins__=__builtins__, __cached__=None, __package__=package)
    held = {own_clocks.CLOCK: clocks, skipping.SKIPS: to.skips}
    main.__dict__.update(held)
    sys.modules["__main__"] = main
    tree = own_clocks.rewritten(to.skips.decorated(tree, what.script), what.script, clocks) or tree
    finder = skipping.RewritingFinder(functools.partial(_of_module, what, clocks, to), held)
    sys.meta_path.insert(1, finder)  # behind the one that changes what it finds
    exec(compile(tree, what.script, "exec"), main.__dict__)


def _package(tree: ast.Module, script: str) -> str | None:
    """The package of a script that imports relatively, as `python -m` gives it one; None for any other."""
    if not any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(tree)):
        return None
    folder, names = Path(script).parent, []
    while (folder / "__init__.py").is_file():
        folder, names = folder.parent, [folder.name, *names]
    sys.path.insert(0, str(folder))
    return ".".join(names) or None


def _of_module(
    what: ScriptTask, clocks: own_clocks.OwnClocks, to: Interceptor, name: str, text: bytes, file: str
) -> ast.Module | None:
    """The tree of a module that a script imports, where it is rewritten: one with functions that may be skipped, and
    one that reads a clock and is no timer that is replaced: beside the script, in a folder between it and the top, or
    anywhere in the checkout where it has events of a device, or a name that says what it is for.
    """
    folder, own = os.path.dirname(file), os.path.dirname(what.script)
    beside = folder == own or (
        own.startswith(folder + os.sep) and folder.startswith(what.checkout.rstrip(os.sep) + os.sep)
    )
    if not to.is_users(file) or timers.replacement(name) is not None:
        return None
    beside = beside or any(word in os.path.basename(file) for word in TIMING) or b"elapsed_time" in text
    skips = file in to.skips.files
    if not (beside or skips):
        return None
    tree = to.skips.decorated(ast.parse(text, file), file)
    return (own_clocks.rewritten(tree, file, clocks) if beside else None) or (tree if skips else None)


def _by_pytest(what: ScriptTask) -> None:
    """pytest takes the file itself; a text of the other side lies beside it for as long as it runs."""
    import pytest

    chosen = ["-q", "-s", "-p", "no:cacheprovider", "--import-mode=importlib", what.script, *what.arguments]
    code = int(pytest.main(chosen))
    if code not in (0, 1):  # 1: some tests failed; what they timed counts
        raise RuntimeError(f"pytest ended with {pytest.ExitCode(code).name}")


def _change(name: str, to: Interceptor, ranks: Ranks, what: ScriptTask, programs: Programs) -> Change | None:
    """What is changed in a module when it is imported."""
    if replace := timers.replacement(name):
        return lambda module: replace(module, to)
    on_cpu: dict[str, Change] = {
        "triton.runtime.driver": lambda module: module.driver.set_active(HostDriver()),  # there is none to load
        "triton.runtime.interpreter": lambda module: of_triton_interpreter(module, lambda: to.busy),
    }
    changes: dict[str, Change] = {
        "multiprocessing.process": programs.of_multiprocessing,
        "torch": lambda module: _of_torch(module, what),
        "torch.distributed": lambda module: ranks.of_distributed(module, what.on_cpu),
        "torch.distributed._symmetric_memory": of_symmetric_memory,
        "torch.distributed.launcher.api": ranks.of_launcher,
        "torch.multiprocessing": lambda module: ranks.of_multiprocessing(module, to.is_users),
        "torch._inductor.runtime.triton_heuristics": to.tuning.of_inductor,
        "torch._inductor.runtime.compile_tasks": of_compile_tasks,
        "triton.runtime.autotuner": to.tuning.of_triton,
        "numpy": lambda module: module.random.seed(what.seed % 2**32),
    }
    return (changes | on_cpu if what.on_cpu else changes).get(name)


def _of_torch(torch: Any, what: ScriptTask) -> None:
    if what.on_cpu:
        of_torch(torch, what)
    torch.manual_seed(what.seed)


def of_compile_tasks(module: ModuleType) -> None:
    """torch._inductor.runtime.compile_tasks: say at once which ptxas is torch's (torch 2.11 to 2.13).

    Inductor says it to Triton when it compiles while its workers are not ready yet, which is chance: from then on a
    side's own kernels of Triton, too, are written for that one, and are other code than the other side's.
    """
    if tell := getattr(module, "_set_triton_ptxas_path", None):
        tell()


def _files(what: ScriptTask) -> JsonObject:
    """Which packages of the repository came from the checkout, and which from somewhere else."""
    root = what.checkout.rstrip(os.sep) + os.sep
    inside, elsewhere = set(), {}
    for name, module in list(sys.modules.items())[: MOST_FILES * 5]:
        file, package = getattr(module, "__file__", None), name.partition(".")[0]
        if not isinstance(file, str) or name == "__main__":
            continue
        if file.startswith(root) and "site-packages" not in file[len(root) :]:
            inside.add(package)
        elif package in what.packages:
            elsewhere.setdefault(package, os.path.dirname(file))
    return {"inside": sorted(inside), "elsewhere": elsewhere}


# What is not seen of a script: another program that does the timing.


class Programs:
    """Remembers the Python programs and processes that a script starts: their timers are not seen.

    owns: whether a file is the user's.  packages: names of the repository's own.
    """

    def __init__(self, owns: Callable[[str], bool], packages: Sequence[str], ranks: Ranks) -> None:
        self.started: list[str] = []
        self._owns, self._packages, self._ranks, self._active = owns, packages, ranks, True
        sys.addaudithook(self._hear)

    def stop(self) -> None:
        """Hear no more; an audit hook cannot be taken away."""
        self._active = False

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._active or event not in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork"):
            return
        if event == "os.fork":
            self._note(sys._getframe(1), "a process")
            return
        command = arguments[1] if event == "subprocess.Popen" else arguments[0]
        words = command if isinstance(command, (list, tuple)) else [command]
        said = " ".join(map(os.fsdecode, words))
        if self._times(said.split()):
            self._note(sys._getframe(1), said)

    def of_multiprocessing(self, module: ModuleType) -> None:
        """multiprocessing.process: a process that is spawned raises no event; one that the script starts as a rank is
        its rank's call.
        """
        base: Any = module.BaseProcess
        start = base.start

        @functools.wraps(start)
        def starting(process: Any) -> None:
            frame = sys._getframe(1)
            file = frame.f_code.co_filename
            if self._owns(file) and is_distributed(file):
                self._ranks.take(process)
                return
            if getattr(process._target, "__name__", "") != "_run_server":  # that of a multiprocessing.Manager
                self._note(frame, "a process")
            start(process)

        base.start = starting

    def _note(self, frame: FrameType, what: str) -> None:
        """Remember it, if the script started it: compilers and loaders of data have workers, too."""
        caller = _caller(frame)
        if caller is not None and self._owns(caller.f_code.co_filename):
            self.started.append(f"{what} ({os.path.basename(caller.f_code.co_filename)}:{caller.f_lineno})"[:200])

    def _times(self, words: Sequence[str]) -> bool:
        """Whether a command may run a script, or a module of the repository."""
        modules = (word for before, word in itertools.pairwise(words) if before == "-m")
        return any(word.endswith(".py") for word in words) or any(
            word.partition(".")[0] in (*self._packages, "pytest") for word in modules
        )


STDLIB, OURS = (os.path.dirname(file) + os.sep for file in (os.__file__, __file__))


def _caller(frame: FrameType | None) -> FrameType | None:
    """The innermost frame that is not the standard library's, nor of what stands in for a part of it."""
    while frame is not None and (
        frame.f_code.co_filename.startswith(("<frozen", STDLIB, OURS))
        and "site-packages" not in frame.f_code.co_filename.removeprefix(OURS)
    ):
        frame = frame.f_back
    return frame


# `--device cpu`: what a script asks of "cuda" it gets on the CPU, so that its torch closures run without a GPU.
#
# Tensors and modules go to the CPU whatever device they are sent to; events and streams are the host's clock; questions
# about the device get an answer where a CPU has one.  A Triton kernel that the script launches outside of its timers
# runs in Triton's interpreter, so that a script whose first lines compare a kernel with torch comes to its timers; in a
# timed closure it raises, because an interpreter's time means nothing.  Kernels of HIP and CUDA raise as they do on any
# machine without a GPU.


GPUS = ("cuda", "hip", "xpu")

EMPTIES = ("empty_cache", "ipc_collect", "reset_peak_memory_stats", "reset_max_memory_allocated")
"""What empties caches or counts; sizes are 0 as long as torch has not met a device."""


class HostEvent:
    """torch.cuda.Event on the host's clock."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self._s = 0.0

    def record(self, *_: Any) -> None:
        """Now."""
        self._s = time.perf_counter()

    def elapsed_time(self, other: HostEvent) -> float:
        """Milliseconds to another event; never 0, by which scripts divide."""
        return max((other._s - self._s) * 1e3, 1e-6)

    def query(self) -> bool:
        """Reached: nothing runs asynchronously."""
        return True

    def synchronize(self, *_: Any) -> None:
        """Nothing to wait for."""

    wait = synchronize


class HostStream(contextlib.nullcontext[None]):
    """torch.cuda.Stream and torch.cuda.device: a CPU has no streams, and is one device."""

    cuda_stream = idx = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()

    def synchronize(self, *_: Any) -> None:
        """Nothing to wait for."""

    wait_stream = wait_event = record_event = synchronize


def of_torch(torch: Any, what: ScriptTask) -> None:
    """Send everything to the CPU from now on; each rank is told of a device."""
    _answer_for_the_device(torch, what)
    from torch.overrides import TorchFunctionMode

    class OnCpu(TorchFunctionMode):
        """Every call of torch: devices among its arguments become the CPU."""

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func in (torch.Tensor.cuda, torch.Tensor.pin_memory):
                return args[0]
            named = {key: _cpu(torch, one) if key == "device" else one for key, one in (kwargs or {}).items()}
            named.pop("pin_memory", None)
            moved = tuple(_cpu(torch, one) for one in args) if func is torch.Tensor.to else args
            return func(*moved, **named)

    OnCpu().__enter__()


class HostDriver:
    """triton.runtime.driver.active: what scripts ask it before they launch anything."""

    utils = SimpleNamespace()

    def get_active_torch_device(self) -> Any:
        """The CPU, which stands in for cuda:0."""
        return sys.modules["torch"].device("cpu")

    def get_current_target(self) -> SimpleNamespace:
        """Neither "cuda" nor "hip"."""
        return SimpleNamespace(backend="cpu", arch="cpu", warp_size=1)

    def get_device_interface(self) -> Any:
        """torch.cuda, as it answers here."""
        return sys.modules["torch"].cuda

    def get_benchmarker(self) -> Any:
        """What an autotuner times by."""
        return sys.modules["triton.testing"].do_bench

    def get_current_device(self) -> int:
        """The one that there is."""
        return 0

    get_current_stream = get_current_device


def of_triton_interpreter(module: Any, timing: Callable[[], bool]) -> None:
    """Interpret a launch unless a closure is looked at or timed."""
    launch = module.GridExecutor.__call__

    @functools.wraps(launch)
    def interpreted(*args: Any, **kwargs: Any) -> Any:
        if timing():
            raise RuntimeError("a Triton kernel needs a GPU; on the CPU it is interpreted, and that is never timed")
        return launch(*args, **kwargs)

    module.GridExecutor.__call__ = interpreted


def _cpu(torch: Any, value: Any) -> Any:
    named = str(value).partition(":")[0] if isinstance(value, (torch.device, str)) else ""
    return torch.device("cpu") if named in GPUS or type(value) is int else value


def _answer_for_the_device(torch: Any, what: ScriptTask) -> None:
    """The questions that scripts ask before they time; what no CPU can answer raises as without a GPU."""
    cuda, properties = torch.cuda, _properties(torch)
    answers = {
        **dict.fromkeys(("synchronize", "init", "manual_seed", "manual_seed_all", "_sleep", "_lazy_init", *EMPTIES)),
        **dict.fromkeys(("set_device", "set_device_index", "get_rng_state", "set_rng_state")),
        **dict.fromkeys(("current_device", "current_device_index"), what.rank),
        "current_accelerator": torch.device("cpu"),
        "mem_get_info": (properties.total_memory,) * 2,
        **dict.fromkeys(("current_stream", "default_stream"), HostStream()),
        "is_available": True,
        "device_count": what.world,
        "get_device_name": "CPU",
        "get_device_capability": (0, 0),
        "get_device_properties": properties,
        "stream": contextlib.nullcontext(),
    }
    for name, value in answers.items():
        for owner in (cuda, cuda.memory, torch.accelerator):  # some have two names, or three
            setattr(owner, name, _answering(name, value))
    cuda.Event = torch.Event = HostEvent
    cuda.Stream = cuda.device = HostStream
    cuda.nvtx._nvtx = SimpleNamespace(**{name: _answering(name, 0) for name in ("rangePushA", "rangePop", "markA")})
    torch.nn.Module.cuda = lambda self, *_, **__: self
    torch.Tensor.record_stream = lambda *_: None
    parallel = torch.nn.parallel.DistributedDataParallel
    parallel.__init__ = without(parallel.__init__, device_ids=None, output_device=None)
    default = torch.set_default_device
    torch.set_default_device = lambda device: default(_cpu(torch, device))


def _properties(torch: Any) -> Any:
    """What scripts read of a device: a chip of no known generation with as many units as threads."""
    units = torch.get_num_threads()
    sizes = {"total_memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), "L2_cache_size": 1 << 20}
    return SimpleNamespace(name="CPU", major=0, minor=0, multi_processor_count=units, gcnArchName="cpu", **sizes)


def _answering(name: str, value: Any) -> Any:
    """A function that gives this value; one for each name, because torch.compile keeps a rule for each."""

    def answer(*_: Any, **__: Any) -> Any:
        return value

    answer.__name__ = answer.__qualname__ = name
    return answer
