"""Products of whose halves of columns elements are made, as matrix units multiply them."""

from __future__ import annotations

from dataclasses import replace

from tvm_tile.graph.tile_graph import AffineIndex, Axis
from tvm_tile.tile.units.product import Product, seen_as


def paired(product: Product) -> Product | None:
    """A product of whose halves of columns elements are made, as one of pairs of columns.

    before: ``y[m, n] = f(a[m, n], a[m, n + N])`` with ``a[m, n] = sum over k of x[m, k] * w[n, k]``
    after:  ``y[m, n] = f(a[m, n, 0], a[m, n, 1])`` where ``w[n, h, k]`` is ``w[N * h + n, k]``

    Returns:
        ``None`` where columns are no dimension of the right operand, or contiguous in it.
    """
    right = product.right
    if len(right.free) != 1 or not right.is_depth_major:
        return None
    (column,) = right.free
    dimensions = right.dimensions
    place = next(p for p, index in enumerate(right.indices) if index.coefficient(column.name))
    extent, index, stride = dimensions[place]
    half = column.extent // 2
    if index != AffineIndex(((column.name, 1),)) or extent != 2 * half:
        return None
    inner = Axis(f"{column.name}.half", 2)
    parts = (half, index, stride), (2, AffineIndex(((inner.name, 1),)), half * stride)
    right = seen_as(right, [*dimensions[:place], *parts, *dimensions[place + 1 :]])
    write = product.write
    shape = tuple(
        extent // 2 if index.coefficient(column.name) else extent
        for index, extent in zip(write.indices, write.tensor.shape, strict=True)
    )
    return replace(
        product,
        right=replace(right, free=(replace(column, extent=half), inner)),
        write=replace(write, tensor=replace(write.tensor, shape=shape)),
        sums=2,
    )
