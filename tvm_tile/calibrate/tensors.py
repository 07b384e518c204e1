"""Arguments of measured functions, which the GPU draws, fills and picks from: they can be large."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm

from tvm_tile.build.cuda import compile_cuda
from tvm_tile.calibrate.driver import Buffer, Gpu, LoadedKernel
from tvm_tile.calibrate.sources import PICK_THREADS, kernel_text
from tvm_tile.device import Device
from tvm_tile.runtime.arrays import numpy_dtype
from tvm_tile.runtime.trials import Argument, drawn

# Larger inputs repeat these many values. A prime, so that no row repeats another.
_DRAWN = 1_000_003
# Elements of an output that are compared: of a larger one that many, evenly spread, and its ends.
_PICKED, _ENDS = 1 << 20, 1 << 12
# In all bytes, NaN as a floating-point number, and no small integer.
_POISON = 0xFF


@dataclass(frozen=True, slots=True)
class Picker:
    """What picks elements of tensors.

    Attributes:
        gpu: the GPU that has the tensors.
        kernel: the kernel that picks.
        buffer: where it writes elements, of eight bytes at most.
    """

    gpu: Gpu
    kernel: LoadedKernel
    buffer: Buffer

    @classmethod
    def on(cls, gpu: Gpu, device: Device) -> Picker:
        """A picker on a GPU, whose record is ``device``.

        Raises:
            CompilerNotFoundError: no compiler makes code for it.
        """
        cubin = compile_cuda(kernel_text("pick"), str(dict(device.target)["arch"]))
        return cls(gpu, gpu.load(cubin, "pick"), gpu.allocate(8 * _PICKED))

    def picked(self, tensor: Buffer, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Elements of a tensor, one axis: all of a small one, else some; see :func:`step_of`."""
        width = np.dtype(dtype).itemsize
        size = tensor.size // width
        step = step_of(size)
        if step == 1:
            return self.gpu.download(tensor, dtype)
        count, ends = -(-size // step), _ENDS * width
        blocks = -(-count // PICK_THREADS)
        given = (tensor, self.buffer, width, step, count)
        self.gpu.launch(self.kernel, blocks, PICK_THREADS, *given)
        last = Buffer(tensor.address + tensor.size - ends, ends)
        parts = (
            self.gpu.download(self.buffer, dtype, count * width),
            self.gpu.download(tensor, dtype, ends),
            self.gpu.download(last, dtype),
        )
        return np.concatenate(parts)


def step_of(size: int) -> int:
    """From one picked element to the next, of a tensor of ``size`` elements.

    It has no factor in common with the size: so elements of all columns are picked, of all rows,
    and of all places in tiles that divide the tensor, as many of each.
    """
    step = -(-size // _PICKED)
    while math.gcd(step, size) > 1:
        step += 1
    return max(1, step)


@dataclass(frozen=True, slots=True)
class Tensors:
    """A function's arguments on the GPU, the same ones for all of its tiles.

    Attributes:
        picker: what picks elements of outputs.
        arguments: what they are.
        values: TVM's tensors.
    """

    picker: Picker
    arguments: tuple[Argument, ...]
    values: tuple[Any, ...]

    @classmethod
    def drawn(cls, picker: Picker, arguments: Sequence[Argument]) -> Tensors:
        """Tensors of random numbers; outputs are to be poisoned."""
        generator = np.random.default_rng(0)
        values = [tvm.runtime.empty(own.shape, own.dtype, tvm.cuda(0)) for own in arguments]
        found = cls(picker, tuple(arguments), tuple(values))
        for argument, buffer in found._buffers():
            count = min(_DRAWN, math.prod(argument.shape))
            if not argument.is_output:
                picker.gpu.write(buffer, drawn(generator, replace(argument, shape=(count,))))
        return found

    def poison(self) -> None:
        """Queue a fill for outputs that no kernel is likely to make: what none writes is found."""
        for argument, buffer in self._buffers():
            if argument.is_output:
                self.picker.gpu.clear(buffer, _POISON)

    def picked(self) -> list[npt.NDArray[Any]]:
        """Elements of each output, one axis, when all that is queued is done."""
        return [
            self.picker.picked(buffer, _dtype(argument))
            for argument, buffer in self._buffers()
            if argument.is_output
        ]

    def _buffers(self) -> Iterator[tuple[Argument, Buffer]]:
        """Arguments and the memory of their tensors."""
        for argument, value in zip(self.arguments, self.values, strict=True):
            size = math.prod(argument.shape) * _dtype(argument).itemsize
            yield argument, Buffer(value.data_ptr(), size)


def _dtype(argument: Argument) -> np.dtype[Any]:
    """NumPy's type of an argument's elements."""
    dtype = numpy_dtype(argument.dtype)
    assert dtype is not None  # cases have no others
    return dtype
