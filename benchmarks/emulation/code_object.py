"""What a code object for an AMD GPU says of its kernels: instructions, descriptor, arguments.

Formats: ELF, and "User Guide for AMDGPU Backend" of LLVM, sections Code Object Metadata and Kernel Descriptor.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

OVERFLOW_BIT = 23
"""Bit of MODE (FP16_OVFL) by which conversions give the largest number for what does not fit."""

NOTE_METADATA = 32
"""Type of the ELF note that holds the metadata, as MessagePack (NT_AMDGPU_METADATA)."""

TARGETS = {0x4C: "gfx942", 0x4F: "gfx950"}
"""Machine numbers in the ELF flags (EF_AMDGPU_MACH)."""


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


def read(data: bytes, kernel: str | None = None) -> KernelCode:
    """The kernel of a code object; by its name where there are several.  NotExecutable for anything else."""
    if data[:4] != b"\x7fELF" or len(data) < 64 or struct.unpack_from("<H", data, 18)[0] != 224:
        raise NotExecutable("not a code object for an AMD GPU: the file is no ELF of machine 224")
    flags = struct.unpack_from("<I", data, 48)[0]
    arch = TARGETS.get(flags & 0xFF)
    if arch is None:
        raise NotExecutable(f"the code is for machine {flags & 0xFF:#x}; executed are {', '.join(TARGETS.values())}")
    metadata = _metadata(data)["amdhsa.kernels"]
    chosen = [entry for entry in metadata if kernel in (None, entry[".name"])]
    if len(chosen) != 1:
        names = ", ".join(entry[".name"] for entry in metadata)
        raise NotExecutable(f"kernel {kernel!r} is not in the code object" if kernel else f"name one of: {names}")
    return _kernel(data, arch, chosen[0])


def _kernel(data: bytes, arch: str, metadata: dict[str, Any]) -> KernelCode:
    image = _image(data)
    symbols = _symbols(data)
    descriptor = symbols[metadata[".symbol"]]
    lds, scratch, argument_bytes, _, entry, _, _, rsrc1, rsrc2, properties = struct.unpack_from(
        "<IIIIq20sIIIH", image, descriptor
    )
    arguments = tuple(
        Argument(one.get(".name", ""), one[".value_kind"], one[".offset"], one[".size"])
        for one in metadata.get(".args", [])
    )
    return KernelCode(
        name=metadata[".name"],
        arch=arch,
        image=image,
        entry=descriptor + entry,
        arguments=arguments,
        argument_bytes=argument_bytes,
        lds_bytes=lds,
        scratch_bytes=scratch,
        user_sgprs=tuple(taken for bit, taken in enumerate(_USER_SGPRS) if properties >> bit & 1),
        user_sgpr_count=rsrc2 >> 1 & 0x1F,
        workgroup_ids=(bool(rsrc2 >> 7 & 1), bool(rsrc2 >> 8 & 1), bool(rsrc2 >> 9 & 1)),
        mode=rsrc1 >> 12 & 0xFF | (rsrc1 >> 21 & 1) << 8 | (rsrc1 >> 23 & 1) << 9 | (rsrc1 >> 26 & 1) << OVERFLOW_BIT,
        file=data,
    )


def _image(data: bytes) -> bytes:
    """The segments that are loaded, at their addresses."""
    offset, size, count = (*struct.unpack_from("<Q", data, 32), *struct.unpack_from("<HH", data, 54))
    image = bytearray()
    for index in range(count):
        kind, _, at, address, _, stored, length, _ = struct.unpack_from("<IIQQQQQQ", data, offset + index * size)
        if kind == 1:
            image.extend(bytes(max(0, address + length - len(image))))
            image[address : address + stored] = data[at : at + stored]
    return bytes(image)


def _sections(data: bytes) -> list[tuple[int, ...]]:
    offset = struct.unpack_from("<Q", data, 40)[0]
    size, count = struct.unpack_from("<HH", data, 58)
    return [struct.unpack_from("<IIQQQQIIQQ", data, offset + index * size) for index in range(count)]


def _symbols(data: bytes) -> dict[str, int]:
    """Address of each dynamic symbol."""
    sections = _sections(data)
    found = {}
    for _, kind, _, _, at, length, link, _, _, entry in sections:
        if kind == 11:
            names = sections[link][4]
            for place in range(at, at + length, entry):
                name, _, _, _, address, _ = struct.unpack_from("<IBBHQQ", data, place)
                text = data[names + name : data.index(b"\0", names + name)]
                found[text.decode()] = address
    return found


def _metadata(data: bytes) -> dict[str, Any]:
    import msgpack

    for _, kind, _, _, at, length, *_ in _sections(data):
        place = at
        while kind == 7 and place < at + length:
            name, size, note = struct.unpack_from("<III", data, place)
            place += 12 + (name + 3 & ~3)
            if note == NOTE_METADATA:
                return dict(msgpack.unpackb(data[place : place + size]))
            place += size + 3 & ~3
    raise NotExecutable("the code object has no metadata note")
