"""How many registers a compiler takes beside those that a tile names, and how far it loads ahead.

Fitted to what compilers made of tiles: nvcc 13.0 for sm_90, as the other constants of the models
that ask here, and the clang of Zig 0.17 (LLVM 22) for AMD's GPUs, on random tiles of the functions
of ResNet-50, BERT, MobileNetV2 and Swin-T in float32 and float16.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tvm_tile.device.device import Device


@dataclass(frozen=True, slots=True)
class RegisterUse:
    """A compiler's ways; all numbers are 32-bit registers of a thread.

    Attributes:
        beside_sums: registers of a product on CUDA cores beside its sums: addresses and loop state.
        of_a_sum: registers for each of its sums, with a share of the operands.
        of_a_word: registers for each word of the next step's operands, where they are loaded ahead.
        beside_rows: registers beside rows that are held.
        row_vectors: registers for each element of a vector of these rows, in the last stage.
        beside_loads: registers of a product of few vectors beside its loads.
        least: least registers of a kernel that loops, however little it holds.
        is_eager: whether whatever is known to be loaded later is loaded first: both parameters of
            all vectors of a row, the next line of a strip, all of a step's operands.
        has_all_fragments: whether matrix instructions have the operands of a whole chunk loaded,
            not of one step.
    """

    beside_sums: float
    of_a_sum: float
    of_a_word: float
    beside_rows: int
    row_vectors: int
    beside_loads: int
    least: int
    is_eager: bool
    has_all_fragments: bool


_NVCC = RegisterUse(
    beside_sums=37,
    of_a_sum=0.83,
    of_a_word=0.83,
    beside_rows=24,
    row_vectors=1,
    beside_loads=14,
    least=32,
    is_eager=False,
    has_all_fragments=False,
)
# What all threads of a wave share, such as the start of a tensor, has registers of its own.
_CDNA = RegisterUse(
    beside_sums=45,
    of_a_sum=2.2,
    of_a_word=1.45,
    beside_rows=9,
    row_vectors=2,
    beside_loads=11,
    least=0,
    is_eager=True,
    has_all_fragments=False,
)
_RDNA = replace(_CDNA, beside_rows=8, beside_loads=9, has_all_fragments=True)
USES = {("rocm", 64): _CDNA, ("rocm", 32): _RDNA}
"""By a kernel's language and the threads of a wave; nvcc's where there is none."""


def register_use(device: Device) -> RegisterUse:
    """How many registers the compiler for a device takes."""
    return USES.get((device.kernel_language, device.warp_size), _NVCC)
