"""Metrics of AMD machine code (gfx942, gfx950): the text that Triton keeps as `amdgcn`.

Instruction names follow the AMD Instinct MI300 (CDNA3) and CDNA4 ISA documents, and LLVM's AMDGPU user guide for the
metadata.  `.group_segment_fixed_size` is always 0 there, since Triton's LDS is dynamic: LDS bytes come from the caller.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .code import Code, Instruction, Jump, Loop
from .drains import Drains, drains
from .provenance import Provenance, argument_pointer

MEMORY_BYTES = {
    "dwordx4": 16,
    "dwordx3": 12,
    "dwordx2": 8,
    "dwordx8": 32,
    "dwordx16": 64,
    "dword": 4,
    "ushort": 2,
    "sshort": 2,
    "short": 2,
    "ubyte": 1,
    "sbyte": 1,
    "byte": 1,
}
"""Bytes per lane, by the size word in the name of a buffer, global, flat, scratch or scalar memory instruction."""

_LDS_ACCESS = re.compile(
    r"ds_(read|write|load|store)(2|_2addr)?(?:st64|_stride64)?_(?:[a-z0-9]+_)*?[bui](\d+)(?:_\w+)?"
)
_FIELDS = {
    "vgpr": "vgpr_count",
    "agpr": "agpr_count",
    "sgpr": "sgpr_count",
    "vgpr_spills": "vgpr_spill_count",
    "sgpr_spills": "sgpr_spill_count",
    "scratch_bytes": "private_segment_fixed_size",
    "_workgroup": "max_flat_workgroup_size",
    "_wave": "wavefront_size",
}


def parse(text: str) -> Code:
    """The instructions and labels of an `amdgcn` text; directives, comments and metadata are left out."""
    lines: list[str | Instruction] = []
    for raw in text.split(".amdgpu_metadata")[0].splitlines():
        line = raw.split(";")[0].strip()
        label = re.fullmatch(r"([.\w$]+):", line)
        if label:
            lines.append(label[1])
        elif line and not line.startswith("."):
            name, _, rest = line.partition(" ")
            lines.append(Instruction(name.strip(), _operands(rest)))
    return Code(lines, jump)


def _operands(text: str) -> tuple[str, ...]:
    """Operands, split at commas outside brackets; modifiers stay with the last operand."""
    return tuple(part.strip() for part in re.split(r",(?![^\[]*\])", text) if part.strip())


def jump(instruction: Instruction) -> Jump | None:
    """Where a branch goes; None for everything else."""
    name = instruction.mnemonic
    if name == "s_endpgm" or name.startswith(("s_setpc", "s_endpgm")):
        return Jump((), falls_through=False)
    if name == "s_branch":
        return Jump(instruction.operands[:1], falls_through=False)
    if name.startswith("s_cbranch"):
        return Jump(instruction.operands[:1], falls_through=True)
    return None


def kind(instruction: Instruction) -> str:
    """The class an instruction counts in: mfma, load, store, atomic, lds, scratch, scalar_load, wait, barrier, branch,
    valu or salu (every other scalar one)."""
    name = instruction.mnemonic
    if name.startswith(("v_mfma", "v_smfmac")):
        return "mfma"
    if name.startswith("scratch_"):
        return "scratch"
    if name.startswith(("global_", "buffer_", "flat_")):
        return next((word for word in ("atomic", "store", "load") if word in name), "salu")
    if name.startswith("ds_"):
        return "lds"
    if name.startswith(("s_load", "s_buffer_load")):
        return "scalar_load"
    if name.startswith("s_wait"):
        return "wait"
    if name.startswith("s_barrier"):
        return "barrier"
    if name.startswith(("s_cbranch", "s_branch")):
        return "branch"
    return "valu" if name.startswith("v_") else "salu"


def access_bytes(instruction: Instruction) -> int | None:
    """Bytes per lane that a memory instruction moves; None where the name has no size word."""
    words = instruction.mnemonic.split("_")
    return next((MEMORY_BYTES[word] for word in words if word in MEMORY_BYTES), None)


def lds_access(instruction: Instruction) -> tuple[str, str] | None:
    """("read" or "write", width of one access in bytes, "2x8" for a paired one); None for other LDS instructions."""
    match = _LDS_ACCESS.fullmatch(instruction.mnemonic)
    if match is None:
        return None
    direction = {"load": "read", "store": "write"}.get(match[1], match[1])
    return direction, ("2x" if match[2] else "") + str(int(match[3]) // 8)


def weight(instructions: Sequence[Instruction]) -> tuple[int, ...]:
    """What makes one innermost loop hotter than another: matrix instructions, then memory, then length."""
    kinds = Counter(map(kind, instructions))
    return kinds["mfma"], kinds["load"] + kinds["store"] + kinds["atomic"] + kinds["lds"], len(instructions)


def metrics(text: str, code: Code, lds_bytes: int, translates: bool) -> dict[str, Any]:
    """All metrics that the text gives, by name; see benchmarks.isa.metrics for the meaning and unit of each.

    translates: the kernel forms pointers from integers, so heap-base loads can be distinguished from other loads.
    """
    fields = {name: _field(text, key) for name, key in _FIELDS.items()}
    threads, wave = fields.pop("_workgroup"), fields.pop("_wave")
    everything = code.instructions
    scratch = [i for i in everything if kind(i) == "scratch"]
    looped = code.within(code.in_loops)
    return {
        **fields,
        "lds_bytes": lds_bytes,
        "waves_per_group": -(-threads // wave),
        "scratch_ops": len(scratch),
        "scratch_ops_in_loops": sum(kind(i) == "scratch" for i in looped),
        "agpr_moves_in_loops": sum(i.mnemonic.startswith("v_accvgpr") for i in looped),
        "code_bytes": _comment(text, "codeLenInByte"),
        "instructions": len(everything),
        "mix": _counted(map(kind, everything)),
        "matrix": _counted(i.mnemonic for i in everything if kind(i) == "mfma"),
        **_memory(everything),
        **_remote(code, argument_pointer(text) if translates else None),
        **_lds(everything),
        "barriers": sum(kind(i) == "barrier" for i in everything),
        "waits": sum(kind(i) == "wait" for i in everything),
        "atomics": _counted(i.mnemonic for i in everything if "atomic" in i.mnemonic),
        "loops": len(code.loops),
        "loop": _loop(code, code.hottest(weight)),
    }


def _memory(instructions: Iterable[Instruction]) -> dict[str, Any]:
    """Widths of vector loads and stores: number of instructions by bytes per lane."""
    found: dict[str, list[Instruction]] = {"load": [], "store": []}
    for instruction in instructions:
        found.get(kind(instruction), []).append(instruction)
    return {
        "load_widths": widths(access_bytes(i) for i in found["load"]),
        "store_widths": widths(access_bytes(i) for i in found["store"]),
        "store_names": _counted(i.mnemonic for i in found["store"]),
        "loads_to_lds": sum(any(re.search(r"\blds\b", o) for o in i.operands) for i in found["load"]),
    }


def _remote(code: Code, arguments: tuple[str, ...] | None) -> dict[str, Any]:
    """Stores through pointers built from heap bases, and how many bases and bytes the longest path moves.

    A path runs each loop once, so what the compiler duplicates for two branches counts once.
    """
    found = Provenance(code, arguments) if arguments else None
    stores = [(block, i) for block, i in (found.remote if found else ()) if kind(i) == "store"]
    stored, loaded = Counter[int](), Counter[int]()
    for block, instruction in stores:
        stored[block] += access_bytes(instruction) or 0
    waits = drains(code, found) if found else Drains()
    for block, instruction in found.bases if found else ():
        loaded[block] += (access_bytes(instruction) or 8) // 8
    return {
        "remote_store_widths": widths(access_bytes(i) for _, i in stores),
        "remote_store_names": _counted(i.mnemonic for _, i in stores),
        "remote_store_bytes": code.heaviest_path(stored),
        "remote_store_bytes_in_loops": code.heaviest_path(_inside(stored, code)),
        "subdword_remote_stores": sum((access_bytes(i) or 4) < 4 for _, i in stores),
        "remote_store_drains": waits.inside,
        "remote_store_drains_between": waits.between,
        "heap_base_loads": code.heaviest_path(loaded),
        "heap_base_loads_in_loops": code.heaviest_path(_inside(loaded, code)),
    }


def _inside(weights: Mapping[int, int], code: Code) -> dict[int, int]:
    return {block: weight for block, weight in weights.items() if block in code.in_loops}


def _lds(instructions: Iterable[Instruction]) -> dict[str, Any]:
    accesses = [access for i in instructions if kind(i) == "lds" and (access := lds_access(i))]
    reads = [width for direction, width in accesses if direction == "read"]
    writes = [width for direction, width in accesses if direction == "write"]
    return {"lds_read_widths": _counted(reads), "lds_write_widths": _counted(writes)}


def _loop(code: Code, loop: Loop | None) -> dict[str, Any]:
    """Instruction mix of the hottest innermost loop; empty without loops."""
    if loop is None:
        return {}
    body = code.within(loop.blocks)
    mix = _counted(map(kind, body))
    return {
        "instructions": len(body),
        "depth": loop.depth,
        "mix": mix,
        "matrix_share": round(mix.get("mfma", 0) / max(len(body), 1), 4),
    }


def widths(sizes: Iterable[int | None]) -> dict[str, int]:
    """Instruction counts by bytes per lane, widest first; keys are strings as JSON has them."""
    counts = Counter(size for size in sizes if size is not None)
    return {str(size): counts[size] for size in sorted(counts, reverse=True)}


def _counted(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items()))


def _field(text: str, key: str) -> int:
    match = re.search(rf"\.{key}:\s+(\d+)", text)
    if match is None:
        raise ValueError(f"the assembly text has no .{key}: it is not what Triton 3.6 to 3.9 writes for an AMD target")
    return int(match[1])


def _comment(text: str, key: str) -> int:
    return sum(int(value) for value in re.findall(rf"; {key} = (\d+)", text))
