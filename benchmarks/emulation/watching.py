"""What a launch does, watched: every instruction of one wave, who wrote an element, and its line of the source."""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .code_object import KernelCode
from .machine import Instruction, Machine, known
from .memory import bytes_of
from .waves import EXEC, VCC, Waves

Watch = Callable[[Machine, Instruction, Waves], None]
"""Called before each instruction with all waves that execute it together."""

MOST_REGISTERS = 16
"""Registers that one instruction is shown to have written, lanes of the active ones first."""


def source_line(code: KernelCode, at: int) -> str:
    """FILE:LINE: TEXT of an instruction's place in the source, by the code object's line table (DWARF); "" without."""
    try:
        from elftools.elf.elffile import ELFFile
    except ImportError:
        return ""
    elf = ELFFile(io.BytesIO(code.file))
    if not elf.has_dwarf_info():
        return ""
    dwarf, found = elf.get_dwarf_info(), ("", 0)
    for unit in dwarf.iter_CUs():
        table = dwarf.line_program_for_CU(unit)
        states = [entry.state for entry in table.get_entries() if entry.state] if table else []
        for state, after in zip(states, states[1:], strict=False):
            if state.address <= at < after.address and not state.end_sequence and state.line:
                file = table["file_entry"][state.file - (table["version"] < 5)]
                folders = [b"", *table["include_directory"]] if table["version"] < 5 else table["include_directory"]
                found = (str(Path(folders[file.dir_index].decode()) / file.name.decode()), state.line)
    if not found[0]:
        return ""
    try:
        text = Path(found[0]).read_text(encoding="utf-8").splitlines()[found[1] - 1].strip()
    except (OSError, IndexError):
        text = ""
    return f"{'/'.join(Path(found[0]).parts[-3:])}:{found[1]}" + (f": {text}" if text else "")


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
        lanes = self.v[:, self.lane]
        vectors = [f"{'v' if i < 256 else 'a'}{i % 256}={value:#x}" for i, value in enumerate(lanes) if value]
        return [" ".join(each[at : at + 8]) for each in (scalars, vectors) for at in range(0, len(each), 8)]


class LastWrite:
    """Watches launches for what is stored to bytes of memory.  found: the last write; times: how many there were."""

    def __init__(self, address: int, size: int) -> None:
        self._address, self._size = address, size
        self._machines: list[Machine] = []
        self.found: Write | None = None
        self.times = 0

    def __call__(self, machine: Machine, instruction: Instruction, w: Waves) -> None:
        """One instruction of some waves."""
        if machine not in self._machines:
            self._machines.append(machine)
        name = instruction.name
        if not ("_STORE_" in name or "_ATOMIC_" in name) or name.startswith("SCRATCH"):
            return
        inst = known(machine.code.image, instruction.at, machine.code.arch).inst
        where, inside = machine.accesses.address_of(inst)(w)
        first, most = np.uint64(self._address), np.uint64(self._address + self._size)
        hit = inside & (where < most) & (where + np.uint64(bytes_of(name)) > first)
        if not hit.any():
            return
        wave, lane = (int(one) for one in np.argwhere(hit)[-1])
        self.times += int(hit.sum())
        group, number = (int(one) for one in w.ids[wave])
        copies = w.s[:, wave].copy(), w.v[:, wave].copy()
        self.found = Write(len(self._machines) - 1, machine.code, instruction, group, number, lane, *copies)


class Trace:
    """Watches one wave: a line for each instruction, with its address and what it wrote.

    most: lines that are kept, the last ones; None: all.  launch: of several launches, which one (from 0).  until: the
    lines end with the last execution of the instruction at this address.
    """

    def __init__(
        self, workgroup: int, wave: int, most: int | None = None, launch: int = 0, until: int | None = None
    ) -> None:
        self._wanted, self._launch, self._until = (workgroup, wave), launch, until
        self._ended: list[str] = []
        self._lines: deque[str] = deque(maxlen=most)
        self._machines: list[Machine] = []
        self._before: tuple[str, Any, Any, Any] | None = None

    def __call__(self, machine: Machine, instruction: Instruction, w: Waves) -> None:
        """One instruction of some waves: what the wave's last one wrote can be seen now."""
        if machine not in self._machines:
            self._machines.append(machine)
        if self._launch != len(self._machines) - 1:
            return
        own = np.flatnonzero((w.ids == self._wanted).all(1))
        if not len(own):
            return
        s, v, scc = w.s[:, own[0]].copy(), w.v[:, own[0]].copy(), bool(w.scc[own[0]])
        self._note(s, v, scc)
        inst = known(machine.code.image, instruction.at, machine.code.arch).inst
        self._before = (f"{instruction.at - machine.code.entry:#8x}  {inst}", s, v, scc)
        if instruction.at == self._until:
            self._ended = self.lines
        if instruction.kind == "end":
            self._note(s, v, scc)

    def _note(self, s: Any, v: Any, scc: bool) -> None:
        if self._before is None:
            return
        text, s_before, v_before, scc_before = self._before
        wrote = [f"s{i}={s[i]:#x}" for i in np.flatnonzero(s != s_before)]
        for register in np.flatnonzero((v != v_before).any(1)):
            lane = int(np.flatnonzero(v[register] != v_before[register])[0])
            name = f"v{register}" if register < 256 else f"a{register - 256}"
            wrote.append(f"{name}[{lane}]={v[register, lane]:#x}")
        wrote += [f"scc={int(scc)}"] if scc != scc_before else []
        more = f" and {len(wrote) - MOST_REGISTERS} more" if len(wrote) > MOST_REGISTERS else ""
        self._lines.append(f"{text}  -> {' '.join(wrote[:MOST_REGISTERS])}{more}" if wrote else text)
        self._before = None

    @property
    def lines(self) -> list[str]:
        """The instructions so far: offset in the kernel, the instruction, and the registers that it changed; of a
        vector register the first lane that it changed."""
        return self._ended or [*self._lines, *([self._before[0]] if self._before else [])]
