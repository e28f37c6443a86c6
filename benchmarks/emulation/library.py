"""Functions of instructions, compiled once on a machine: kept by their text in a file of the user's cache."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import json
import os
import re
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from . import runtime
from .layout import ASK, BARRIER, COUNT, END, ISSUED, PARAMETERS, RECORD, STOPPED, TITLE, WAITED

SIMPLIFY = "; to be simplified"
"""First line of a text whose variables LLVM has to find a register for."""

UNKNOWN, WAIT = "stop_ask", "wait"
STOPS = {"end": "stop_end", "barrier": "stop_barrier"}
ALWAYS = {UNKNOWN, WAIT, *STOPS.values()}
"""Functions of instructions at which a wave stops, of S_WAITCNT, and of those that the executor does ("stop_ask")."""

RUN = 'declare i64 @"run"(ptr %".1", ptr %".2")'
"""What the helpers say of a function that stands in the same module."""


class Compiled(NamedTuple):
    """An instruction: the name of its function, what its parameters hold, and how many vector registers it may touch,
    counted from the first."""

    name: str
    parameters: tuple[int, ...]
    registers: int = 512


@functools.cache
def _sources() -> str:
    """Digest of this room: of what the helpers and the programs are made by."""
    digest = hashlib.blake2b(digest_size=12)
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()


ACCESS = re.compile(r"declare void @((?:load|store)_(?:local|memory)_\d+)")
"""What the text of a function says of an access that it makes."""


@functools.cache
def _machine() -> Any:
    """LLVM's target: this CPU."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    features = llvm.get_host_cpu_features().flatten()
    return target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=2, jit=True)


@functools.cache
def _engine() -> Any:
    """What holds the machine code in this process."""
    import llvmlite.binding as llvm

    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine())


def object_of(text: str, simplify: bool = False) -> bytes:
    """Machine code of a module."""
    import llvmlite.binding as llvm

    module = llvm.parse_assembly(text)
    module.triple = _machine().triple
    if simplify:
        passes = llvm.create_new_module_pass_manager()  # those of -O2 take 20 times as long, for code that is no faster
        passes.add_sroa_pass()
        passes.add_instruction_combine_pass()
        passes.add_simplify_cfg_pass()
        passes.run(module, llvm.create_pass_builder(_machine(), llvm.PipelineTuningOptions()))
    return bytes(_machine().emit_object(module))


def name_of(text: str) -> str:
    """By which a function is known."""
    return "f" + hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


@functools.cache
def address(name: str) -> int:
    """Where a function is."""
    return int(_engine().get_function_address(name))


@functools.cache
def callable_of(name: str, result: Any, *arguments: Any) -> Any:
    """A function of the runtime.  Other threads go on while it runs."""
    return ctypes.CFUNCTYPE(result, *arguments)(address(name))


def _wait() -> str:
    """S_WAITCNT: parameters hold how many LDS operations and accesses to memory may be outstanding after it."""

    def field(name: str, base: str, place: int) -> list[str]:
        return [f"  %{name}_at = getelementptr i8, ptr %{base}, i64 {place}", f"  %{name} = load i64, ptr %{name}_at"]

    lines = ["define i64 @wait(ptr %st, ptr %rec) {", *field("times", "rec", COUNT)]
    lines += ["  %once = add i64 %times, 1", "  store i64 %once, ptr %times_at"]
    for at in (0, 8):
        lines += field(f"issued{at}", "st", ISSUED + at) + field(f"most{at}", "rec", PARAMETERS + at)
        lines += field(f"waited{at}", "st", WAITED + at)
        lines += [
            f"  %least{at} = sub i64 %issued{at}, %most{at}",
            f"  %more{at} = icmp sgt i64 %least{at}, %waited{at}",
            f"  %now{at} = select i1 %more{at}, i64 %least{at}, i64 %waited{at}",
            f"  store i64 %now{at}, ptr %waited{at}_at",
        ]
    lines += [f"  %next = getelementptr i8, ptr %rec, i64 {RECORD}", "  %code = load ptr, ptr %next"]
    lines += ["  %result = musttail call i64 %code(ptr %st, ptr %next)", "  ret i64 %result", "}"]
    return "\n".join(lines)


def _stops() -> str:
    """Functions at which a wave stops, the one that waits, and the one by which it begins."""
    lines = [_wait()]
    for name, code in (("stop_ask", ASK), ("stop_barrier", BARRIER), ("stop_end", END)):
        lines += [
            f"define i64 @{name}(ptr %st, ptr %rec) {{",
            f"  %stopped = getelementptr i8, ptr %st, i64 {STOPPED}",
            "  store ptr %rec, ptr %stopped",
            f"  ret i64 {code}",
            "}",
        ]
    lines += [
        "define i64 @run(ptr %st, ptr %rec) {",
        "  %code = load ptr, ptr %rec",
        "  %result = call i64 %code(ptr %st, ptr %rec)",
        "  ret i64 %result",
        "}",
    ]
    return "\n".join(lines)


