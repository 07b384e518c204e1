"""What the emulator of warps takes for a race: small texts, each one thing away from another."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from warp_emulator import COMPILER, Race, emulate

from tvm_tile.build.program import Kernel

# Of thread t in block b: ``own`` is shared memory of 128 numbers, ``out`` has 256.
STORE = "own[t] = t;"
NEIGHBOURS, FAR = "out[b * 128 + t] = own[t ^ 1];", "out[b * 128 + t] = own[t ^ 64];"
FIRST, CHANGE = "out[b * 128 + t] = own[0];", "if (t == 0) own[0] = 1;"
SHUFFLE = "out[b * 128 + t] = __shfl_xor_sync(0xffffffff, 1.0f, 1, 32);"
WARP, BLOCK = "tvm_builtin_cuda_warp_sync();", "tvm_builtin_cuda_cta_sync();"
# Of four numbers a thread, from global to shared memory.
COPY = "if (t < 32) cp_async_whole_16(cvta(own + t * 4), out + t * 4);"
WAIT = "commit(); wait_group(0);"
COPIED, OTHERS = "if (t < 32) out[128 + t] = own[t * 4];", "out[128 + t] = own[t];"

TEXTS = {
    "own": (STORE + "out[b * 128 + t] = own[t];", False),
    "neighbours": (STORE + NEIGHBOURS, True),
    "neighbours, shuffle": (STORE + SHUFFLE + NEIGHBOURS, True),
    "neighbours, warp": (STORE + WARP + NEIGHBOURS, False),
    "neighbours, block": (STORE + BLOCK + NEIGHBOURS, False),
    "far": (STORE + FAR, True),
    "far, warp": (STORE + WARP + FAR, True),
    "far, block": (STORE + BLOCK + FAR, False),
    "overwritten": (STORE + BLOCK + NEIGHBOURS + STORE, True),
    "overwritten, warp": (STORE + BLOCK + NEIGHBOURS + WARP + STORE, False),
    "overwritten far, warp": (STORE + BLOCK + FAR + WARP + STORE, True),
    "overwritten far, block": (STORE + BLOCK + FAR + BLOCK + STORE, False),
    "one for all": (FIRST, False),
    "one for all, changed": (FIRST + WARP + CHANGE, True),
    "one for all, changed, block": (FIRST + BLOCK + CHANGE, False),
    "same number": ("own[t / 2] = 1;", True),
    "bytes of a number": ("((uchar*)own)[t] = 1;", False),
    "part of what another stores": ("if (t % 2) own[t] = 1; else *(float2*)(own + t) = {};", True),
    "other blocks' shared memory": (STORE + "out[b * 128 + t] = 1;", False),
    "other blocks store": ("out[t] = 1;", True),
    "other blocks load": (BLOCK + "if (b) out[t] = 1; else own[t] = out[t];" + BLOCK, True),
}
COPIES = {
    "waited for": (COPY + WAIT + COPIED, False),
    "not waited for": (COPY + COPIED, True),
    "not waited for, block": (COPY + BLOCK + OTHERS, True),
    "waited for late": (COPY + BLOCK + OTHERS + WAIT, True),
    "others, no barrier": (COPY + WAIT + OTHERS, True),
    "others, block": (COPY + WAIT + BLOCK + OTHERS, False),
    "overwrites": (STORE + OTHERS + COPY + WAIT, True),
    "overwrites, block": (STORE + OTHERS + BLOCK + COPY + WAIT, False),
    "overwrites what comes": (COPY + BLOCK + STORE + WAIT, True),
}

pytestmark = pytest.mark.skipif(COMPILER is None, reason="the emulator needs g++")


def run(body: str, folder: Path, blocks: int, wave: int = 0, *, backward: bool = False) -> None:
    head = 'extern "C" __global__ void __launch_bounds__(128) small_kernel(float* __restrict__ out)'
    begin = "__shared__ alignas(16) float own[128]; int t = threadIdx.x, b = blockIdx.x;"
    kernel = Kernel("small_kernel", f"{head};\n{head} {{ {begin} {body} }}\n", (), (), b"")
    arrays = {"out": np.zeros(256, np.float32)}
    emulate(kernel, blocks, 128, arrays, folder, late=True, backward=backward, wave=wave)


def has_race(
    body: str, folder: Path, blocks: int, wave: int = 0, *, backward: bool = False
) -> bool:
    try:
        run(body, folder, blocks, wave, backward=backward)
    except Race:
        return True
    return False


@pytest.mark.parametrize("name", TEXTS)
def test_what_barriers_order_in_any_order_of_threads(name: str, tmp_path: Path) -> None:
    body, expected = TEXTS[name]
    for backward in (False, True):
        assert has_race(body, tmp_path, 2, backward=backward) == expected


@pytest.mark.parametrize("name", COPIES)
def test_copies_are_under_way_until_they_are_waited_for(name: str, tmp_path: Path) -> None:
    body, expected = COPIES[name]
    assert has_race(body, tmp_path, 1) == expected


@pytest.mark.parametrize("wave", [32, 64])
def test_waves_of_any_size(wave: int, tmp_path: Path) -> None:
    assert has_race(STORE + WARP + NEIGHBOURS.replace("^ 1", "^ 32"), tmp_path, 1, wave) == (
        wave == 32
    )


def test_what_is_reported(tmp_path: Path) -> None:
    with pytest.raises(Race, match=r"block 1, thread 0: .* byte 4 of memory 1"):
        run("if (t == 0) out[1] = 1;", tmp_path, 2)
