"""Trees of small kernels to measure, the log of their calls, and what becomes of a program that measures them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import __main__ as command_line
from benchmarks import program as shared
from benchmarks.machine import system as machine
from tests.kit import HANGS_S

TOY = Path(__file__).parent / "toytree"
ROOT = Path(__file__).parents[2]


def always(value):
    """A function that says so, whatever it is asked."""
    return lambda *_: value


def program(*arguments, **variables):
    """`python -m benchmarks ARGUMENTS` to its end, with these environment variables beside ours."""
    command = [sys.executable, "-m", "benchmarks", *map(str, arguments)]
    env = {**os.environ, **variables}
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=HANGS_S, env=env)


@pytest.fixture
def in_process(monkeypatch):
    """The exit code of the same command in this process, whose fork server has imported torch."""
    monkeypatch.setattr(shared.lifetime, "interrupt_on", always(None))

    def ended(*arguments):
        try:
            return command_line.main([*map(str, arguments)])
        except SystemExit as left:
            return left.code

    return ended


def lines_of(path):
    """The objects of a file of lines."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def processes_with(text, place="cmdline"):
    """Command lines of processes in whose command line, or environ, a text is; zombies have neither."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and str(text).encode() in (entry / place).read_bytes():
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue  # it ended while we looked
    return found


@pytest.fixture(scope="session", autouse=True)
def small_caches():
    """A host with 32 MB of cache: where there are 480 MB, the flush before every sample on the CPU takes 0.1 s."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "host_cache_bytes", lambda: 32 << 20)
        yield


@pytest.fixture
def toy_tree(tmp_path):
    """toy_tree("a", {"toy/new.py": source}, {"old": "new"}): a copy of the toy tree, with files and replacements."""

    def make(name, files=None, replace=None):
        tree = tmp_path / name
        shutil.copytree(TOY, tree, ignore=shutil.ignore_patterns("__pycache__"))
        for path, source in (files or {}).items():
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            (tree / path).write_text(source)
        for path in tree.rglob("*.py") if replace else ():
            source = path.read_text()
            for old, new in replace.items():
                source = source.replace(old, new)
            path.write_text(source)
        return tree

    return make


@pytest.fixture
def toy_log(tmp_path, monkeypatch):
    """The file in which the toy kernels log their calls."""
    path = tmp_path / "calls.log"
    path.touch()
    monkeypatch.setenv("TOY_LOG", str(path))
    return path
