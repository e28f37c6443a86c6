"""What a script does that one process a side cannot measure: several GPUs, or another program that does the timing."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any


class SeveralProcesses(BaseException):
    """The script starts ranks of its own.  Not an Exception: a script must not take it for a case that failed."""


class Programs:
    """Remembers the Python programs that a script starts: their timers are not seen."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self._active = True
        sys.addaudithook(self._hear)

    def stop(self) -> None:
        """Hear no more; an audit hook cannot be taken away."""
        self._active = False

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._active or event not in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn"):
            return
        said = " ".join(map(_text, _words(arguments[1] if event == "subprocess.Popen" else arguments[0])))
        if ".py" in said or " -m " in f" {said} ":
            self.started.append(said[:200])


def _words(arguments: Any) -> list[Any]:
    return list(arguments) if isinstance(arguments, (list, tuple)) else [arguments]


def _text(one: Any) -> str:
    return os.fsdecode(one) if isinstance(one, (bytes, Path)) else str(one)


def of_multiprocessing(module: ModuleType) -> None:
    """torch.multiprocessing: spawning ranks is refused."""
    for name in ("spawn", "start_processes"):
        if hasattr(module, name):
            setattr(module, name, _refused(f"torch.multiprocessing.{name}"))


def of_distributed(module: ModuleType) -> None:
    """torch.distributed: a group of more than one rank is refused."""
    real = getattr(module, "init_process_group", None)
    if real is None:
        return

    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        world = kwargs.get("world_size", -1)
        world = int(os.environ.get("WORLD_SIZE", "-1")) if world in (-1, None) else int(world)
        if world != 1:
            raise SeveralProcesses("torch.distributed.init_process_group of several ranks")
        return real(*args, **kwargs)

    module.init_process_group = init_process_group  # type: ignore[attr-defined]


def _refused(what: str) -> Any:
    def refuse(*_: Any, **__: Any) -> Any:
        raise SeveralProcesses(what)

    return refuse
