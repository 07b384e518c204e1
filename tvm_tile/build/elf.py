"""Sections of an ELF file, which machine code comes in."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

_HEADER = struct.Struct("<IIQQQQ")


@dataclass(frozen=True, slots=True)
class Section:
    """Place of a section in its file, in bytes; ``name`` is its place among the names."""

    name: int
    kind: int
    offset: int
    length: int


def sections_of(elf: bytes) -> tuple[Section, ...]:
    """All sections of a file, in order."""
    return tuple(_sections(elf))


def _sections(elf: bytes) -> Iterator[Section]:
    """All sections of an ELF file."""
    (table,) = struct.unpack_from("<Q", elf, 0x28)
    size, count = struct.unpack_from("<HH", elf, 0x3A)
    for number in range(count):
        name, kind, _, _, offset, length = _HEADER.unpack_from(elf, table + size * number)
        yield Section(name, kind, offset, length)


def by_name(elf: bytes) -> dict[str, Section]:
    """Name of each section -> itself."""
    sections = sections_of(elf)
    (names,) = struct.unpack_from("<H", elf, 0x3E)
    texts = sections[names].offset
    return {elf[texts + s.name : elf.index(b"\0", texts + s.name)].decode(): s for s in sections}
