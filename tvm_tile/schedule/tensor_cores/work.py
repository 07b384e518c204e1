"""Work on each sum before it is stored, as the model of tiles counts it."""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import ir, tirx

from tvm_tile.graph.expression import Expression
from tvm_tile.graph.extract import is_choice, operations_at
from tvm_tile.schedule.tensor_cores.epilogue import Epilogue
from tvm_tile.tile.products.store_work import StoreWork
from tvm_tile.tile.units.product import Product
from tvm_tile.tile.units.sum_layout import QUAD

_LOAD = 4  # of a load: its place, itself, a cast
_ARITHMETIC = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Max, tirx.Min, tirx.Select)


def store_work(epilogue: Epilogue, product: Product) -> StoreWork:
    """The work of an epilogue for each sum of a product."""
    columns = product.right.free[:-1] if product.sums > 1 else product.right.free
    # Of a single column there is no axis.
    is_ragged = not columns or columns[-1].extent % QUAD > 0
    element = epilogue.element
    return StoreWork(
        operations(element.value),
        is_wide=len(columns) == 1 and not is_ragged and epilogue.together == QUAD,
        is_ragged=is_ragged,
        read_bytes=epilogue.read_bytes,
        loads=len(element.tensors),
        sums=product.sums,
    )


def made_operations(element: Expression) -> int:
    """About how many instructions an element between two products takes, its loads included."""
    return operations(element.value) + _LOAD * len(element.loads)


def operations(value: Any) -> int:
    """About how many instructions of floating-point arithmetic an expression takes.

    Rounding is not counted, nor is what finds a place, or whether there is one.
    """
    found: list[int] = []

    def count(node: Any) -> None:
        if "float" in str(node.ty.dtype) and not is_choice(node):
            found.append(max(1, operations_at(node)))

    kinds = [(kind, count) for kind in (ir.Call, *_ARITHMETIC)]
    tvm_ffi.structural_walk(value, kinds, order="pre")
    return sum(found)