# What is kept.

FORMAT = 2
"""Of the file, of which functions call each other as they did when they were kept."""


@functools.cache
def _store() -> sqlite3.Connection | None:
    """Objects, the functions in them and programs, of this LLVM and CPU; None where no file can be written.

    A function is named by its text, so that one file serves every version of ours."""
    import llvmlite
    import llvmlite.binding as llvm

    decides = f"{llvmlite.__version__}-{llvm.get_host_cpu_name()}"
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ridgeline" / "emulation"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{decides}-{FORMAT}.sqlite"  # autograd launches from a thread of its own
        store = sqlite3.connect(file, timeout=30, isolation_level=None, check_same_thread=False)
        store.execute("pragma journal_mode=wal")
        store.execute("pragma synchronous=off")
        for table in (
            "objects (number integer primary key, code blob, accesses text)",
            "functions (name text primary key, object integer) without rowid",
            "programs (name text primary key, listing text) without rowid",
        ):
            store.execute(f"create table if not exists {table}")
    except (OSError, sqlite3.Error):
        return None
    return store


def kept_program(name: str) -> Any:
    """What `keep_program` kept; None if there is nothing."""
    store = _store()
    row = store and store.execute("select listing from programs where name = ?", (_sources() + name,)).fetchone()
    return json.loads(row[0]) if row else None


def keep_program(name: str, listing: Any) -> None:
    """Keep what describes a program, in JSON."""
    if store := _store():
        with contextlib.suppress(sqlite3.Error):  # another process writes, or the disk is full
            store.execute("insert or ignore into programs values (?, ?)", (_sources() + name, json.dumps(listing)))


_provided: set[str] = set()
_objects: set[int] = set()


def provide(names: Collection[str], texts: Mapping[str, str]) -> bool:
    """Have these functions in this process: what is neither kept nor among the texts is missing, which gives False."""
    _provide_helper("core")
    names = set(names) - ALWAYS
    _fetch(names - _provided)
    left = names - _provided
    bodies = {name: texts[name] for name in sorted(left & texts.keys())}
    for access in ACCESS.findall("\n".join(bodies.values())):
        _provide_helper(access)
    for name in [name for name, text in bodies.items() if text.startswith(SIMPLIFY)]:
        _compile([name], bodies.pop(name).replace(TITLE, name), simplify=True)
    if bodies:
        declared: dict[str, None] = {}
        parts = []
        for name, text in bodies.items():
            lines = text.split("\n")
            count = next(number for number, line in enumerate(lines) if not line.startswith("declare"))
            declared |= dict.fromkeys(lines[:count])
            parts.append("\n".join(lines[count:]).replace(TITLE, name))
        _compile(list(bodies), "\n".join([*declared, *parts]))
    _engine().finalize_object()
    return left <= texts.keys()


def _provide_helper(name: str) -> None:
    """Have "core", or a kind of access: MCJIT wants what an object calls before it."""
    kept = f"{name} {_sources()}"
    if kept not in _provided:
        _fetch([kept])
    if kept not in _provided:
        text = runtime.module().replace(RUN, "") + _stops() if name == "core" else runtime.access(name)
        _compile([kept], text, simplify=True)


def _fetch(names: Collection[str]) -> None:
    """Load those of these functions that are kept."""
    if not (store := _store()):
        return
    listed, found = list(names), set[int]()
    for start in range(0, len(listed), 500):
        part = listed[start : start + 500]
        marks = ",".join("?" * len(part))
        found.update(one for (one,) in store.execute(f"select object from functions where name in ({marks})", part))
    for number in sorted(found - _objects):
        code, accesses = store.execute("select code, accesses from objects where number = ?", (number,)).fetchone()
        for access in accesses.split():
            _provide_helper(access)
        _load(code)
        _objects.add(number)
        _provided.update(name for (name,) in store.execute("select name from functions where object = ?", (number,)))


def _compile(names: Sequence[str], text: str, simplify: bool = False) -> None:
    code = object_of(text, simplify)
    _load(code)
    _provided.update(names)
    if store := _store():
        with contextlib.suppress(sqlite3.Error):
            store.execute("begin immediate")
            accesses = " ".join(ACCESS.findall(text))
            number = store.execute("insert into objects (code, accesses) values (?, ?)", (code, accesses)).lastrowid
            store.executemany("insert or ignore into functions values (?, ?)", [(name, number) for name in names])
            store.execute("commit")
            _objects.add(int(number or 0))


def _load(code: bytes) -> None:
    import llvmlite.binding as llvm

    _engine().add_object_file(llvm.ObjectFileRef.from_data(code))
