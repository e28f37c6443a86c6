"""What a code object for an AMD GPU says of its kernels: instructions, descriptor, arguments.

Formats: ELF, and "User Guide for AMDGPU Backend" of LLVM, sections Code Object Metadata and Kernel Descriptor.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

OVERFLOW_BIT = 23
"""Bit of MODE (FP16_OVFL) by which conversions give the largest number for what does not fit."""

NOTE_METADATA = 32
"""Type of the ELF note that holds the metadata, as MessagePack (NT_AMDGPU_METADATA)."""

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
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        elf = ELFFile(io.BytesIO(data))
    except ELFError:
        elf = None
    if not elf or elf["e_machine"] != "EM_AMDGPU":
        raise NotExecutable("not a code object for an AMD GPU: the file is no ELF of machine 224")
    arch = TARGETS.get(elf["e_flags"] & 0xFF)
    if arch is None:
        raise NotExecutable(
            f"the code is for machine {elf['e_flags'] & 0xFF:#x}; executed are {', '.join(TARGETS.values())}"
        )
    metadata = _metadata(elf)["amdhsa.kernels"]
    chosen = [entry for entry in metadata if kernel in (None, entry[".name"])]
    if len(chosen) != 1:
        names = ", ".join(entry[".name"] for entry in metadata)
        raise NotExecutable(f"kernel {kernel!r} is not in the code object" if kernel else f"name one of: {names}")
    return _kernel(data, elf, arch, chosen[0], len(metadata))


def _kernel(data: bytes, elf: Any, arch: str, metadata: dict[str, Any], kernels: int) -> KernelCode:
    image = bytearray()
    for segment in elf.iter_segments("PT_LOAD"):
        address = segment["p_vaddr"]
        image.extend(bytes(max(0, address + segment["p_memsz"] - len(image))))
        image[address : address + segment["p_filesz"]] = segment.data()
    for section in elf.iter_sections("SHT_RELA"):
        for one in section.iter_relocations():
            if one["r_info_type"] != RELATIVE:
                raise NotExecutable(f"a relocation of type {one['r_info_type']} in {section.name} of the code object")
            image[one["r_offset"] : one["r_offset"] + 8] = one["r_addend"].to_bytes(8, "little")
    (symbol,) = elf.get_section_by_name(".dynsym").get_symbol_by_name(metadata[".symbol"])
    place = symbol["st_value"]
    lds_bytes, scratch_bytes, argument_bytes, entry, _, first, second, properties = DESCRIPTOR.unpack_from(image, place)
    symbols = elf.get_section_by_name(".symtab")
    functions = [one for one in symbols.iter_symbols() if one["st_info"]["type"] == "STT_FUNC"] if symbols else []
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
        functions={one["st_value"]: one.name for one in functions},
        constants=tuple(_constants(elf, DESCRIPTOR_BYTES * kernels)),
        file=data,
    )


def _constants(elf: Any, descriptors: int) -> Iterator[tuple[int, int]]:
    """Loaded sections that are not code, except one that holds only kernel descriptors, of so many bytes."""
    for section in elf.iter_sections():
        loaded, code = section["sh_flags"] & ALLOCATED, section["sh_flags"] & EXECUTED
        holds = section["sh_type"] in ("SHT_PROGBITS", "SHT_NOBITS") and section.name != ".relro_padding"
        if loaded and not code and holds and section["sh_size"] not in (0, descriptors):
            yield section["sh_addr"], section["sh_size"]


def _metadata(elf: Any) -> dict[str, Any]:
    import msgpack

    for section in elf.iter_sections("SHT_NOTE"):
        for note in section.iter_notes():
            if note["n_type"] == NOTE_METADATA:
                return dict(msgpack.unpackb(note["n_desc"]))
    raise NotExecutable("the code object has no metadata note")
