"""An ELF file of 64 bits: its segments, sections and symbols.  elftools reads any file, and takes 20 ms to import."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

HEADER, SEGMENT, SECTION, SYMBOL, RELOCATION, NOTE = (
    struct.Struct(f"<{fields}")
    for fields in ("6s12xH12xQQI4xH2xHH", "I4xQQ8xQQ8x", "IIQQQQI20x", "IB3xQ8x", "QI4xq", "III")
)
"""What is read of them."""

MAGIC = b"\x7fELF\x02\x01"

LOADED, FUNCTION = 1, 2
"""Types of a segment (PT_LOAD) and of a symbol (STT_FUNC)."""

CONTENTS, SYMBOLS, RELOCATIONS, NOTES, NO_CONTENTS, DYNAMIC_SYMBOLS = 1, 2, 4, 7, 8, 11
"""Types of sections (SHT_PROGBITS ...)."""


class Section(NamedTuple):
    """names: the number of the section that holds the names of its symbols."""

    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    names: int


class Elf:
    """ValueError or struct.error for anything else.  machine and flags: of its header; names: the number of the
    section with the names of sections; image: what its segments load."""

    def __init__(self, data: bytes) -> None:
        self.data, self.image = data, bytearray()
        magic, self.machine, segments, sections, self.flags, some, many, self.names = HEADER.unpack_from(data)
        if magic != MAGIC:
            raise ValueError("no ELF file of 64 bits")
        self.sections = [*map(Section._make, SECTION.iter_unpack(data[sections : sections + many * SECTION.size]))]
        for kind, offset, address, size, whole in SEGMENT.iter_unpack(data[segments : segments + some * SEGMENT.size]):
            if kind == LOADED:
                self.image.extend(bytes(max(0, address + whole - len(self.image))))
                self.image[address : address + size] = data[offset : offset + size]

    def of_type(self, kind: int) -> Iterator[tuple[Section, bytes]]:
        """Sections of this type, with their contents."""
        for section in self.sections:
            if section.type == kind:
                yield section, self.data[section.offset : section.offset + section.size]

    def text(self, names: int, place: int) -> str:
        """What stands at a place of the section with this number."""
        start = self.sections[names].offset + place
        return self.data[start : self.data.index(b"\0", start)].decode()

    def symbols(self, kind: int) -> Iterator[tuple[str, int, int]]:
        """(name, type, address) of each symbol in sections of this type."""
        for section, contents in self.of_type(kind):
            for name, info, address in SYMBOL.iter_unpack(contents):
                yield self.text(section.names, name), info & 15, address

    def notes(self) -> Iterator[tuple[int, bytes]]:
        """(type, contents) of each note."""
        for _, contents in self.of_type(NOTES):
            at = 0
            while at < len(contents):
                name, size, kind = NOTE.unpack_from(contents, at)
                start = at + NOTE.size + (name + 3 & -4)
                yield kind, contents[start : start + size]
                at = start + (size + 3 & -4)
