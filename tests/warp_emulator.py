"""Run a kernel for tensor cores on the CPU, from its CUDA text; slow, but no GPU."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tvm_tile.build.packed import pack_halves
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
    (r"__shared__ alignas\((\d+)\)", r"alignas(\1) static"),
    (r"extern __shared__ \S+ (\w+) (\w+)\[\];", r"\1* \2 = (\1*)shared;"),
)
_HOPPER_HELPERS = (
    (r"tvm_builtin_ptx_wgmma_f16_ss_\w+?m64n(\d+)k16\w*_(\d)\(", r"multiply<\1, \2>("),
    (r"tvm_builtin_ptx_wgmma_f16_rs_\w+?m64n(\d+)k16\w*_(\d)\(", r"multiply<\1, \2>("),
    (r"tvm_builtin_ptx_wgmma_commit_group\w+\(", "commit_products("),
    (r"tvm_builtin_ptx_wgmma_wait_group\w+_(\d+)\(", r"wait_products(\1"),
    (r"tvm_builtin_ptx_mbarrier_init\w+\(", "mbarrier_init("),
    (r"tvm_builtin_ptx_mbarrier_arrive_expect_tx\w+\(", "mbarrier_expect("),
    (r"tvm_builtin_ptx_mbarrier_arrive\w+\(", "mbarrier_arrive("),
    (r"tvm_builtin_cuda_mbarrier_wait\(", "mbarrier_wait("),
    (r"tvm_builtin_ptx_cp_async_bulk_tensor\w+\(", "copy_box("),
    (r"tvm_builtin_ptx_cvt_f16x2_f32\w+\(", "pack_halves("),
    (r"tvm_builtin_ptx_ex2_approx\w+\(", "exponential("),
    (r"tvm_builtin_cuda_warp_reduce_max_4\(", "most_of_four("),
    (r"tvm_builtin_cuda_warp_reduce_sum_4\(", "sum_of_four("),
    (r"tvm_builtin_ptx_(setmaxnreg|fence|wgmma_fence)\w*\(", "nothing("),
)
# One block of shared memory, and matrix instructions by what their names say.
_AMD_HELPERS = (
    (r"\bsigned char\b", "int8_t"),
    (r"__shared__ alignas\(\d+\) (\w+) (\w+)\[\d+\];", r"\1* \2 = (\1*)shared;"),
    (
        r"\b(mfma|wmma_gfx1\d)_(\w+?)_(\d+)x\d+x(\d+)_(\w+)\(",
        r"multiply<\1, sum_\2, \3, \4, in_\5>(",
    ),
    *_HELPERS,
)
_MATRIX = re.compile(r"\b(mfma|wmma)_")
_TENSOR_MAP = re.compile(
    r'cuTensorMapEncodeTiled", (\w+), "float16", (\d+), (\w+)\.data, ([\d, ]+)\)'
)
_MOST_DIMENSIONS = 5


class TensorMap(ctypes.Structure):
    """Where a tensor lies and what is copied of it at once, for the emulator; bytes, innermost
    dimension first."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("rank", ctypes.c_int64),
        *((name, ctypes.c_int64 * _MOST_DIMENSIONS) for name in ("extents", "strides", "box")),
    )


def tensor_maps(script: str, arrays: Mapping[str, np.ndarray]) -> dict[str, TensorMap]:
    """The descriptors that a scheduled function encodes, by name, of its parameters' memory."""
    found = {}
    for name, rank, source, text in _TENSOR_MAP.findall(script):
        dimensions, numbers = int(rank), [int(number) for number in text.split(",")]
        parts = np.split(numbers, np.cumsum([dimensions, dimensions - 1, dimensions, dimensions]))
        extents, strides, box, steps, _ = (part.tolist() for part in parts)
        assert set(steps) == {1}
        made = TensorMap(arrays[source].ctypes.data, dimensions)
        made.extents[:dimensions], made.box[:dimensions] = extents, box
        made.strides[:dimensions] = [2, *strides]
        found[name] = made
    return found


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
    wave: int = 0,
    columns: int = 1024,
    maps: Mapping[str, TensorMap] | None = None,
) -> None:
    """Run all blocks, one after the other.

    Args:
        kernel: its text is run.
        grid: blocks.
        block: threads.
        arrays: name of a parameter -> its memory, half-precision numbers as float16.
        folder: for what is compiled.
        late: whether copies arrive as late as waiting allows, or at once.
        backward: whether a thread runs before its predecessor, or after.
        conflicts: whether ldmatrix may load rows that lie on the same banks.
        wave: threads of a wave, for AMD's kernels; 0: the kernel is NVIDIA's.
        columns: of the threads; the rest of ``block`` are rows.
        maps: name of a parameter -> its descriptor; for kernels of warpgroups.
    """
    assert COMPILER is not None
    header, text = _header_and_text(kernel.source, bool(wave), maps is not None)
    signature = re.findall(
        r"(\w+)(?:\* __restrict__)? (\w+)(?:, |\)$)",
        text.partition(";")[0].partition(f"{kernel.name}(")[2],
    )
    casts = ", ".join(
        f"*({kind}*)given[{i}]" if kind == "CUtensorMap" else f"({kind}*)given[{i}]"
        for i, (kind, _) in enumerate(signature)
    )
    sizes = "\n".join(
        f"#define cp_async_{n}(into, from, size) cp_async(into, from, {n}, size)\n"
        f"#define cp_async_whole_{n}(into, from) cp_async(into, from, {n}, {n})"
        for n in (4, 8, 16)
    )
    source, library = folder / "kernel.cpp", folder / f"kernel{late:d}{backward:d}.so"
    launch = f"static void kernel(void** given) {{ {kernel.name}({casts}); }}"
    source.write_text(f'#include "{header}"\n{sizes}\n{text}\n{launch}\n')
    modes = [f"-DLATE={late:d}", f"-DBACKWARD={backward:d}", f"-DCONFLICTS={conflicts:d}"]
    modes += [f"-DCOLUMNS={columns}", *([f"-DWAVE={wave}"] if wave else [])]
    options = ["-O1", "-w", "-shared", "-fPIC", "-fno-strict-aliasing", f"-I{_FOLDER}"]
    subprocess.run([COMPILER, *options, *modes, "-o", library, source], check=True)
    pointers = (ctypes.c_void_p * len(signature))(
        *(
            ctypes.addressof(maps[name])
            if maps is not None and kind == "CUtensorMap"
            else arrays[name.removesuffix("_ptr")].ctypes.data
            for kind, name in signature
        )
    )
    ctypes.CDLL(str(library)).launch(grid, block, pointers)


def _header_and_text(source: str, is_amd: bool, is_hopper: bool) -> tuple[str, str]:
    # Of AMD's, other kernels with shared memory may have several blocks of it.
    if is_amd and (_MATRIX.search(source) or "__shared__" not in _kernel_of(source)):
        return "matrix_emulator.h", _text_of(source, _AMD_HELPERS)
    packed = source if is_amd else pack_halves(source, contract=True)
    if is_hopper:
        return "warpgroup_emulator.h", _text_of(packed, (*_HELPERS, *_HOPPER_HELPERS))
    return "warp_emulator.h", _text_of(packed, _HELPERS)


def _text_of(source: str, helpers: Sequence[tuple[str, str]]) -> str:
    """What is compiled for the GPU, with calls of the emulator's functions."""
    text = _kernel_of(source)
    for pattern, replacement in helpers:
        text = re.sub(pattern, replacement, text)
    return text


def _kernel_of(source: str) -> str:
    return source[source.index('extern "C" __global__') :]
