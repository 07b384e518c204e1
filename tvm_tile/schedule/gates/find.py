"""Find products of few rows, and element-wise arithmetic on their sums, in a fused function.

Before, with any number of products, of element-wise stages and of outputs ``H`` units wide::

    S[m, j] += X[m, k] * W[j, k]
    A[m, u] = f(S[m, u + offset], ..., B[...])
    O[m, u] = g(A[m, u], ...)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.s_tir import SBlock

from tvm_tile.graph.expression import is_in_order
from tvm_tile.graph.extract import blocks_in, extract_operator
from tvm_tile.graph.tile_graph import AffineIndex, Axis, Operator, TileGraph
from tvm_tile.schedule.gates.cell import Cell, read_cell
from tvm_tile.schedule.rule import Task
from tvm_tile.schedule.tensor_cores.found import is_sum_of_products
from tvm_tile.schedule.tensor_cores.work import operations
from tvm_tile.tile.few_rows.gates import MOST_VECTORS, GateProduct, Gates

_MATRIX = 2  # dimensions


@dataclass(frozen=True, slots=True)
class Factors:
    """The parameters that are the factors of a product.

    Attributes:
        short: (rows, depth).
        weights: (columns, depth).
        dtype: type of both.
        depth: depth of a sum.
    """

    short: str
    weights: str
    dtype: str
    depth: int


@dataclass(frozen=True, slots=True)
class GatesMatch:
    """A function of products and what becomes of their sums.

    Attributes:
        gates: sizes of the computation, for tiles.
        products: their factors.
        cell: arithmetic on the sums.
        params: parameters of the function, as its callers pass them.
    """

    gates: Gates
    products: tuple[Factors, ...]
    cell: Cell
    params: tuple[Any, ...]

    @property
    def weights(self) -> frozenset[str]:
        """Names of the parameters that hold them."""
        return frozenset(factors.weights for factors in self.products)


def find_gates(task: Task) -> GatesMatch | None:
    """The parts of a function that is what this file's head says; ``None`` of any other."""
    if not task.graph.reductions:
        return None
    blocks = blocks_in(task.func.body)
    sums = [block for block in blocks if block.init is not None]
    spatial = [block for block in blocks if block.init is None]
    params = tuple(task.func.params)
    factors = [_factors(block, params) for block in sums]
    known = tuple(own for own in factors if own is not None)
    shape = _shape(spatial, params)
    if len(known) < len(sums) or shape is None or not all(map(is_in_order, spatial)):
        return None
    made = [block.body.buffer for block in sums]
    if {int(buffer.ty.shape[0]) for buffer in made} != {shape[0]}:
        return None
    # Sums stay in shared memory.
    if any(buffer.same_as(param) for buffer in made for param in params):
        return None
    places = {buffer: number for number, buffer in enumerate(made)}
    cell = read_cell(spatial, places, params, shape)
    if cell is None or {own.product for own in cell.sums} != set(places.values()):
        return None
    found = GatesMatch(_gates(known, cell, shape, task.graph), known, cell, params)
    written = {name for name, _ in cell.outputs}
    read = {own.short for own in known} | found.weights | {load.source for load in cell.loads}
    return None if written & read else found


def _factors(block: SBlock, params: Sequence[Any]) -> Factors | None:
    """The factors of a product of few rows, if they are parameters and lie depth by depth."""
    operator = extract_operator(block)
    if operator is None or not is_sum_of_products(block) or len(operator.reads) != _MATRIX:
        return None
    if len(operator.spatial_axes) != _MATRIX or len(operator.reduce_axes) != 1:
        return None
    (row, column), (depth,) = operator.spatial_axes, operator.reduce_axes
    if row.extent > MOST_VECTORS or not _is_at(operator, operator.write.indices, (row, column)):
        return None
    if operator.write.tensor.dtype != "float32":
        return None
    names = {str(param.name) for param in params}
    short = [r for r in operator.reads if _is_at(operator, r.indices, (row, depth))]
    weights = [r for r in operator.reads if _is_at(operator, r.indices, (column, depth))]
    if len(short) != 1 or len(weights) != 1 or short[0].tensor.name == weights[0].tensor.name:
        return None
    own = (short[0].tensor, weights[0].tensor)
    if own[0].dtype != own[1].dtype or not {tensor.name for tensor in own} <= names:
        return None
    return Factors(own[0].name, own[1].name, own[0].dtype, depth.extent)


def _is_at(operator: Operator, indices: Sequence[AffineIndex], axes: Sequence[Axis]) -> bool:
    """Whether indices are those of the axes; of axes of one element any index is."""
    if len(indices) != len(axes):
        return False
    long = {axis.name for axis in operator.axes if axis.extent > 1}
    return all(
        [term for term in index.terms if term[0] in long]
        == ([(axis.name, 1)] if axis.extent > 1 else [])
        and not index.offset
        and index.is_exact
        for index, axis in zip(indices, axes, strict=True)
    )


def _shape(spatial: Sequence[SBlock], params: Sequence[Any]) -> tuple[int, int] | None:
    """Rows and units of all outputs."""
    buffers = [block.body.buffer for block in spatial if isinstance(block.body, tirx.BufferStore)]
    outputs = [b for b in buffers if any(b.same_as(param) for param in params)]
    shapes = {tuple(int(extent) for extent in output.ty.shape) for output in outputs}
    if len(shapes) != 1 or len(next(iter(shapes))) != _MATRIX:
        return None
    rows, units = shapes.pop()
    return rows, units


def _gates(
    products: Sequence[Factors], cell: Cell, shape: tuple[int, int], graph: TileGraph
) -> Gates:
    """The products of a cell, its sizes and its work, as tiles are chosen for them."""
    counts = [sum(own.product == number for own in cell.sums) for number in range(len(products))]
    sizes = {"float32": 4, "float16": 2, "bfloat16": 2}
    parts = tuple(
        GateProduct(count, own.depth, sizes[own.dtype])
        for count, own in zip(counts, products, strict=True)
    )
    rows, units = shape
    work = sum(operations(value) for _, value in cell.steps)
    weights = Gates(parts, units, rows, work, 0).weights
    others = max(graph.written, graph.traffic - weights)
    return Gates(parts, units, rows, work, others, graph.written)
