"""What a code object for an AMD GPU says of its kernels: instructions, descriptor, arguments.

Formats: ELF, and "User Guide for AMDGPU Backend" of LLVM, sections Code Object Metadata and Kernel Descriptor.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from . import elf

OVERFLOW_BIT = 23
"""Bit of MODE (FP16_OVFL) by which conversions give the largest number for what does not fit."""

MACHINE, NOTE_METADATA = 224, 32
"""EM_AMDGPU; type of the ELF note that holds the metadata, as MessagePack (NT_AMDGPU_METADATA)."""

TARGETS = {0x4C: "gfx942", 0x4F: "gfx950"}
"""Machine numbers in the ELF flags (EF_AMDGPU_MACH)."""


RELATIVE, ALLOCATED, EXECUTED = 13, 2, 4
"""R_AMDGPU_RELATIVE64: an address in the image; flags of sections (SHF_ALLOC, SHF_EXECINSTR)."""

DESCRIPTOR, DESCRIPTOR_BYTES = struct.Struct("<3I4xq20x3IH"), 64
"""A kernel's descriptor: bytes of LDS, scratch memory and arguments, where it begins, from the descriptor on,
COMPUTE_PGM_RSRC3, 1 and 2, and properties of the code; how long it is, with what is reserved."""

REGISTERS = (".vgpr_count", ".agpr_count", ".sgpr_count", ".vgpr_spill_count", ".sgpr_spill_count")
"""Of a kernel's metadata."""


class NotExecutable(ValueError):
    """A code object or a launch that cannot be executed, and why."""


@dataclass(frozen=True)
class Argument:
    """One argument of a kernel in its argument segment; `kind` is global_buffer, by_value, hidden_..."""

    name: str
    kind: str
    offset: int
    size: int


@dataclass(frozen=True)
class KernelCode:
    """One kernel of a code object.

    image holds the loaded segments, entry is the offset of the first instruction in it.  Sizes are in bytes; that of
    scratch memory is of one lane.
    user_sgprs names what stands in the first scalar registers, in order, each with its number of registers.
    """

    name: str
    arch: str
    image: bytes
    entry: int
    arguments: tuple[Argument, ...]
    argument_bytes: int
    lds_bytes: int
    scratch_bytes: int
    user_sgprs: tuple[tuple[str, int], ...]
    user_sgpr_count: int
    workgroup_ids: tuple[bool, bool, bool]
    mode: int
    """What MODE is at the first instruction: rounding in bits 0 to 3, denormals in 4 to 7, then DX10_CLAMP and IEEE."""
    registers: Mapping[str, int] = field(default_factory=dict)
    """What the compiler took, by name: vgpr_count, agpr_count, sgpr_count and spills of the first and last."""
    functions: Mapping[int, str] = field(default_factory=dict)
    """Names of what stands in the image and can be called, by the offset of its first instruction."""
    constants: tuple[tuple[int, int], ...] = ()
    """(offset, bytes) of tables and variables in the image, which the code reaches by its own address."""
    file: bytes = b""
    """The whole code object, with the lines of the source if it has them."""


# Bits of kernel_code_properties in the order of the registers, each with how many it takes.
_USER_SGPRS = (
    ("private_segment_buffer", 4),
    ("dispatch_ptr", 2),
    ("queue_ptr", 2),
    ("kernarg_ptr", 2),
    ("dispatch_id", 2),
    ("flat_scratch_init", 2),
    ("private_segment_size", 1),
)


@lru_cache(maxsize=64)
def read(data: bytes, kernel: str | None = None) -> KernelCode:
    """The kernel of a code object; by its name where there are several.  NotExecutable for anything else."""
    try:
        file = elf.Elf(data)
    except (ValueError, struct.error):
        file = None
    if not file or file.machine != MACHINE:
        raise NotExecutable(f"not a code object for an AMD GPU: the file is no ELF of machine {MACHINE}")
    arch = TARGETS.get(file.flags & 0xFF)
    if arch is None:
        raise NotExecutable(
            f"the code is for machine {file.flags & 0xFF:#x}; executed are {', '.join(TARGETS.values())}"
        )
    metadata = _metadata(file)["amdhsa.kernels"]
    chosen = [entry for entry in metadata if kernel in (None, entry[".name"])]
    if len(chosen) != 1:
        names = ", ".join(entry[".name"] for entry in metadata)
        raise NotExecutable(f"kernel {kernel!r} is not in the code object" if kernel else f"name one of: {names}")
    return _kernel(file, arch, chosen[0], len(metadata))


def _kernel(file: elf.Elf, arch: str, metadata: dict[str, Any], kernels: int) -> KernelCode:
    image = file.image
    for section, contents in file.of_type(elf.RELOCATIONS):
        for place, kind, value in elf.RELOCATION.iter_unpack(contents):
            if kind != RELATIVE:
                raise NotExecutable(
                    f"a relocation of type {kind} in {file.text(file.names, section.name)} of the code object"
                )
            image[place : place + 8] = value.to_bytes(8, "little")
    (place,) = (at for name, _, at in file.symbols(elf.DYNAMIC_SYMBOLS) if name == metadata[".symbol"])
    lds_bytes, scratch_bytes, argument_bytes, entry, _, first, second, properties = DESCRIPTOR.unpack_from(image, place)
    return KernelCode(
        name=metadata[".name"],
        arch=arch,
        image=bytes(image),
        entry=place + entry,
        arguments=tuple(
            Argument(one.get(".name", ""), one[".value_kind"], one[".offset"], one[".size"])
            for one in metadata.get(".args", [])
        ),
        argument_bytes=argument_bytes,
        lds_bytes=lds_bytes,
        scratch_bytes=scratch_bytes,
        user_sgprs=tuple(taken for bit, taken in enumerate(_USER_SGPRS) if properties >> bit & 1),
        user_sgpr_count=second >> 1 & 0x1F,
        workgroup_ids=(bool(second >> 7 & 1), bool(second >> 8 & 1), bool(second >> 9 & 1)),
        mode=first >> 12 & 0xFF | (first >> 21 & 1) << 8 | (first >> 23 & 1) << 9 | (first >> 26 & 1) << OVERFLOW_BIT,
        registers={name[1:]: metadata[name] for name in REGISTERS if name in metadata},
        functions={at: name for name, kind, at in file.symbols(elf.SYMBOLS) if kind == elf.FUNCTION},
        constants=tuple(_constants(file, DESCRIPTOR_BYTES * kernels)),
        file=file.data,
    )


def _constants(file: elf.Elf, descriptors: int) -> Iterator[tuple[int, int]]:
    """Loaded sections that are not code, except one that holds only kernel descriptors, of so many bytes."""
    for section in file.sections:
        loaded, code = section.flags & ALLOCATED, section.flags & EXECUTED
        holds = (
            section.type in (elf.CONTENTS, elf.NO_CONTENTS) and file.text(file.names, section.name) != ".relro_padding"
        )
        if loaded and not code and holds and section.size not in (0, descriptors):
            yield section.address, section.size


def _metadata(file: elf.Elf) -> dict[str, Any]:
    import msgpack

    for kind, contents in file.notes():
        if kind == NOTE_METADATA:
            return dict(msgpack.unpackb(contents))
    raise NotExecutable("the code object has no metadata note")
