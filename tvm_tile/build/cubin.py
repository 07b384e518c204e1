"""Facts that machine code for NVIDIA's GPUs, an ELF file, holds of its only kernel."""

from __future__ import annotations

import struct

from tvm_tile.build.elf import by_name
from tvm_tile.report.resources import Resources

# Attributes of .nv.info, each with a function and a number.
_FRAME_SIZE, _REGISTERS = b"\x04\x11\x08\x00", b"\x04\x2f\x08\x00"
_INSTRUCTION = 16  # bytes


def resources_of(cubin: bytes) -> Resources:
    """Read them from the sections' headers and the compiler's notes."""
    sections = by_name(cubin)
    info = sections[".nv.info"]
    notes = cubin[info.offset : info.offset + info.length]
    registers, stack = (_largest_behind(notes, mark) for mark in (_REGISTERS, _FRAME_SIZE))
    shared = sum(s.length for name, s in sections.items() if name.startswith(".nv.shared."))
    return Resources(registers, stack, shared)


def instructions(cubin: bytes) -> int:
    """Instructions of a kernel and of what it calls, with up to seven of padding behind its end."""
    code = (own.length for name, own in by_name(cubin).items() if name.startswith(".text."))
    return sum(code) // _INSTRUCTION


def _largest_behind(notes: bytes, mark: bytes) -> int:
    """Functions that a kernel calls have notes of their own."""
    starts = [at for at in range(0, len(notes), 4) if notes.startswith(mark, at)]
    return max(int(struct.unpack_from("<4xI", notes, at + len(mark))[0]) for at in starts)
