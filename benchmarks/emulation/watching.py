"""What a launch does, watched: every instruction of one wave, who wrote an element, and its line of the source."""

from __future__ import annotations

import bisect
import io
import linecache
from collections import deque
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from .code_object import KernelCode
from .machine import Instruction, Machine
from .memory import bytes_of
from .waves import ACCUMULATORS, EXEC, VCC, Waves

MOST_REGISTERS = 16
"""Registers that one instruction is shown to have written, lanes of the active ones first."""


@lru_cache(maxsize=16)
def _line_table(file: bytes) -> tuple[list[int], list[tuple[Path, int] | None]]:
    """(addresses, (file, line) from each of them on) of a code object's line table (DWARF)."""
    from elftools.elf.elffile import ELFFile

    elf = ELFFile(io.BytesIO(file))
    if not elf.has_dwarf_info():
        return [], []
    dwarf, found = elf.get_dwarf_info(), dict[int, tuple[Path, int] | None]()
    for table in filter(None, map(dwarf.line_program_for_CU, dwarf.iter_CUs())):
        old = table["version"] < 5
        folders = [b"", *table["include_directory"]] if old else table["include_directory"]
        states = [entry.state for entry in table.get_entries() if entry.state]
        for state in states:
            if state.end_sequence:
                found.setdefault(state.address, None)
            elif state.line:
                name = table["file_entry"][state.file - old]
                found[state.address] = Path(folders[name.dir_index].decode()) / name.name.decode(), state.line
    places = sorted(found)
    return places, [found[at] for at in places]


def source_line(code: KernelCode, at: int) -> str:
    """FILE:LINE: TEXT of an instruction's place in the source, by the code object's line table; "" without."""
    addresses, places = _line_table(code.file)
    number = bisect.bisect_right(addresses, at) - 1
    place = places[number] if number >= 0 else None
    if place is None:
        return ""
    path, line = place
    text = linecache.getline(str(path), line).strip()
    return f"{'/'.join(path.parts[-3:])}:{line}" + (f": {text}" if text else "")


class Watching:
    """Called before each instruction with all waves that execute it together, of one launch after the other."""

    def __init__(self) -> None:
        self.launch = -1
        self._machine: Machine | None = None

    def __call__(self, machine: Machine, instruction: Instruction, w: Waves) -> None:
        """One instruction of some waves."""
        self.launch += machine is not self._machine
        self._machine = machine
        self.see(machine, instruction, w)

    def see(self, machine: Machine, instruction: Instruction, w: Waves) -> None:
        """The same, once `launch` is the number of its launch."""


@dataclass
class Write:
    """An instruction of one lane that writes the element, and the registers of its wave before it."""

    launch: int
    code: KernelCode
    instruction: Instruction
    workgroup: int
    wave: int
    lane: int
    s: Any
    v: Any

    def in_words(self) -> str:
        """Who it was."""
        line = source_line(self.code, self.instruction.at)
        where = f"{self.instruction.name} at {self.instruction.at - self.code.entry:#x} of {self.code.name}"
        whose = f"workgroup {self.workgroup}, wave {self.wave}, lane {self.lane}"
        return ", ".join(filter(None, [where, whose, line]))

    def registers(self) -> list[str]:
        """Those of the wave that are not 0: scalar ones, then vector ones of the lane."""
        special = {VCC: "vcc_lo", VCC + 1: "vcc_hi", EXEC: "exec_lo", EXEC + 1: "exec_hi"}
        scalars = [f"{special.get(i, f's{i}')}={value:#x}" for i, value in enumerate(self.s) if value]
        vectors = [f"{vector_name(i)}={value:#x}" for i, value in enumerate(self.v[:, self.lane]) if value]
        return [" ".join(each[at : at + 8]) for each in (scalars, vectors) for at in range(0, len(each), 8)]


def vector_name(register: int) -> str:
    """How a vector register is called: an accumulation register by its number among these."""
    return f"v{register}" if register < ACCUMULATORS else f"a{register - ACCUMULATORS}"


class LastWrite(Watching):
    """Watches launches for what is stored to bytes of memory.  found: the last write; times: how many there were."""

    def __init__(self, address: int, size: int) -> None:
        super().__init__()
        self._first, self._end = np.uint64(address), np.uint64(address + size)
        self.found: Write | None = None
        self.times = 0

    def see(self, machine: Machine, instruction: Instruction, w: Waves) -> None:
        """A store or an atomic counts once for each lane that writes."""
        name = instruction.name
        if name.startswith("SCRATCH") or not ("_STORE_" in name or "_ATOMIC_" in name):
            return
        where, inside = machine.accesses.address_of(instruction.inst)(w)
        hit = inside & (where < self._end) & (where + np.uint64(bytes_of(name)) > self._first)
        if hit.any():
            wave, lane = np.argwhere(hit)[-1].tolist()
            self.times += int(hit.sum())
            copies = w.s[:, wave].copy(), w.v[:, wave].copy()
            self.found = Write(self.launch, machine.code, instruction, *w.ids[wave].tolist(), lane, *copies)


class Trace(Watching):
    """Watches one wave: a line for each instruction, with its address and what it wrote.

    most: lines that are kept, the last ones; None: all.  of: of several launches, which one (from 0).  until: the lines
    end with the last execution of the instruction at this address.
    """

    def __init__(
        self, workgroup: int, wave: int, most: int | None = None, of: int = 0, until: int | None = None
    ) -> None:
        super().__init__()
        self._wanted, self._of, self._until = (workgroup, wave), of, until
        self._ended: list[str] = []
        self._lines: deque[str] = deque(maxlen=most)
        self._before: tuple[str, Any, Any, bool] | None = None

    def see(self, machine: Machine, instruction: Instruction, w: Waves) -> None:
        """What the wave's last instruction wrote can be seen now."""
        own = np.flatnonzero((w.ids == self._wanted).all(1))
        if self.launch != self._of or not len(own):
            return
        registers = w.s[:, own[0]].copy(), w.v[:, own[0]].copy(), bool(w.scc[own[0]])
        self._note(*registers)
        self._before = (f"{instruction.at - machine.code.entry:#8x}  {instruction.inst}", *registers)
        if instruction.at == self._until:
            self._ended = self.lines
        if instruction.kind == "end":
            self._note(*registers)

    def _note(self, s: Any, v: Any, scc: bool) -> None:
        if self._before is None:
            return
        text, s_before, v_before, scc_before = self._before
        wrote = [f"s{i}={s[i]:#x}" for i in np.flatnonzero(s != s_before)]
        changed = v != v_before
        for register in np.flatnonzero(changed.any(1)):
            lane = changed[register].argmax()
            wrote.append(f"{vector_name(register)}[{lane}]={v[register, lane]:#x}")
        wrote += [f"scc={int(scc)}"] if scc != scc_before else []
        more = f" and {len(wrote) - MOST_REGISTERS} more" if len(wrote) > MOST_REGISTERS else ""
        self._lines.append(f"{text}  -> {' '.join(wrote[:MOST_REGISTERS])}{more}" if wrote else text)
        self._before = None

    @property
    def lines(self) -> list[str]:
        """The instructions so far: offset in the kernel, the instruction, and the registers that it changed; of a
        vector register the first lane that it changed."""
        return self._ended or [*self._lines, *([self._before[0]] if self._before else [])]
