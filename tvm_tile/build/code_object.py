"""Facts that machine code for AMD's GPUs, an ELF file, holds of its only kernel (HSA metadata)."""

from __future__ import annotations

import struct

from tvm_tile.build.elf import sections_of
from tvm_tile.report.resources import Resources

_NOTE = struct.Struct("<III")
_NOTES, _METADATA = 7, 32  # the type of such sections, and of the note


def resources_of(binary: bytes) -> Resources:
    """Read them from the metadata of a code object that holds one kernel."""
    import msgpack

    (kernel,) = msgpack.unpackb(_metadata(binary))["amdhsa.kernels"]

    def number(name: str) -> int:
        # RDNA's kernels have no registers for accumulation, and do not say so.
        return int(kernel.get(f".{name}", 0))

    return Resources(
        registers=number("vgpr_count"),
        stack=number("private_segment_fixed_size"),
        shared=number("group_segment_fixed_size"),
        spilled=number("vgpr_spill_count"),
        accumulation=number("agpr_count"),
        scalar=number("sgpr_count"),
        warp=number("wavefront_size"),
        most_threads=number("max_flat_workgroup_size"),
    )


def _metadata(elf: bytes) -> bytes:
    """The note with the metadata of a code object."""
    for section in sections_of(elf):
        at, end = section.offset, section.offset + section.length
        while section.kind == _NOTES and at < end:
            name, described, note = _NOTE.unpack_from(elf, at)
            start = at + _NOTE.size + -(-name // 4) * 4
            if note == _METADATA:
                return elf[start : start + described]
            at = start + -(-described // 4) * 4
    raise ValueError("the code object has no metadata")
