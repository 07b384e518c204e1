"""Arithmetic on one unit's sums in one row, as a program of single values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import ir, sym, tirx
from tvm.s_tir import SBlock
from tvm_ffi import StructuralKey

from tvm_tile.graph.expression import substituted
from tvm_tile.graph.extract import is_choice, loads_in, nodes_in


@dataclass(frozen=True, slots=True)
class Sum:
    """A sum that the cell's arithmetic takes, of a column of a product.

    Attributes:
        product: number of the product.
        offset: the product's column for unit 0; that of others lies as far behind.
        value: the variable that stands for it.
    """

    product: int
    offset: int
    value: Any


@dataclass(frozen=True, slots=True)
class Load:
    """An element of a parameter.

    Attributes:
        source: name of the parameter.
        indices: indices, of row and unit.
        value: the variable that stands for it.
    """

    source: str
    indices: tuple[Any, ...]
    value: Any


@dataclass(frozen=True, slots=True)
class Cell:
    """The arithmetic behind the products.

    Attributes:
        row: variable of the row.
        unit: variable of the unit.
        sums: sums that it takes, by product.
        loads: other elements that it takes.
        steps: variables and what they are, each of what is above it.
        outputs: name of each output and the variable that is stored there, at (row, unit).
    """

    row: Any
    unit: Any
    sums: tuple[Sum, ...]
    loads: tuple[Load, ...]
    steps: tuple[tuple[Any, Any], ...]
    outputs: tuple[tuple[str, Any], ...]


class _Irregular(Exception):
    """The function is no cell."""


def read_cell(
    blocks: Sequence[SBlock],
    products: Mapping[Any, int],
    params: Sequence[Any],
    shape: tuple[int, int],
) -> Cell | None:
    """Read the arithmetic of spatial blocks on the products' outputs.

    Args:
        blocks: spatial, in program order, one an output or intermediate tensor.
        products: output of each product -> the product's number.
        params: parameters of the function.
        shape: rows and units of every output.

    Returns:
        ``None`` where an output's element depends on sums of other units or rows, or is read
        under a condition.
    """
    reader = _Reader(blocks, products, params, shape)
    outputs = [block.body.buffer for block in blocks]
    outputs = [o for o in outputs if any(o.same_as(param) for param in params)]
    try:
        stored = tuple((str(o.name), reader.element(o)) for o in outputs)
    except _Irregular:
        return None
    sums = tuple(sorted(reader.sums, key=lambda own: (own.product, own.offset)))
    return Cell(reader.row, reader.unit, sums, tuple(reader.loads), tuple(reader.steps), stored)


class _Reader:
    """Blocks, read backwards from the outputs; each element once."""

    def __init__(
        self,
        blocks: Sequence[SBlock],
        products: Mapping[Any, int],
        params: Sequence[Any],
        shape: tuple[int, int],
    ) -> None:
        self._makers = {block.body.buffer: block for block in blocks}
        self._products, self._params = products, params
        dtype = str(blocks[0].iter_vars[0].var.ty.dtype)
        self.row, self.unit = tirx.Var("row", dtype), tirx.Var("unit", dtype)
        self._ranges = sym.Analyzer()
        for var, extent in zip((self.row, self.unit), shape, strict=True):
            zero, end = (tirx.const(n, dtype) for n in (0, extent))
            self._ranges.bind(var, ir.Range.from_min_extent(zero, end))
        self._units = shape[1]
        self._known: dict[Any, Any] = {}
        self.sums: list[Sum] = []
        self.loads: list[Load] = []
        self.steps: list[tuple[Any, Any]] = []

    def element(self, output: Any) -> Any:
        """The variable of an output's element at (row, unit)."""
        return self._value(output, (self.row, self.unit))

    def _value(self, buffer: Any, indices: Sequence[Any]) -> Any:
        """A variable for an element of a buffer, the same one each time."""
        places = tuple(self._ranges.simplify(index) for index in indices)
        key = buffer, tuple(StructuralKey(place) for place in places)
        if key not in self._known:
            self._known[key] = self._read(buffer, places)
        return self._known[key]

    def _read(self, buffer: Any, places: tuple[Any, ...]) -> Any:
        """Read an element: a sum, a value of another block, or an element of a parameter."""
        dtype = str(buffer.ty.dtype)
        if buffer in self._products:
            value = tirx.Var(f"sum{len(self.sums)}", dtype)
            self.sums.append(Sum(self._products[buffer], self._offset(buffer, places), value))
            return value
        if buffer in self._makers:
            expr = self._made(self._makers[buffer], places)
            value = tirx.Var(f"value{len(self.steps)}", dtype)
            self.steps.append((value, expr))
            return value
        if not any(buffer.same_as(param) for param in self._params):
            raise _Irregular
        value = tirx.Var(f"read{len(self.loads)}", dtype)
        self.loads.append(Load(str(buffer.name), places, value))
        return value

    def _offset(self, buffer: Any, places: tuple[Any, ...]) -> int:
        """Column of unit 0, where it is this row's sum and that many columns from the unit."""
        row, column = places
        offset = self._ranges.simplify(column - self.unit)
        if not self._ranges.can_prove_equal(row, self.row) or not isinstance(offset, tirx.IntImm):
            raise _Irregular
        if not 0 <= int(offset) <= int(buffer.ty.shape[1]) - self._units:
            raise _Irregular
        return int(offset)

    def _made(self, block: SBlock, places: tuple[Any, ...]) -> Any:
        """A block's value at a place."""
        store = block.body
        known = dict(zip(store.indices, places, strict=True))
        if not all(v.var in known or int(v.dom.extent) == 1 for v in block.iter_vars):
            raise _Irregular
        if any(map(is_choice, nodes_in(store.value, ir.Call))):
            raise _Irregular  # what it guards must not be read elsewhere
        ones = {v.var: tirx.const(0, "int32") for v in block.iter_vars}
        value = substituted(store.value, ones | known)

        def load(node: ir.TensorLoad) -> Any:
            return self._value(node.source, list(node.indices))

        # One after the other: TVM's maps must not be begun within each other.
        for own in loads_in(value):
            load(own)
        return tvm_ffi.structural_map(value, [(ir.TensorLoad, load)], order="post")
