"""Marks in the text of persistent kernels: where a record's work begins, and where it ends.

Functions that do nothing are called there, of which compilers leave nothing. In a copy of the
kernel they take the time, and write it to memory that the copy is compiled for; so neither the
kernel's parameters nor who launches it need know.
"""

from __future__ import annotations

from tvm_tile.errors import BuildError

BEGIN = """
__forceinline__ __device__ void tile_begin(int record) {}
"""
END = """
__forceinline__ __device__ void tile_end(int record) {}
"""
WORDS = 4
"""Numbers of 64 bits that a record's stamps take: the multiprocessor's clock and the GPU's timer
when it begins, and both when it ends."""

_STAMP = """
__forceinline__ __device__ void {name}(int record) {{
  if (threadIdx.x == 0) {{
    unsigned long long timer;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(timer) :: "memory");
    volatile long long* own = (volatile long long*){address}ull + {words}ll * record + {first};
    own[0] = clock64();
    own[1] = timer;
  }}
}}
"""


def is_marked(source: str) -> bool:
    """Whether the text of a kernel has the marks."""
    return BEGIN.strip() in source and END.strip() in source


def stamping(source: str, address: int) -> str:
    """The text of a kernel whose records write when they began and ended.

    Args:
        source: CUDA, with the marks.
        address: address in the GPU's memory of :data:`WORDS` numbers a record.

    Raises:
        BuildError: the text has no marks.
    """
    if not is_marked(source):
        raise BuildError(
            "a kernel whose records take the time must have marks",
            "its text has none",
            "take a persistent kernel without control flow, compiled by this version",
        )
    for mark, name, first in ((BEGIN, "tile_begin", 0), (END, "tile_end", WORDS // 2)):
        stamp = _STAMP.format(name=name, address=address, words=WORDS, first=first)
        source = source.replace(mark.strip(), stamp.strip())
    return source
