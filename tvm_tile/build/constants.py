"""Constants of compiled programs: where their bytes are, each distinct one once."""

from __future__ import annotations

import zlib
from typing import Any

import tvm
from tvm import ir

from tvm_tile.build.program import Constant
from tvm_tile.graph.constant_tensors import bytes_of
from tvm_tile.graph.functions import expressions_in

_Key = tuple[Any, ...]


class ConstantPool:
    """The constants of programs that are compiled together; equal ones are one.

    No bytes are copied: a constant is the memory that it was compiled with, which may be the
    model's own.
    """

    def __init__(self) -> None:
        self._by_place: dict[_Key, Constant] = {}
        self._by_content: dict[_Key, list[Constant]] = {}

    def constant_of(self, tensor: Any) -> Constant:
        """The constant that has the type, the shape and the bytes of a tensor in TVM's CPU memory,
        which is kept alive if it is the first."""
        shape, dtype = tuple(map(int, tensor.shape)), str(tensor.dtype)
        place = tensor.data_ptr(), shape, dtype
        known = self._by_place.get(place)
        if known is None:
            data = bytes_of(tensor).data
            known = self._known(shape, dtype, data)
            if known.data is data:  # else nobody keeps the memory, which may become another's
                self._by_place[place] = known
        return known

    def _known(self, shape: tuple[int, ...], dtype: str, data: memoryview) -> Constant:
        """The constant with this content, which exists once in the pool."""
        made = Constant(shape, dtype, data, zlib.crc32(data))
        alike = self._by_content.setdefault((shape, dtype, made.checksum), [])
        for other in alike:
            if other.data == data:
                return other
        alike.append(made)
        return made


class TakenConstants:
    """The constants that one program takes, in their order.

    Args:
        pool: constants of all programs that are compiled with it.
    """

    def __init__(self, pool: ConstantPool) -> None:
        self._pool = pool
        self._positions: dict[Constant, int] = {}

    def position(self, tensor: Any) -> int:
        """Position of a tensor among the program's constants."""
        constant = self._pool.constant_of(tensor)
        return self._positions.setdefault(constant, len(self._positions))

    @property
    def constants(self) -> tuple[Constant, ...]:
        """The program's constants, by their positions."""
        return tuple(self._positions)


def inline_bytes(mod: tvm.IRModule) -> int:
    """Bytes of the tensors that a lowered model has in its functions, such as those of loops, and
    does not take as constants; equal memory once. TVM keeps them in the device's memory, too."""
    values = [constant.value for constant in expressions_in(mod, ir.GenericConst)]
    tensors = {value.data_ptr(): value for value in values if hasattr(value, "data_ptr")}
    return sum(bytes_of(tensor).nbytes for tensor in tensors.values())
