"""Resources of a multiprocessor that a kernel's machine code takes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Resources:
    """Resources that a kernel takes, as its machine code says.

    Attributes:
        registers: 32-bit registers that a thread is launched with (vector registers on AMD's GPUs,
            those for accumulation among them).
        stack: bytes of a thread's, where spilled registers and arrays lie.
        shared: bytes of a block, those declared with the kernel.
        spilled: registers that live in memory; ``None`` where the code does not say.
        accumulation: those of ``registers`` that only matrix instructions take.
        scalar: registers of a warp, where there are such.
        warp: threads of a warp; ``None`` where the code does not say.
        most_threads: most threads of a block; ``None`` where the code does not say.
    """

    registers: int
    stack: int
    shared: int
    spilled: int | None = None
    accumulation: int = 0
    scalar: int = 0
    warp: int | None = None
    most_threads: int | None = None
