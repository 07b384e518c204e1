"""What a cubin, an ELF file, says of the resources that its only kernel takes."""

from __future__ import annotations

import struct
from dataclasses import dataclass

_SECTION = struct.Struct("<IIQQQQIIQQ")
_FRAME_SIZE = b"\x04\x11\x08\x00"  # of .nv.info: kernel, bytes of stack


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
    (text,) = (header for name, header in sections.items() if name.startswith(".text."))
    notes = cubin[sections[".nv.info"][4] :][: sections[".nv.info"][5]]
    (stack,) = struct.unpack_from("<4xI", notes, notes.index(_FRAME_SIZE) + len(_FRAME_SIZE))
    shared = sum(header[5] for name, header in sections.items() if name.startswith(".nv.shared."))
    return Resources(registers=text[7] >> 24, stack=stack, shared=shared)
