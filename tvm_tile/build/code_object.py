"""What machine code for AMD's GPUs, an ELF file, says of its only kernel (HSA metadata)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

_SECTION = struct.Struct("<IIQQQQIIQQ")
_NOTE = struct.Struct("<III")
_NOTES, _METADATA = 7, 32  # the type of such sections, and of the note


@dataclass(frozen=True, slots=True)
class CodeObject:
    """What a kernel takes of a compute unit (AMDGPU's code object metadata).

    Attributes:
        vgprs: vector registers of a thread, those for accumulation (``agprs``) among them.
        agprs: registers for accumulation.
        sgprs: scalar registers of a wave.
        spilled: vector registers that live in memory.
        stack: bytes of a thread's private memory, where spilled registers and arrays lie.
        shared: bytes of the local data share that a block takes, those declared with the kernel.
        wave: threads of a wave.
        most_threads: of a block.
    """

    vgprs: int
    agprs: int
    sgprs: int
    spilled: int
    stack: int
    shared: int
    wave: int
    most_threads: int


def read_code_object(binary: bytes) -> CodeObject:
    """Read the metadata of a code object that holds one kernel."""
    import msgpack

    (kernel,) = msgpack.unpackb(_metadata(binary))["amdhsa.kernels"]

    def number(name: str) -> int:
        return int(_of(kernel, name))

    agprs = number("agpr_count")
    return CodeObject(
        vgprs=number("vgpr_count"),
        agprs=agprs,
        sgprs=number("sgpr_count"),
        spilled=number("vgpr_spill_count"),
        stack=number("private_segment_fixed_size"),
        shared=number("group_segment_fixed_size"),
        wave=number("wavefront_size"),
        most_threads=number("max_flat_workgroup_size"),
    )


def _of(kernel: dict[str, Any], name: str) -> Any:
    """RDNA's kernels have no accumulation registers, and do not say so."""
    return kernel.get(f".{name}", 0)


def _metadata(elf: bytes) -> bytes:
    (table,) = struct.unpack_from("<Q", elf, 0x28)
    size, count = struct.unpack_from("<HH", elf, 0x3A)
    for number in range(count):
        _, kind, _, _, offset, length, *_ = _SECTION.unpack_from(elf, table + size * number)
        at = offset
        while kind == _NOTES and at < offset + length:
            name, described, note = _NOTE.unpack_from(elf, at)
            start = at + _NOTE.size + -(-name // 4) * 4
            if note == _METADATA:
                return elf[start : start + described]
            at = start + -(-described // 4) * 4
    raise ValueError("the code object has no metadata")
