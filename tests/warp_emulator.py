"""Run a kernel for tensor cores on the CPU, from its CUDA text; slow, but no GPU."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from precompiled import COMPILER, reading, scratch

from tvm_tile.build.leaving import with_leaving
from tvm_tile.build.packed import pack_halves
from tvm_tile.build.program import Kernel
from tvm_tile.graph.tensor_format import bytes_of

# What TVM names its helpers -> the emulator's, which take what the names say as arguments.
_HELPERS = (
    (r"tvm_builtin_ptx_mma_\w+_bf16_f32\w*\(", "mma<nv_bfloat16>("),
    (r"tvm_builtin_ptx_mma_\w+\(", "mma<half>("),
    (r"tvm_builtin_ptx_ldmatrix_\w+_trans_\w+\(", "ldmatrix<true>("),
    (r"tvm_builtin_ptx_ldmatrix_\w+\(", "ldmatrix<false>("),
    (r"tvm_builtin_ptx_griddepcontrol_\w+\(", "begun("),
    (r"tvm_builtin_ptx_cp_async_commit_group\w*\(", "commit("),
    (r"tvm_builtin_ptx_cp_async_wait_all\w*\(", "wait_all("),
    (r"tvm_builtin_ptx_cp_async_wait_group\w*_(\d+)\(", r"wait_group(\1"),
    (r"tvm_builtin_ptx_cp_async_c[ag]_src_size\w*_(\d+)\(", r"cp_async_\1("),
    (r"tvm_builtin_ptx_cp_async_c[ag]_\w*_(\d+)\(", r"cp_async_whole_\1("),
    (r"tvm_builtin_cuda_cvta_generic_to_shared\(", "cvta("),
    (r"tvm_builtin_cuda_(warp|cta|cluster|any)_sync\(", r"\1_sync("),
    (r"tvm_builtin_cluster_ctaid_x\(", "rank("),
    (r"tvm_builtin_ptx_barrier_cluster_arrive\w*\(", "begun_in_cluster("),
    (r"tvm_builtin_ptx_barrier_cluster_wait\w*\(", "wait_for_begun("),
    (r"tvm_builtin_ptx_mapa_u64\(", "mapa("),
    (r"tvm_builtin_ptx_mapa_u32\w*\(", "map_address("),
    (r"tvm_builtin_ptx_st_async\w*_f32\(", "send("),
    (r"tvm_builtin_cuda_mbarrier_wait_acquire_cluster\(", "wait_for_letters("),
    (r"tvm_builtin_ptx_fence_mbarrier_init\w*\(", "begun("),
    (r"tvm_builtin_ptx_mbarrier_init\w+\(", "mbarrier_init("),
    (r"tvm_builtin_ptx_mbarrier_arrive_expect_tx\w+\(", "mbarrier_expect("),
    (r"tvm_builtin_ptx_cvt_f16x2_f32\w+\(", "pack_halves("),
    (r"\bsigned char\b", "char"),
    (r"tvm_builtin_ptx_ld_vec_global_nc\w*_v(\d)_u32\(", r"load_words_\1("),
    (r"tvm_builtin_ptx_ld_global_nc\w*_u32\(", "load_words_1("),
    (r"tvm_builtin_ptx_add_half_rn_f16x2\(", "add_halves("),
    (r"tvm_builtin_ptx_mul_half_rn_f16x2\(", "multiply_halves("),
    (r"tvm_builtin_ptx_fma_half_rn_f16x2\(", "fma_halves("),
    (r"tvm_builtin_ptx_fma_half_rn_bf16x2\(", "fma_bfloat16("),
    (r"tvm_builtin_ptx_prmt_b32\(", "choose_bytes("),
    (r"tvm_builtin_ptx_lop3_b32_(\d+)\(", r"combine_bits<\1>("),
    (r"tvm_builtin_ptx_mul_half_rn_bf16x2\(", "multiply_bfloat16("),
    (r"tvm_builtin_ptx_cvt_bf16x2_f32\w*\(", "pack_bfloat16("),
    (r"tvm_builtin_ptx_ld_shared_u32\(", "load_shared("),
    (r"tvm_builtin_ptx_ex2_approx\w+\(", "exponential("),
    (r"tvm_builtin_cuda_warp_reduce_max_(\d+)\(", r"most_of<\1>("),
    (r"tvm_builtin_cuda_warp_reduce_sum_(\d+)\(", r"sum_of<\1>("),
    # Each block of a cluster has its own.
    (
        r"__shared__ alignas\((\d+)\) uint64_t (\w+)\[(\d+)\];",
        r"SHARED uint64_t \2_of[CLUSTER][\3]; uint64_t *\2 = \2_of[rank()];",
    ),
    (r"__shared__ alignas\((\d+)\)", r"alignas(\1) SHARED"),
    (r"extern __shared__ \S+ (\w+) (\w+)\[\];", r"\1* \2 = (\1*)block_memory();"),
)
_HOPPER_HELPERS = (
    (
        r"wgmma_sparse_m64n(\d+)k32_bf16_bf16_0_(\d)_(\d)\(",
        r"multiply_sparse<nv_bfloat16, \1, \2, \3>(",
    ),
    (
        r"wgmma_sparse_m64n(\d+)k32_f16_f16_0_(\d)_(\d)\(",
        r"multiply_sparse<half, \1, \2, \3>(",
    ),
    (
        r"tvm_builtin_ptx_wgmma_\w+?m64n(\d+)k16\w*_bf16_\w*(\d)\(",
        r"multiply<nv_bfloat16, \1, \2>(",
    ),
    (r"tvm_builtin_ptx_wgmma_\w+?m64n(\d+)k16\w*_(\d)\(", r"multiply<half, \1, \2>("),
    (r"tvm_builtin_ptx_wgmma_commit_group\w+\(", "commit_products("),
    (r"tvm_builtin_ptx_wgmma_wait_group\w+_(\d+)\(", r"wait_products(\1"),
    (r"tvm_builtin_ptx_mbarrier_arrive\w+\(", "mbarrier_arrive("),
    (r"tvm_builtin_cuda_mbarrier_wait\(", "mbarrier_wait("),
    (r"tvm_builtin_ptx_cp_async_bulk_tensor\w+\(", "copy_box("),
    (r"tvm_builtin_ptx_(setmaxnreg|fence|wgmma_fence)\w*\(", "nothing("),
)
# Matrix instructions by what their names say.
_AMD_HELPERS = (
    (r"\bsigned char\b", "int8_t"),
    (
        r"\b(mfma|wmma_gfx1\d)_(\w+?)_(\d+)x\d+x(\d+)_(\w+)\(",
        r"multiply<\1, sum_\2, \3, \4, in_\5>(",
    ),
    *_HELPERS,
)
_SIZES = "\n".join(
    f"#define cp_async_{n}(into, from, size) cp_async(into, from, {n}, size)\n"
    f"#define cp_async_whole_{n}(into, from) cp_async(into, from, {n}, {n})"
    for n in (4, 8, 16)
)
_MATRIX = re.compile(r"\b(mfma|wmma)_")
_TENSOR_MAP = re.compile(
    r'cuTensorMapEncodeTiled", (\w+), "(\w+)", (\d+), (\w+)\.data, ([\d, ]+)\)'
)
_MOST_DIMENSIONS = 5
_LARGEST_BOX = 256  # elements along a dimension
_NUMBERS = count()


class Race(AssertionError):
    """Accesses to the same memory by several threads, one of them to write, which no barrier
    orders."""


class TensorMap(ctypes.Structure):
    """Where a tensor lies and what is copied of it at once, for the emulator; bytes, innermost
    dimension first."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("rank", ctypes.c_int64),
        *((name, ctypes.c_int64 * _MOST_DIMENSIONS) for name in ("extents", "strides", "box")),
        ("swizzled", ctypes.c_int64),
    )


