"""Run a user's script as Python would, with its timers intercepted; say how it ended and which files it used."""

from __future__ import annotations

import dataclasses
import linecache
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from .. import failures
from . import on_cpu, refusing, timers
from .imports import Change, changing
from .interception import Interceptor, ScriptTask

MOST_FILES = 2000
"""Files of imported modules that are looked at."""


@dataclasses.dataclass(frozen=True)
class Running:
    """script: its path in the checkout.  source: the file whose text runs, of either side.  paths: for imports.

    folder: in which it runs.  packages: names that the repository has, which must come from the checkout.
    pytest: run it by pytest.
    """

    checkout: str
    script: str
    source: str
    arguments: Sequence[str]
    folder: str
    paths: Sequence[str]
    packages: Sequence[str]
    pytest: bool
    on_cpu: bool


def run(running: dict[str, Any], task: dict[str, Any], channel: Any) -> dict[str, Any]:
    """The whole life of a script.  Answers with `code` (its exit code), `why`, `error`, `files` and `programs`."""
    what = Running(**running)
    wanted = task.pop("wanted")
    told = ScriptTask(None if wanted is None else frozenset(wanted), **task)
    programs = refusing.Programs()
    to = Interceptor(channel, told, what.checkout, what.script)
    _seed_now(told.seed)
    with changing(lambda name: _change(name, to, told.seed, what.on_cpu)):
        ended = _ended(what)
    programs.stop()
    return {**ended, "timed": to.timed, "programs": programs.started[:5], **_files(what)}


def _ended(what: Running) -> dict[str, Any]:
    """Execute the script; how it ended."""
    try:
        _execute(what)
        return {"code": 0, "why": "", "kind": ""}
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
        return {"code": code, "why": "" if isinstance(error.code, int) else str(error.code or ""), "kind": "exit"}
    except refusing.SeveralProcesses as error:
        return {"code": 1, "why": str(error), "kind": "several"}
    except BaseException as error:
        kind = "import" if isinstance(error, ImportError) else "raised"
        why = f"{type(error).__name__}: {failures.first_line(error)}"
        detail = failures.answer(error)["detail"]
        return {"code": 1, "why": f"{why} ({_line_of(error)})", "kind": kind, "detail": detail}


def _line_of(error: BaseException) -> str:
    """FILE:LINE where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else "at its start"


def _execute(what: Running) -> None:
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
    main = ModuleType("__main__")
    main.__dict__.update(__file__=what.script, __builtins__=__builtins__, __cached__=None)
    sys.modules["__main__"] = main
    exec(compile(text, what.script, "exec"), main.__dict__)


def _by_pytest(what: Running) -> None:
    """pytest takes the file itself; a text of the other side lies beside it for as long as it runs."""
    import pytest

    chosen = ["-q", "-s", "-p", "no:cacheprovider", "--import-mode=importlib", what.script, *what.arguments]
    code = int(pytest.main(chosen))
    if code not in (0, 1):  # 1: some tests failed; what they timed counts
        raise RuntimeError(f"pytest ended with {pytest.ExitCode(code).name}")


def _change(name: str, to: Interceptor, seed: int, cpu: bool) -> Change | None:
    """What is changed in a module when it is imported."""
    if replace := timers.replacement(name):
        return lambda module: replace(module, to)
    if name == "torch":
        return lambda module: _of_torch(module, seed, cpu)
    if name == "numpy":
        return lambda module: module.random.seed(seed % 2**32)
    if name == "torch.multiprocessing":
        return refusing.of_multiprocessing
    return refusing.of_distributed if name == "torch.distributed" else None


def _of_torch(torch: Any, seed: int, cpu: bool) -> None:
    if cpu:
        on_cpu.of_torch(torch)
    torch.manual_seed(seed)


def _seed_now(seed: int) -> None:
    import random

    random.seed(seed)


def _files(what: Running) -> dict[str, Any]:
    """Which packages of the repository came from the checkout, and which from somewhere else."""
    root = what.checkout.rstrip(os.sep) + os.sep
    inside, elsewhere = set(), {}
    for name, module in list(sys.modules.items())[: MOST_FILES * 5]:
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or name == "__main__":
            continue
        if file.startswith(root) and "site-packages" not in file[len(root) :]:
            inside.add(name.partition(".")[0])
        elif name.partition(".")[0] in what.packages:
            elsewhere.setdefault(name.partition(".")[0], os.path.dirname(file))
    return {"inside": sorted(inside), "elsewhere": elsewhere}
