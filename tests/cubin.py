"""What machine code for NVIDIA's GPUs says of itself, without the toolkit's programs."""

from __future__ import annotations

import struct

_REGISTERS, _FRAME = 0x2F, 0x11  # attributes EIATTR_REGCOUNT and EIATTR_FRAME_SIZE
_PAIR = 0x04  # an attribute with a length; here, a symbol and a number


def registers_and_stack(cubin: bytes) -> tuple[int, int]:
    """Of the only kernel: registers of a thread, and its bytes of local memory, spills included."""
    info = _section(cubin, b".nv.info")
    found: dict[int, int] = {}
    place = 0
    while place < len(info):
        kind, attribute, size = struct.unpack_from("<BBH", info, place)
        place += 4
        if kind == _PAIR:
            if attribute in (_REGISTERS, _FRAME):
                found[attribute] = struct.unpack_from("<II", info, place)[1]
            place += size
    return found[_REGISTERS], found[_FRAME]


def instructions(cubin: bytes) -> int:
    """Of the only kernel, whose name is ``kernel``; with those behind its end, up to seven."""
    return len(_section(cubin, b".text.kernel")) // 16


def _section(elf: bytes, wanted: bytes) -> bytes:
    """A section of a 64-bit ELF file, by its name."""
    (table,) = struct.unpack_from("<Q", elf, 0x28)
    size, count, names = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", elf, table + i * size) for i in range(count)]
    start = headers[names][4]
    for name, _, _, _, offset, length in headers:
        begin = start + name
        if elf[begin : elf.index(b"\0", begin)] == wanted:
            return elf[offset : offset + length]
    raise KeyError(wanted)
