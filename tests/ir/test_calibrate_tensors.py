"""Arguments of measured functions: what they hold, and which elements are compared."""

from __future__ import annotations

import ctypes
import math
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from tvm_tile.calibrate import tensors, tiles
from tvm_tile.calibrate.cases import Case
from tvm_tile.calibrate.driver import Buffer, Gpu, LoadedKernel
from tvm_tile.calibrate.sources import kernel_text
from tvm_tile.calibrate.tensors import Picker, Tensors, step_of
from tvm_tile.calibrate.tiles import Timed
from tvm_tile.device import find_device
from tvm_tile.errors import CalibrationError
from tvm_tile.runtime.trials import Argument, drawn
from tvm_tile.schedule.rule import Scheduled
from tvm_tile.tile.rules import ELEMENTWISE

H200 = find_device("nvidia/h200")

# CUDA's words for a launch whose threads run one after the other.
PRELUDE = """
#define __global__
static struct { int x; } threadIdx, blockIdx, blockDim;
"""
LAUNCH = """
extern "C" void launch(int blocks, int threads, const unsigned char* from, unsigned char* into,
                       int bytes, int step, int count) {
  blockDim.x = threads;
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x)
    for (threadIdx.x = 0; threadIdx.x < threads; ++threadIdx.x)
      pick(from, into, bytes, step, count);
}
"""


class Memory:
    """The part of CUDA's driver that copies and fills, in the host's memory."""

    def cuMemcpyHtoDAsync(self, into: int, source: int, size: int, _stream: Any) -> tuple[int]:
        ctypes.memmove(into, source, size)
        return (0,)

    cuMemcpyDtoDAsync = cuMemcpyHtoDAsync

    def cuMemcpyDtoH(self, into: int, source: int, size: int) -> tuple[int]:
        ctypes.memmove(into, source, size)
        return (0,)

    def cuMemsetD8Async(self, into: int, byte: int, size: int, _stream: Any) -> tuple[int]:
        ctypes.memset(into, byte, size)
        return (0,)

    def cuStreamSynchronize(self, _stream: Any) -> tuple[int]:
        return (0,)


