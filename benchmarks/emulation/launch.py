"""Execute a kernel of a code object on arguments that are numpy arrays, without a GPU."""

from __future__ import annotations

import contextlib
import struct
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from .. import naming
from .code_object import KernelCode, NotExecutable, read
from .counts import Counts
from .machine import Machine
from .waves import EXEC, HOSTCALL, LANES, MODE, Memory, Waves

LIMIT = 200_000_000
"""Instructions of one launch, each counted once for all waves that execute it together."""

SLOW = (
    "llvmlite is not installed, so each instruction is executed by numpy, which takes many times as long, and hazards "
    "are not looked for: pip install 'ridgeline[emulate]'"
)

REGISTERS = 512
"""Vector registers of a wave, those for accumulation among them."""

KEPT, FLUSHED = 0b1111, 0b1100
"""Denormals of fp64 and fp16, and of fp32, in FLOAT_MODE."""

FIRST_ADDRESS, GAP = 1 << 32, 1 << 20
"""Buffers lie here, with so much between them that an address outside of one is in none."""


@dataclass(frozen=True)
class Execution:
    """What a launch did: executions of each operation (by wave), and what is counted beside them.

    places: name of the operation at each offset in the code's image, and how often waves executed it.  sampled:
    (workgroups that were executed, all), where these stand for all; every count is of all.
    """

    kernel: str
    arch: str
    instructions: dict[str, int]
    counts: Counts
    places: Mapping[int, tuple[str, int]]
    sampled: tuple[int, int] | None = None

    @property
    def bytes(self) -> Mapping[str, int]:
        """Bytes that lanes loaded, stored, changed atomically, and moved to and from the LDS."""
        return self.counts.bytes

    @property
    def total(self) -> int:
        """Instructions that waves executed."""
        return sum(self.instructions.values())


def execute(
    data: bytes,
    arguments: Sequence[Any],
    grid: tuple[int, int, int],
    warps: int,
    *,
    arch: str | None = None,
    kernel: str | None = None,
    lds_bytes: int | None = None,
    limit: int = LIMIT,
    watch: Any = None,
) -> Execution:
    """Launch a kernel: grid workgroups of `warps` waves of 64 lanes; buffers among the arguments are changed in place.

    data: a code object (.hsaco) for gfx942 or gfx950.  arguments: in the kernel's order; an array of one or more
    dimensions is a buffer, a number or 0-d array a scalar of the declared size; pointers that the kernel declares
    beyond them are null.  lds_bytes: dynamic LDS of a workgroup, by default all that the chip has.
    watch: called before each instruction (watching.Watching).
    NotExecutable says what is wrong with any of them, or what the kernel did.
    """
    code = read(data, kernel)
    if arch is not None and arch != code.arch:
        raise NotExecutable(f"the code object is for {code.arch}, not for {arch}")
    if min(*grid, warps) < 1:
        raise NotExecutable(f"grid {grid} and {warps} warps: each is at least 1")
    memory = Memory()
    addresses, place = [], FIRST_ADDRESS
    for index, value in enumerate(arguments):
        array = np.asarray(value)
        if array.ndim == 0:
            addresses.append(array)
            continue
        if not array.flags.c_contiguous:
            raise NotExecutable(f"argument {index} is not contiguous")
        memory.add(place, array.view(np.uint8).reshape(-1), f"argument {index}")
        addresses.append(np.uint64(place))
        place += array.nbytes + 2 * GAP & -GAP
    return launch(code, memory, segment(code, addresses), grid, warps, lds_bytes, limit, watch)


def segment(code: KernelCode, values: Sequence[Any]) -> bytes:
    """The argument segment with these values; what is hidden or beyond them is zero."""
    declared = [one for one in code.arguments if not one.kind.startswith("hidden")]
    if len(values) > len(declared):
        raise NotExecutable(f"{len(values)} arguments for a kernel of {len(declared)}")
    missing = [one for one in declared[len(values) :] if one.kind != "global_buffer"]
    if missing:
        names = ", ".join(one.name or f"at {one.offset}" for one in missing)
        raise NotExecutable(f"{len(values)} arguments for a kernel of {len(declared)}: missing is {names}")
    image = bytearray(code.argument_bytes)
    for one, value in zip(declared, values, strict=False):
        array = np.asarray(value)
        kind = array.dtype.kind.replace("b", "u")
        image[one.offset : one.offset + one.size] = array.astype(f"{kind}{one.size}").tobytes()
    return bytes(image)


def with_hidden(code: KernelCode, arguments: bytes, grid: tuple[int, int, int], warps: int) -> bytes:
    """The argument segment with what the code asks for beside: sizes of the launch (tl.num_programs), where a print
    finds the host.

    Source: LLVM's User Guide for AMDGPU Backend, code object metadata V5, the kinds of hidden arguments.
    """
    sizes = {"hidden_grid_dims": 3, "hidden_hostcall_buffer": HOSTCALL}
    for axis, groups, threads in zip("xyz", grid, (LANES * warps, 1, 1), strict=True):
        sizes |= {f"hidden_block_count_{axis}": groups, f"hidden_group_size_{axis}": threads}
    image = bytearray(arguments)
    for one in code.arguments:
        if one.kind in sizes:
            image[one.offset : one.offset + one.size] = sizes[one.kind].to_bytes(one.size, "little")
    return bytes(image)


