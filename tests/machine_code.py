"""What a cubin, an ELF file, says of the resources that its only kernel takes."""

from __future__ import annotations

import struct
from dataclasses import dataclass

_SECTION = struct.Struct("<IIQQQQIIQQ")
# Of .nv.info, each with a kernel and a number.
_FRAME_SIZE, _REGISTERS = b"\x04\x11\x08\x00", b"\x04\x2f\x08\x00"


@dataclass(frozen=True, slots=True)
class Resources:
    """Of a kernel.

    Attributes:
        registers: that a thread is launched with.
        stack: bytes of a thread's, where spilled registers lie, too.
        shared: bytes of a block, those declared with the kernel.
    """

    registers: int
    stack: int
    shared: int


def resources_of(cubin: bytes) -> Resources:
    """Read them from the sections' headers and the compiler's notes."""
    (start,) = struct.unpack_from("<Q", cubin, 40)
    size, count, names = struct.unpack_from("<HHH", cubin, 58)
    headers = [_SECTION.unpack_from(cubin, start + size * i) for i in range(count)]
    (texts,) = (header[4] for header in headers[names : names + 1])
    sections = {cubin[texts + h[0] : cubin.index(b"\0", texts + h[0])].decode(): h for h in headers}
    notes = cubin[sections[".nv.info"][4] :][: sections[".nv.info"][5]]
    registers, stack = (_largest_behind(notes, mark) for mark in (_REGISTERS, _FRAME_SIZE))
    shared = sum(header[5] for name, header in sections.items() if name.startswith(".nv.shared."))
    return Resources(registers, stack, shared)


def _largest_behind(notes: bytes, mark: bytes) -> int:
    """Functions that a kernel calls have notes of their own."""
    starts = [at for at in range(0, len(notes), 4) if notes.startswith(mark, at)]
    return max(int(struct.unpack_from("<4xI", notes, at + len(mark))[0]) for at in starts)
