"""Run kernels on the CPU, from CUDA text: persistent ones and chains, all blocks at once."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from precompiled import reading

from tvm_tile.build.program import Kernel

_MOST_THREADS = 1024
_SHARED = re.compile(r"__shared__ alignas\((\d+)\) (\w+) (\w+)\[(\d+)\];")
_DYNAMIC = re.compile(r"extern __shared__ \S+ uchar (\w+)\[\];")
_SIZES = {
    "uint4": 16,
    "int64_t": 8,
    "double": 8,
    "float": 4,
    "int": 4,
    "uint": 4,
    "half": 2,
    "nv_bfloat16": 2,
    "uchar": 1,
    "bool": 1,
}


class Stuck(AssertionError):
    """Threads that wait for what never comes."""


def run_grid(
    kernel: Kernel,
    arrays: Sequence[np.ndarray],
    shape: tuple[int, int],
    shared_bytes: int,
    folder: Path,
    *,
    seeds: Sequence[int] = (0,),
    columns: int = _MOST_THREADS,
) -> list[list[np.ndarray]]:
    """What the arrays hold after the kernel, for each seed of the blocks' order.

    Args:
        kernel: with its source.
        arrays: its arguments, in the order of its text.
        shape: blocks, and threads of a block.
        shared_bytes: dynamic shared memory of a block.
        folder: for the program.
        seeds: of random orders in which blocks go on.
        columns: threads of a block along x; the others are behind them along y.

    Raises:
        Stuck: some threads never end.
    """
    library = _compiled(kernel, folder, columns)
    results = []
    for seed in seeds:
        own = [array.copy() for array in arrays]
        pointers = (ctypes.c_void_p * len(own))(*(array.ctypes.data for array in own))
        left = library.run(pointers, *shape, shared_bytes, seed)
        if left:
            raise Stuck(f"{left} threads wait for ever (seed {seed})")
        results.append(own)
    return results


@dataclass(frozen=True, slots=True)
class Launched:
    """A kernel of a chain.

    Attributes:
        kernel: with its source.
        arrays: its arguments, in the order of its text; kernels of a chain share them.
        shape: blocks, and threads of a block.
        shared_bytes: dynamic shared memory of a block.
    """

    kernel: Kernel
    arrays: Sequence[np.ndarray]
    shape: tuple[int, int]
    shared_bytes: int = 0


def run_chain(chain: Sequence[Launched], folder: Path, *, seed: int = 0) -> None:
    """Run kernels that follow each other, each of which starts as early as it may.

    Whatever a kernel does before it waits is done before the kernel before it does anything behind
    its own wait: when that one's blocks are all past it, dependents may start. They start still
    earlier, with the kernel before, where its text lets them go ahead of its wait.

    Raises:
        Stuck: some threads never end.
    """
    libraries, pointers = [], []
    for place, own in enumerate(chain):
        # Each launch has a grid of its own.
        (folder / str(place)).mkdir(exist_ok=True)
        libraries.append(_compiled(own.kernel, folder / str(place)))
        addresses = (array.ctypes.data for array in own.arrays)
        pointers.append((ctypes.c_void_p * len(own.arrays))(*addresses))

    started = set[int]()

    def start(place: int) -> None:
        if place < len(chain) and place not in started:
            started.add(place)
            own = chain[place]
            libraries[place].start_early(pointers[place], *own.shape, own.shared_bytes, seed)
            before_wait, _, _ = own.kernel.source.rpartition("__global__")[2].partition("_wait();")
            if "_launch_dependents();" in before_wait:
                start(place + 1)

    start(0)
    for place in range(len(chain)):
        start(place + 1)
        if left := libraries[place].end(seed):
            raise Stuck(f"{left} threads of kernel {place} wait for ever (seed {seed})")


def parameters(kernel: Kernel) -> list[str]:
    """Names of a kernel's arguments, in the order of its text."""
    return [
        parameter.split()[-1].lstrip("*").removesuffix("_ptr") for parameter in _parameters(kernel)
    ]


def _parameters(kernel: Kernel) -> list[str]:
    signature = re.search(rf"{kernel.name}\((.*?)\)", kernel.source.partition('extern "C"')[2])
    assert signature is not None
    return signature[1].split(", ")


def compiled_kernels(kernels: Sequence[Kernel], folder: Path) -> ctypes.CDLL:
    """Kernels whose blocks are on their own, in one library.

    It has a function ``launch_NAME(arguments, blocks along x, along y, columns, rows, bytes)`` for
    each, which answers how many threads never end.
    """
    texts = []
    for kernel in kernels:
        text = _text_of(kernel)
        meets = int("sync" in text or "shared_memory(" in text)
        texts.append(f"""{text}
static void run_{kernel.name}() {{ {_call(kernel)} }}
extern "C" int launch_{kernel.name}(
    void** given, int width, int height, int columns, int rows, int bytes) {{
  arguments = given, COLUMNS = columns, kernel = run_{kernel.name}, blocks_in_row = width;
  int blocks = width * height;
  return {meets} ? run_blocks(blocks, columns * rows, bytes) : run_apart(blocks, columns * rows);
}}
""")
    head = """static int COLUMNS;
static void** arguments;
static void (*kernel)();
static void start() { kernel(); }
"""
    return _library(head + "".join(texts), folder, "kernels")


def _compiled(kernel: Kernel, folder: Path, columns: int = _MOST_THREADS) -> ctypes.CDLL:
    text = f"""#define COLUMNS {columns}
{_text_of(kernel)}
static void** arguments;
static void start() {{ {_call(kernel)} }}
extern "C" int run(void** given, int blocks, int threads, int bytes, int seed) {{
  arguments = given;
  return run_grid(blocks, threads, bytes, seed);
}}
extern "C" void start_early(void** given, int blocks, int threads, int bytes, int seed) {{
  arguments = given, ended_before = 0;
  run_grid(blocks, threads, bytes, seed);
}}
extern "C" int end(int seed) {{
  ended_before = 1;
  return go_on(seed);
}}
"""
    return _library(text, folder, kernel.name)


def _text_of(kernel: Kernel) -> str:
    """A kernel's text, with calls of the emulator's functions."""
    text = kernel.source[kernel.source.index('extern "C" __global__') :]
    end = 0

    def place(match: re.Match[str]) -> str:
        nonlocal end
        _, kind, name, count = match.groups()
        first, end = end, end + -(-_SIZES[kind] * int(count) // 64) * 64
        return f"{kind}* {name} = ({kind}*)shared_memory({first});"

    text = _DYNAMIC.sub(r"uchar* \1 = shared_memory(STATIC);", _SHARED.sub(place, text))
    return re.sub(r"tvm_builtin_cuda_(warp|cta)_sync\(", r"\1_sync(", text)


def _call(kernel: Kernel) -> str:
    """A call with the arguments that are given."""
    kinds = [parameter.rsplit(None, 1)[0] for parameter in _parameters(kernel)]
    given = ", ".join(
        f"({kind.replace('__restrict__', '')})arguments[{n}]" for n, kind in enumerate(kinds)
    )
    return f"{kernel.name}({given});"


def _library(text: str, folder: Path, name: str) -> ctypes.CDLL:
    source, library = folder / f"{name}.cpp", folder / f"{name}.so"
    if not library.exists():
        source.write_text(f'#include "grid_emulator.h"\n{text}')
        # Checked jumps would refuse those to other stacks.
        options = ("-O1", "-std=c++17", "-fPIC", "-U_FORTIFY_SOURCE")
        command = [*reading("grid_emulator.h", *options), "-shared", "-o", library, source]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[:4000]
    return ctypes.CDLL(str(library))