class Host(Gpu):
    """The host in place of a GPU, whose only kernel is the one that picks."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._api, self._stream, self._stack = Memory(), None, ExitStack()
        self._library, self._kept = library, list[Any]()

    def load(self, _cubin: bytes, name: str, _shared: int = 0) -> LoadedKernel:
        return LoadedKernel(name, 0)

    def allocate(self, size: int) -> Buffer:
        self._kept.append(ctypes.create_string_buffer(size))
        return Buffer(ctypes.addressof(self._kept[-1]), size)

    def launch(
        self, kernel: LoadedKernel, blocks: int, threads: int, *given: Any, **_: Any
    ) -> None:
        values = [ctypes.c_void_p(v.address) if isinstance(v, Buffer) else v for v in given]
        self._library.launch(blocks, threads, *values)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Host:
    source = tmp_path_factory.mktemp("pick") / "pick.cpp"
    source.write_text(PRELUDE + kernel_text("pick") + LAUNCH, encoding="utf-8")
    library = source.with_suffix(".so")
    subprocess.run(["g++", "-O1", "-shared", "-fPIC", source, "-o", library], check=True)
    return Host(ctypes.CDLL(str(library)))


@pytest.fixture
def picker(host: Host, monkeypatch: pytest.MonkeyPatch) -> Picker:
    """A picker of few elements, so that tensors in tests are small."""
    monkeypatch.setattr(tensors, "compile_cuda", lambda *_: b"")
    monkeypatch.setattr(tensors, "_PICKED", 1000)
    monkeypatch.setattr(tensors, "_ENDS", 16)
    monkeypatch.setattr(tensors, "_DRAWN", 101)
    monkeypatch.setattr(tvm, "cuda", lambda _: tvm.cpu())
    return Picker.on(host, H200)


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8", "float64"])
@pytest.mark.parametrize("size", [1, 1000, 1001, 2048, 30000, 98304])
def test_elements_of_all_of_a_tensor_and_its_ends_are_picked(
    picker: Picker, dtype: str, size: int
) -> None:
    values = (np.arange(size) % 127).astype(dtype)
    got = picker.picked(picker.gpu.upload(values), dtype)
    step = step_of(size)
    parts = (values,) if step == 1 else (values[::step], values[:16], values[-16:])
    assert (got == np.concatenate(parts)).all()
    assert len(values[::step]) <= 1000


@pytest.mark.parametrize("shape", [(64, 56, 56, 256), (98304, 128), (8192, 3072), (64, 197, 768)])
def test_every_column_is_picked_equally_often(shape: tuple[int, ...]) -> None:
    size = math.prod(shape)
    places = np.arange(0, size, step_of(size))
    assert 0.8 * (1 << 20) < len(places) <= 1 << 20
    for tile in (shape[-1], 64, 16 * shape[-1]):
        counts = np.bincount(places % tile, minlength=tile)
        assert counts.max() - counts.min() <= 1


def test_small_tensors_are_compared_whole() -> None:
    assert {step_of(size) for size in (1, 7, 1000, 1 << 20)} == {1}
    assert step_of((1 << 20) + 1) > 1


def test_inputs_hold_what_is_drawn_and_repeat_it(picker: Picker) -> None:
    arguments = [
        Argument((3, 5), "float16", is_output=False),
        Argument((70, 11), "float32", is_output=False),
        Argument((40,), "int32", is_output=False),
    ]
    found = Tensors.drawn(picker, arguments)
    first, second, third = (value.numpy() for value in found.values)
    assert (first == drawn(np.random.default_rng(0), arguments[0])).all()
    flat = second.reshape(-1)
    assert len(np.unique(flat[:101])) == 101
    assert (flat == np.resize(flat[:101], flat.size)).all()
    assert {*third.tolist()} == {0, 1}


def test_outputs_are_poisoned_before_each_run(picker: Picker) -> None:
    arguments = [
        Argument((2000,), "float16", is_output=False),
        Argument((30, 100), "float16", is_output=True),
        Argument((9,), "int32", is_output=True),
    ]
    found = Tensors.drawn(picker, arguments)
    given = found.values[0].numpy()
    for _ in range(2):
        found.poison()
        poisoned, numbers = found.picked()
        assert np.isnan(poisoned).all()
        assert (numbers == -1).all()
        found.values[1].copyfrom(np.ones((30, 100), np.float16))
    assert (found.picked()[0] == 1).all()
    assert (found.values[0].numpy() == given).all()


class Measured:
    """In place of built programs, functions that the host runs; and of a timer, one that is not.

    Args:
        written: how many elements of the output each of them writes, by its place.
        monkeypatch: what puts them in their place.
    """

    def __init__(self, written: Sequence[int], monkeypatch: pytest.MonkeyPatch) -> None:
        self.functions = {f"tile{n}": partial(self.double, own) for n, own in enumerate(written)}
        self.runs: list[int] = []
        monkeypatch.setattr(tiles, "load_functions", lambda *_: self.functions)
        monkeypatch.setattr(tiles, "Program", str)

    def build_functions(self, names: Mapping[str, Any]) -> dict[str, str]:
        assert names.keys() == self.functions.keys()
        return dict.fromkeys(names, "a program")

    def double(self, count: int, given: Any, result: Any) -> None:
        doubled = result.numpy().copy()
        doubled[:count] = 2 * given.numpy()[:count]
        result.copyfrom(doubled)

    def timed(self, run: Callable[[], None]) -> Timed:
        run()
        self.runs.append(1)
        return Timed(2e-6, 1e-6)


def doubled(x: Any) -> relax.Expr:
    return relax.op.multiply(x, relax.const(2, "float32"))


@pytest.mark.parametrize("written", [(3000, 3000, 3000), (3000, 3000, 2000), (3000, 2000, 3000)])
def test_tiles_must_write_the_same(
    picker: Picker, monkeypatch: pytest.MonkeyPatch, written: tuple[int, ...]
) -> None:
    (func,) = Case("doubled", "float32", ((3000,),), doubled).functions(H200)
    measured = Measured(written, monkeypatch)
    scheduled = [Scheduled(func, ELEMENTWISE, "a tile", 12, 256, 1.0)] * 3
    # Of what a tile does not write, the one before it is no excuse.
    given: Any = measured, H200, picker, measured.timed, func, scheduled
    if min(written) == 3000:
        assert tiles._times(*given) == dict.fromkeys(range(3), Timed(2e-6, 1e-6))
    else:
        with pytest.raises(CalibrationError, match="must compute the same"):
            tiles._times(*given)
        assert len(measured.runs) == written.index(2000)


@pytest.mark.parametrize(("seconds", "most"), [(1e-6, 6), (1e-3, 4), (5e-3, 2)])
def test_long_kernels_run_seldom(seconds: float, most: int) -> None:
    class Alike:
        """Every run takes the same."""

        runs = 0

        def time(self, _run: Any, repeats: int, _before: Any) -> list[float]:
            self.runs += repeats
            return [seconds] * repeats

        def seconds(self, _run: Any, cold: float) -> float:
            return cold / 2

    alike = Alike()
    found = tiles._timed(alike, alike, lambda: None, lambda: None)  # type: ignore[arg-type]
    assert found == Timed(seconds, seconds / 2)
    assert alike.runs == most
