"""What machine code for NVIDIA's GPUs, an ELF file, says of its only kernel."""

from __future__ import annotations

import struct

from tvm_tile.plan.resources import Resources

_HEADER = struct.Struct("<IIQQQQ")
# Attributes of .nv.info, each with a function and a number.
_FRAME_SIZE, _REGISTERS = b"\x04\x11\x08\x00", b"\x04\x2f\x08\x00"
_INSTRUCTION = 16  # bytes


def resources_of(cubin: bytes) -> Resources:
    """Read them from the sections' headers and the compiler's notes."""
    sections = _sections(cubin)
    start, length = sections[".nv.info"]
    notes = cubin[start : start + length]
    registers, stack = (_largest_behind(notes, mark) for mark in (_REGISTERS, _FRAME_SIZE))
    shared = sum(size for name, (_, size) in sections.items() if name.startswith(".nv.shared."))
    return Resources(registers, stack, shared)


def instructions(cubin: bytes) -> int:
    """Of a kernel whose name is ``kernel``; with those behind its end, up to seven."""
    return _sections(cubin)[".text.kernel"][1] // _INSTRUCTION


def _sections(elf: bytes) -> dict[str, tuple[int, int]]:
    """Name of each section -> where it begins, and its bytes."""
    (table,) = struct.unpack_from("<Q", elf, 0x28)
    size, count, names = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [_HEADER.unpack_from(elf, table + size * number) for number in range(count)]
    texts = headers[names][4]
    return {
        elf[texts + name : elf.index(b"\0", texts + name)].decode(): (offset, length)
        for name, _, _, _, offset, length in headers
    }


def _largest_behind(notes: bytes, mark: bytes) -> int:
    """Functions that a kernel calls have notes of their own."""
    starts = [at for at in range(0, len(notes), 4) if notes.startswith(mark, at)]
    return max(int(struct.unpack_from("<4xI", notes, at + len(mark))[0]) for at in starts)
