"""Run a kernel of mma, ldmatrix and cp.async on the CPU, from its CUDA text; slow, but no GPU."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tvm_tile.build.program import Kernel

COMPILER = shutil.which("g++")
_FOLDER = Path(__file__).parent
# What TVM names its helpers -> the emulator's, which take what the names say as arguments.
_HELPERS = (
    (r"tvm_builtin_ptx_mma_\w+\(", "mma("),
    (r"tvm_builtin_ptx_ldmatrix_\w+_trans_\w+\(", "ldmatrix<true>("),
    (r"tvm_builtin_ptx_ldmatrix_\w+\(", "ldmatrix<false>("),
    (r"tvm_builtin_ptx_cp_async_commit_group\w*\(", "commit("),
    (r"tvm_builtin_ptx_cp_async_wait_all\w*\(", "wait_all("),
    (r"tvm_builtin_ptx_cp_async_wait_group\w*_(\d+)\(", r"wait_group(\1"),
    (r"tvm_builtin_ptx_cp_async_c[ag]_src_size\w*_(\d+)\(", r"cp_async_\1("),
    (r"tvm_builtin_ptx_cp_async_c[ag]_\w*_(\d+)\(", r"cp_async_whole_\1("),
    (r"tvm_builtin_cuda_cvta_generic_to_shared\(", "cvta("),
    (r"tvm_builtin_cuda_(warp|cta)_sync\(", r"\1_sync("),
    (r"extern __shared__ \S+ uchar (\w+)\[\];", r"uchar* \1 = shared;"),
)


def emulate(
    kernel: Kernel,
    grid: int,
    block: int,
    arrays: Mapping[str, np.ndarray],
    folder: Path,
    *,
    late: bool,
    backward: bool,
    conflicts: bool = False,
) -> None:
    """Run all blocks, one after the other.

    Args:
        kernel: its text is run.
        grid: blocks.
        block: threads.
        arrays: name of a parameter -> its memory, half-precision numbers as float16.
        folder: for what is compiled.
        late: whether copies arrive as late as waiting for them allows, or at once.
        backward: whether a thread runs before its predecessor, or after it.
        conflicts: whether ldmatrix may load rows that lie on the same banks.
    """
    assert COMPILER is not None
    text = kernel.source[kernel.source.index('extern "C" __global__') :]
    for pattern, replacement in _HELPERS:
        text = re.sub(pattern, replacement, text)
    signature = re.findall(r"(\w+)\* __restrict__ (\w+)_ptr", text.partition(";")[0])
    casts = ", ".join(f"({kind}*)given[{i}]" for i, (kind, _) in enumerate(signature))
    sizes = "\n".join(
        f"#define cp_async_{n}(into, from, size) cp_async(into, from, {n}, size)\n"
        f"#define cp_async_whole_{n}(into, from) cp_async(into, from, {n}, {n})"
        for n in (4, 8, 16)
    )
    source, library = folder / "kernel.cpp", folder / f"kernel{late:d}{backward:d}.so"
    source.write_text(
        f'#include "warp_emulator.h"\n{sizes}\n{text}\n'
        f"static void kernel(void** given) {{ {kernel.name}({casts}); }}\n"
    )
    modes = [f"-DLATE={late:d}", f"-DBACKWARD={backward:d}", f"-DCONFLICTS={conflicts:d}"]
    options = ["-O1", "-w", "-shared", "-fPIC", "-fno-strict-aliasing", f"-I{_FOLDER}"]
    subprocess.run([COMPILER, *options, *modes, "-o", library, source], check=True)
    pointers = (ctypes.c_void_p * len(signature))(
        *(arrays[name].ctypes.data for _, name in signature)
    )
    ctypes.CDLL(str(library)).launch(grid, block, pointers)