def tensor_maps(script: str, arrays: Mapping[str, np.ndarray]) -> dict[str, TensorMap]:
    """The descriptors that a scheduled function encodes, by name, of its parameters' memory."""
    found = {}
    for name, dtype, rank, source, text in _TENSOR_MAP.findall(script):
        dimensions, numbers = int(rank), [int(number) for number in text.split(",")]
        parts = np.split(numbers, np.cumsum([dimensions, dimensions - 1, dimensions, dimensions]))
        extents, strides, box, steps, modes = (part.tolist() for part in parts)
        assert set(steps) == {1}
        assert max(box) <= _LARGEST_BOX, "what the driver takes"
        made = TensorMap(arrays[source].ctypes.data, dimensions)
        made.extents[:dimensions], made.box[:dimensions] = extents, box
        made.strides[:dimensions] = [bytes_of(dtype), *strides]
        made.swizzled = modes[1] > 0
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
    cluster: int = 1,
    without: int = 0,
) -> None:
    """Run all blocks, one cluster after the other.

    Args:
        kernel: its text is run.
        grid: blocks.
        block: threads.
        arrays: name of a parameter -> its memory, half-precision numbers as float16.
        folder: for what is loaded.
        late: whether copies arrive as late as waiting allows, or at once.
        backward: whether a thread runs before its predecessor, or after.
        conflicts: whether ldmatrix may load rows that lie on the same banks.
        wave: threads of a wave, for AMD's kernels; 0: the kernel is NVIDIA's.
        columns: of the threads; the rest of ``block`` are rows.
        maps: name of a parameter -> its descriptor; for kernels of warpgroups.
        cluster: blocks that run together, and read each other's memory.
        without: which barrier is left out of a text with numbers, see :func:`numbered`; 0: none.

    Raises:
        Race: in shared memory or in an array, in whatever order threads would run. Kernels of
            warpgroups, whose barriers count what arrives, are not looked at.
    """
    header, text = _header_and_text(kernel.source, bool(wave), maps is not None)
    signature = re.findall(
        r"(\w+)(?:\* __restrict__)? (\w+)(?:, |\)$)",
        text.partition(";")[0].partition(f"{kernel.name}(")[2],
    )
    modes = [f"-DCLUSTER={cluster}"]
    modes += [f"-DWAVE={wave}"] if wave else []
    if maps is None:
        # The emulator's own statics, made safe, would need the sanitizer's library.
        modes += ["-fsanitize=thread", "-fno-threadsafe-statics"]
    text += "\n" + _call(kernel.name, [kind for kind, _ in signature])
    library = _library(header, f"#define COLUMNS {columns}\n{_SIZES}\n{text}", *modes)
    given = [
        _memory(maps[name] if maps and name in maps else arrays[name.removesuffix("_ptr")])
        for _, name in signature
    ]
    how = {"late": late, "backward": backward, "conflicts": conflicts, "without": without}
    # What was loaded once is not loaded again.
    with tempfile.NamedTemporaryFile(dir=folder, suffix=".so") as own:
        shutil.copy(library, own.name)
        _launch(own.name, grid, block, given, how)


