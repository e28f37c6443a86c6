"""A kernel's instructions as functions of native code: what native.py runs, where it is not kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from . import forms, library
from .code_object import KernelCode
from .counts import VECTOR, class_of
from .graph import Untraceable
from .hazards import early_uses
from .layout import MOST_PARAMETERS
from .library import STOPS, UNKNOWN, WAIT, Compiled
from .lines import Unlowered
from .lowering import function
from .machine import Instruction, Machine, known
from .matrix import product_of
from .memory import bytes_of
from .operands import Unknown
from .products import product
from .programs import facts_of, loads_to_lds, queue_of
from .tracing import TracedAccesses, traced
from .waves import Fault

UNTRACED = (Untraceable, Unlowered, Unknown, TypeError, ValueError, AttributeError, IndexError)
"""Why an instruction is left to the executor."""

_accesses = TracedAccesses()
"""Of no launch."""

_known: dict[tuple[str, int, bytes], Compiled] = {}


def compiled(instruction: Instruction, machine: Machine, texts: dict[str, str]) -> Compiled:
    """One instruction; the text of its function goes to `texts`."""
    if instruction.kind == "jump":
        return Compiled(UNKNOWN, ())
    if instruction.kind in STOPS:
        return Compiled(STOPS[instruction.kind], (), 0)
    if instruction.name == "S_WAITCNT":
        outstanding = facts_of(0, instruction).waits
        return Compiled(WAIT, (outstanding["lgkm"], outstanding["vm"]), 0)
    try:
        if instruction.name.startswith("V_MFMA"):
            text, numbers = product(product_of(instruction.inst, instruction.name, machine.code.arch))
            return _compiled(text, numbers, texts)
        one = None if _is_scratch(instruction) else _by_form(instruction, machine.code.arch)
        one = one or _traced(instruction)
    except UNTRACED:
        return Compiled(UNKNOWN, ())
    last = max((one.parameters[place] for place in one.vectors), default=-1)
    return _compiled(one.text, one.parameters, texts, last + 1)


def _is_scratch(instruction: Instruction | None) -> bool:
    """Whether it accesses private memory, whose bytes of a lane are the kernel's."""
    return instruction is not None and instruction.name.startswith("SCRATCH")


_forms: dict[tuple[str, type, int], forms.Form | None] = {}


def _by_form(instruction: Instruction, arch: str) -> forms.Traced | None:
    """By those that differ in the numbers of registers; None where it has none or they share no code."""
    inst = instruction.inst
    places = forms.places(inst)
    bits, registers = forms.without_registers(inst, places)
    key = arch, type(inst), bits
    if places and key not in _forms:
        examples = forms.examples(places)
        images = [forms.with_registers(inst, places, numbers) for numbers in zip(*examples, strict=True)]
        try:
            _forms[key] = forms.learned(*(_traced(known(image, 0, arch)) for image in images), examples)
        except UNTRACED:
            _forms[key] = None
    form = _forms.get(key)
    return form and form.of(registers)


def _traced(instruction: Instruction) -> forms.Traced:
    effects = traced(_accesses.step(instruction.inst) or instruction.do, instruction.kind == "branch")
    divergence, parameters = "", effects.graph.parameters
    if instruction.kind == "branch" and "EXEC" in instruction.name:
        divergence = "left" if instruction.name == "S_CBRANCH_EXECZ" else "taken"
    if len(parameters) > MOST_PARAMETERS:
        raise Untraceable(f"{len(parameters)} parameters")
    text = function(effects, class_of(instruction.name) in VECTOR, divergence, queue_of(instruction))
    return forms.Traced(text, tuple(parameters), tuple(sorted(effects.vectors())), effects.rereads)


def _compiled(text: str, parameters: Sequence[int], texts: dict[str, str], registers: int = 512) -> Compiled:
    """An instruction whose code is `text`, which is added to `texts` under its name."""
    name = library.name_of(text)
    texts[name] = text
    return Compiled(name, tuple(int(one) & (1 << 64) - 1 for one in parameters), registers)


def translated(code: KernelCode, machine: Machine) -> list[Any]:
    """What describes a kernel's program, to be kept, after its functions are there."""
    instructions, texts = reachable(code, machine), dict[str, str]()
    each = []
    _accesses.scratch_bytes = np.array([code.scratch_bytes])
    for at, one in sorted(instructions.items()):
        key = (code.arch, code.scratch_bytes * _is_scratch(one), code.image[at : at + (one.size if one else 0)])
        if one and (key not in _known or _known[key].name not in texts and not library.provide({_known[key].name}, {})):
            _known[key] = compiled(one, machine, texts)
        each.append((at, one, _known[key] if one else Compiled(UNKNOWN, (), 0)))
    library.provide({one.name for _, _, one in each}, texts)
    index = {at: number for number, at in enumerate(sorted(instructions))}
    early = early_uses([one for _, one, _ in each], index)
    narrowest = min(
        (bytes_of(one.name) for one in instructions.values() if one and one.name.startswith("DS_")), default=4
    )
    about = [early, min(4, narrowest).bit_length() - 1, any(one and loads_to_lds(one) for one in instructions.values())]
    rows = ([at, one and [one.size, one.name, one.kind, None, one.target, one.cycles], *how] for at, one, how in each)
    return [about, *rows]


def reachable(code: KernelCode, machine: Machine) -> dict[int, Instruction | None]:
    """All instructions that can be reached from the entry, by their address; None of what cannot be decoded, which is
    said where a wave comes there."""
    found: dict[int, Instruction | None] = {}
    waiting = [code.entry]
    while waiting:
        at = waiting.pop()
        while at not in found:
            try:
                one = found[at] = machine._decoded(at)
            except (Unknown, Fault):
                found[at] = None
                break
            if one.kind == "branch":
                waiting.append(one.target)
            if one.name == "S_SWAPPC_B64":
                waiting += code.functions
            if one.kind == "end" or one.name in ("S_BRANCH", "S_SETPC_B64"):
                break
            at = one.at + one.size
    return found