def _check_mode(code: KernelCode) -> None:
    """Executed are rounding to nearest even, and denormals that are kept, or flushed in fp32 alone."""
    if code.mode & 15:
        raise NotExecutable(f"{code.name} rounds otherwise than to nearest even (FLOAT_MODE {code.mode & 255:#x})")
    if code.mode >> 4 & 15 not in (KEPT, FLUSHED):
        raise NotExecutable(f"{code.name} flushes denormals (FLOAT_MODE {code.mode & 255:#x}), which is not executed")


@contextlib.contextmanager
def _denormals(code: KernelCode) -> Iterator[None]:
    """Denormals of fp32 are 0 inside, as operands and as results, where the code asks for it (allow_flush_denorm).

    So are those of fp64: this CPU knows no other way.
    """
    if code.mode >> 4 & 15 == FLUSHED:
        from torch import set_flush_denormal

        set_flush_denormal(True)  # a division takes that back meanwhile (scalar_steps.DENORMALS)
    try:
        yield
    finally:
        if torch := sys.modules.get("torch"):
            torch.set_flush_denormal(False)


def launch(
    code: KernelCode,
    memory: Memory,
    arguments: bytes,
    grid: tuple[int, int, int],
    warps: int,
    lds_bytes: int | None = None,
    limit: int = LIMIT,
    watch: Any = None,
    sampled: bool = False,
) -> Execution:
    """As `execute`, with memory and argument segment as they are given.

    sampled: of a launch that would take long, some workgroups are executed and stand for all (native.Sample).
    """
    chosen = _native() if watch is None and limit == LIMIT else None
    groups = grid[0] * grid[1] * grid[2]
    if chosen:
        waves = started(code, memory, arguments, grid, warps, registers=1, groups=1)
    else:
        waves = started(code, memory, arguments, grid, warps)
    size = lds_bytes if lds_bytes is not None else code.lds_bytes or naming.our("kernels.hardware").lds_limit(code.arch)
    machine = (chosen or Machine)(code, memory, groups, size, limit)
    machine.watch, machine.grid = watch, grid
    if sampled and chosen:
        machine.sampled = True
    with _denormals(code):
        machine.run(waves)
    executed: Counter[str] = Counter()
    each = [(machine.instructions[at], round(times * machine.share)) for at, times in machine.executed.items()]
    for one, times in each:
        executed[one.name.lower()] += times
    counts = machine.observer.counts([(one.name, one.cycles, times) for one, times in each], machine.share)
    places = {one.at: (one.name, times) for one, times in each}
    part = None if machine.share == 1 else (round(groups / machine.share), groups)
    return Execution(code.name, code.arch, dict(executed.most_common()), counts, places, part)


@cache
def _native() -> type[Machine] | None:
    """What executes native code, where LLVM is there."""
    if find_spec("llvmlite") is None:
        print(SLOW, file=sys.stderr)
        return None
    from .native import NativeMachine

    return NativeMachine


def started(
    code: KernelCode,
    memory: Memory,
    arguments: bytes,
    grid: tuple[int, int, int],
    warps: int,
    rank: int = 0,
    registers: int = REGISTERS,
    groups: int = 0,
) -> Waves:
    """The waves of a launch before their first instruction; adds what their first registers point to to the memory.

    rank: of several launches in one memory, which.  registers: vector registers that they have room for here.
    groups: of the first workgroups alone.
    """
    _check_mode(code)
    dispatch = struct.pack("<HHHHHHIII", 0, 0, LANES * warps, 1, 1, 0, LANES * warps * grid[0], *grid[1:])
    place = {"kernarg_ptr": (1 + 2 * rank) * GAP, "dispatch_ptr": (2 + 2 * rank) * GAP}
    for name, contents, told in (
        ("kernarg_ptr", with_hidden(code, arguments, grid, warps), "the arguments"),
        ("dispatch_ptr", dispatch, "the dispatch packet"),
    ):
        memory.add(place[name], np.frombuffer(bytearray(contents.ljust(64, b"\0")), np.uint8), told)
    for start, size in code.constants:  # an address in the code is its offset in the image
        if not memory.knows(start):
            contents = np.frombuffer(bytearray(code.image[start : start + size]), np.uint8)
            memory.add(start, contents, "constants of the code")
    groups = groups or grid[0] * grid[1] * grid[2]
    count = groups * warps
    s = np.zeros((128, count), np.uint32)
    ids = np.stack([np.repeat(np.arange(groups), warps), np.tile(np.arange(warps), groups)], axis=1)
    register = 0
    for name, size in code.user_sgprs:
        if name in place:
            s[register] = place[name]
        register += size
    register = code.user_sgpr_count
    for index, enabled in zip(np.unravel_index(ids[:, 0], grid, order="F"), code.workgroup_ids, strict=True):
        if enabled:
            s[register] = index
            register += 1
    s[EXEC : EXEC + 2] = 0xFFFFFFFF
    s[MODE] = code.mode
    v = np.zeros((registers, count, LANES), np.uint32)
    v[0] = ids[:, 1, None] * LANES + np.arange(LANES)
    return Waves(code.entry, s, v, np.zeros(count, np.bool_), ids)