def _launch(
    library: str, grid: int, block: int, given: Sequence[Any], how: Mapping[str, int]
) -> None:
    """Run what was compiled, on addresses and bytes of its arguments."""
    pointers, sizes = zip(*given, strict=True)
    loaded = ctypes.CDLL(library)
    for name, value in how.items():
        ctypes.c_int.in_dll(loaded, name).value = value
    loaded.launch.restype = ctypes.c_char_p
    places = (ctypes.c_void_p * len(given))(*pointers)
    lengths = (ctypes.c_size_t * len(given))(*sizes)
    race = loaded.launch(grid, block, len(given), places, lengths)
    if race:
        raise Race(race.decode())


def numbered(kernel: Kernel, barrier: re.Pattern[str]) -> tuple[Kernel, list[str]]:
    """A kernel whose barriers may be left out one by one, and what they are, in their order."""
    head, start, body = kernel.source.rpartition('extern "C" __global__')
    found: list[str] = []

    def number(match: re.Match[str]) -> str:
        found.append(match[0])
        return f"if (without != {len(found)}) {{ {match[0]} }}"

    return replace(kernel, source=head + start + barrier.sub(number, body)), found


def _call(name: str, kinds: Sequence[str]) -> str:
    """A function that hands a kernel its arguments."""
    casts = ", ".join(
        f"*({kind}*)given[{i}]" if kind == "CUtensorMap" else f"({kind}*)given[{i}]"
        for i, kind in enumerate(kinds)
    )
    return f"static void kernel(void** given) {{ {name}({casts}); }}"


@cache
def _library(header: str, text: str, *modes: str) -> Path:
    """A library of a kernel and the emulator, which is compiled once, however it is launched."""
    source = scratch() / f"kernel{next(_NUMBERS)}.cpp"
    library, compiled = source.with_suffix(".so"), source.with_suffix(".o")
    source.write_text(f'#include "{header}"\n{text}\n')
    # The library of later standards takes longer to read than most kernels. Checked jumps would
    # refuse those to other stacks.
    options = ("-std=gnu++14", "-O1", "-fPIC", "-fno-strict-aliasing", "-U_FORTIFY_SOURCE", *modes)
    subprocess.run([*reading(header, *options), "-c", "-o", compiled, source], check=True)
    # On its own: a step that knows of the sanitizer links its library, which owns the process.
    subprocess.run([COMPILER or "", "-shared", "-o", library, compiled], check=True)
    compiled.unlink()
    return library


def _memory(of: np.ndarray | TensorMap) -> tuple[int, int]:
    """Address and bytes."""
    if isinstance(of, TensorMap):
        return ctypes.addressof(of), ctypes.sizeof(of)
    return of.ctypes.data, of.nbytes


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
    text = with_leaving(_kernel_of(source))
    for pattern, replacement in helpers:
        text = re.sub(pattern, replacement, text)
    return text


def _kernel_of(source: str) -> str:
    return source[source.index('extern "C" __global__') :]
