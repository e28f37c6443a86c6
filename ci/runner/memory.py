"""The state folder: state.json, one folder for each slot, and the lock that keeps a second service out.

It lies on a file system that the nodes see too; jobs and the service talk through the folders of the slots.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from ci import whole_files
from ci.runner.types import Ledger, LostJob, Pause, RunnerError, Slot

FORMAT, VERSION = "ridgeline-runner", 1


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """The state folder for this process alone; the lock of a killed process is free at once."""
    folder.mkdir(parents=True, exist_ok=True)
    os.chmod(folder, 0o700)
    try:
        with FileLock(folder / "lock", timeout=0):
            yield
    except Timeout:
        raise RunnerError(f"another `ridgeline runner` uses {folder}; end it, or give another --state") from None


def load(folder: Path) -> Ledger:
    """What the last service knew; where there was none, the folder gets a name.  RunnerError as of `seen`."""
    path = folder / "instance"
    if not path.exists():
        whole_files.replace(path, secrets.token_hex(3) + "\n")
    return seen(folder)


def seen(folder: Path) -> Ledger:
    """What the last service knew, nothing where there was none; nothing is written.

    RunnerError for files that are not ours.
    """
    path = folder / "state.json"
    if not path.exists():
        return Ledger(_instance(folder))
    try:
        found = json.loads(path.read_text())
        if (found["format"], found["version"]) != (FORMAT, VERSION):
            raise ValueError(f"it says format {found['format']!r}, version {found['version']!r}")
        return _state(found["state"])
    except (ValueError, KeyError, TypeError) as error:
        raise RunnerError(
            f"{path} is not a state of `ridgeline runner`: {error}; move it away: jobs are found again by their names"
        ) from error


def _state(found: dict[str, Any]) -> Ledger:
    kinds = {"slots": Slot, "lost": LostJob, "pauses": Pause}
    lists = {key: tuple(kind(**one) for one in found[key]) for key, kind in kinds.items()}
    return Ledger(found["instance"], reruns=found["reruns"], told=tuple(found["told"]), **lists)


def _instance(folder: Path) -> str:
    """The name of this state folder, in a file of its own: jobs and runners are found by it if the state is lost."""
    path = folder / "instance"
    name = path.read_text().strip() if path.exists() else "000000"
    if not re.fullmatch(r"[0-9a-f]{6}", name):
        raise RunnerError(f"{path} holds {name!r:.40}; it must be 6 of 0-9 and a-f; remove it if no runner is left")
    return name


def save(folder: Path, state: Ledger) -> None:
    """Write the state whole, and to the disk."""
    value = {"format": FORMAT, "version": VERSION, "state": dataclasses.asdict(state)}
    whole_files.replace(folder / "state.json", json.dumps(value, indent=1) + "\n")
