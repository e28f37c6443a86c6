"""Metrics of NVIDIA machine code (sm_90): SASS of a cubin, read with the tools in the Triton wheel.

`cuobjdump -res-usage` gives registers and stack, `nvdisasm -c` the code with labels.  Shared memory is dynamic and
comes from the caller.  Mnemonics: CUDA Binary Utilities, instruction set reference (Hopper).
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from ..shapes import JsonObject
from .code import Code, Instruction, Jump, common_metrics, counted

MATRIX = ("HGMMA", "QGMMA", "IGMMA", "BGMMA", "HMMA", "IMMA", "DMMA", "QMMA", "OMMA", "UTCHMMA", "UTCQMMA", "UTCOMMA")
"""Instructions of the tensor cores; GMMA are warp-group wide (wgmma in PTX)."""

_KINDS = {
    name: kind
    for kind, names in {
        "load": ("LDG", "LDGSTS", "UTMALDG"),
        "store": ("STG", "UTMASTG"),
        "local": ("LDL", "STL"),
        "lds": ("LDS", "STS", "LDSM", "STSM"),
        "atomic": ("ATOMG", "ATOM", "RED", "REDG"),
        "barrier": ("BAR", "SYNCS", "WARPSYNC"),
        "wait": ("DEPBAR", "WARPGROUP"),
        "branch": ("BRA", "BRX", "EXIT"),
    }.items()
    for name in names
}

_LINE = re.compile(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:(@!?U?P\w+)\s+)?([A-Z][\w.]*)\s*([^;]*);")
_TOOL_SECONDS = 60


class ToolError(Exception):
    """A tool of the Triton wheel is missing or failed; the text says which and what it wrote."""


def disassemble(cubin: bytes, tools: Path) -> tuple[str, str]:
    """(SASS with labels, resource usage) of a cubin.  tools: folder of cuobjdump and nvdisasm."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        return _tool(tools / "nvdisasm", "-c", file.name), _tool(tools / "cuobjdump", "-res-usage", file.name)


def _tool(*command: Any) -> str:
    try:
        done = subprocess.run(
            list(map(str, command)), capture_output=True, text=True, timeout=_TOOL_SECONDS, stdin=subprocess.DEVNULL
        )
    except FileNotFoundError:
        raise ToolError(f"{command[0]} is missing; the triton wheel for Linux x86-64 contains it") from None
    if done.returncode:
        said = done.stderr.strip() or done.stdout.strip()
        raise ToolError(f"{Path(command[0]).name} ended with exit code {done.returncode}: {said}")
    return done.stdout


def parse(sass: str) -> Code:
    """Instructions and labels of `nvdisasm -c` text."""
    lines: list[str | Instruction] = []
    for raw in sass.splitlines():
        label = re.fullmatch(r"(\.L\w+):\s*", raw)
        match = _LINE.match(raw)
        if label:
            lines.append(label[1])
        elif match:
            operands = tuple(part.strip() for part in match[3].split(",") if part.strip())
            lines.append(Instruction(match[2], operands, match[1] or ""))
    return Code(_without_padding(lines), jump)


def _without_padding(lines: list[str | Instruction]) -> list[str | Instruction]:
    """Without the NOPs and the jump to itself that fill the end of a function."""
    end = len(lines)
    while end and (isinstance(lines[end - 1], str) or lines[end - 1].mnemonic in ("NOP", "BRA")):  # type: ignore[union-attr]
        end -= 1
    return lines[:end]


def jump(instruction: Instruction) -> Jump | None:
    """Where a branch goes; None for everything else."""
    name = instruction.mnemonic.split(".")[0]
    if name == "BRA":
        targets = tuple(re.findall(r"`\((\.L\w+)\)", " ".join(instruction.operands)))
        return Jump(targets, falls_through=bool(instruction.guard) or len(instruction.operands) > 1)
    if name in ("EXIT", "RET", "BRX"):
        return Jump((), falls_through=bool(instruction.guard))
    return None


def kind(instruction: Instruction) -> str:
    """matrix, load, store, atomic, lds, local, wait, barrier, branch or alu."""
    name = instruction.mnemonic.split(".")[0]
    return "matrix" if name in MATRIX else _KINDS.get(name, "alu")


def access_bytes(instruction: Instruction) -> int | None:
    """Bytes per lane that a memory instruction moves; 4 without a size word; None for bulk (TMA) copies."""
    if instruction.mnemonic.startswith("UTMA"):
        return None
    sizes = {"128": 16, "64": 8, "U16": 2, "S16": 2, "U8": 1, "S8": 1}
    return next((sizes[word] for word in instruction.mnemonic.split(".")[1:] if word in sizes), 4)


def metrics(usage: str, code: Code, lds_bytes: int, num_warps: int) -> JsonObject:
    """All metrics that SASS and the resource usage give, by name; see benchmarks.isa.__main__."""
    lds = [i for i in code.instructions if kind(i) == "lds"]
    return {
        **common_metrics(code, kind, access_bytes, "matrix", "local"),
        "registers": _used(usage, "REG"),
        "scratch_bytes": _used(usage, "STACK"),
        "lds_bytes": lds_bytes,
        "waves_per_group": num_warps,
        "code_bytes": 16 * len(code.instructions),
        "loads_to_lds": sum(i.mnemonic.startswith(("LDGSTS", "UTMALDG")) for i in code.instructions),
        "lds_read_widths": counted(str(access_bytes(i)) for i in lds if i.mnemonic.startswith("LDS")),
        "lds_write_widths": counted(str(access_bytes(i)) for i in lds if i.mnemonic.startswith("STS")),
    }


def _used(usage: str, key: str) -> int:
    match = re.search(rf"\b{key}:(\d+)", usage)
    if match is None:
        raise ToolError(f"cuobjdump -res-usage does not give {key}: {usage.strip()!r}")
    return int(match[1])
