"""Converters of Relay's operators, a family a file."""

from __future__ import annotations

from tvm_tile.frontend.relay.call import Converter
from tvm_tile.frontend.relay.operators import (
    activations,
    convolutions,
    creation,
    dynamic,
    elementwise,
    fixed_point,
    images,
    indices,
    norms,
    padding,
    pools,
    products,
    quantised,
    quantised_functions,
    quantised_products,
    reductions,
    reshapes,
    resizing,
    scatters,
    shapes,
    signal,
    slicing,
    suppression,
    transposed,
    vision,
)
from tvm_tile.frontend.relay.operators.folding import folded

__all__ = ["CONVERTERS", "folded"]

_FAMILIES = (
    activations,
    convolutions,
    creation,
    dynamic,
    elementwise,
    fixed_point,
    images,
    indices,
    norms,
    padding,
    pools,
    products,
    quantised,
    quantised_functions,
    quantised_products,
    reductions,
    reshapes,
    resizing,
    scatters,
    shapes,
    signal,
    slicing,
    suppression,
    transposed,
    vision,
)

CONVERTERS: dict[str, Converter] = {
    name: convert for family in _FAMILIES for name, convert in family.CONVERTERS.items()
}
"""By the operator's name; what is not here is refused."""
