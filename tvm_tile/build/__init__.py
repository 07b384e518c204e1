"""From a scheduled Relax module to bytes: host code, virtual machine bytecode and machine code.

``lower.py`` is the page to start on. CUDA text is TVM's, compiled by NVRTC or nvcc (``cuda.py``).
For AMD's GPUs the same text becomes HIP: ``hip_prelude.h`` defines what TVM's CUDA text lacks to be
HIP, ``hip_matrix.h`` the matrix instructions, ``hip_math.py`` and ``hip_math.zig`` the functions of
the mathematics library; ``hip.py`` compiles it with the clang of Zig. Kernels that read the GPU's
clocks are copies with ``marks.py``; a function of open extents has several schedules, of which the
host code of ``dispatch.py`` takes one.
"""

from __future__ import annotations

from tvm_tile.build.lower import Builder
from tvm_tile.build.machine_code import compiler_of
from tvm_tile.build.naming import rename_by_content
from tvm_tile.build.program import Kernel, Program

__all__ = [
    "Builder",
    "Kernel",
    "Program",
    "compiler_of",
    "rename_by_content",
]
