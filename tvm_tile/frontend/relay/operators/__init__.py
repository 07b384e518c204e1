"""Converters of Relay's operators, a family a file."""

from __future__ import annotations

from tvm_tile.frontend.relay.call import Converter
from tvm_tile.frontend.relay.operators import (
    activations,
    convolutions,
    creation,
    elementwise,
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
    slicing,
    vision,
)
from tvm_tile.frontend.relay.operators.dynamic import dynamic
from tvm_tile.frontend.relay.operators.folding import folded

__all__ = ["CONVERTERS", "folded"]

_FAMILIES = (
    *(activations, convolutions, creation, elementwise, images, indices, norms, padding),
    *(pools, products, quantised, quantised_functions, quantised_products, reductions, reshapes),
    *(resizing, scatters, shapes, slicing, vision),
)

_STATIC: dict[str, Converter] = {
    name: convert for family in _FAMILIES for name, convert in family.CONVERTERS.items()
}
CONVERTERS: dict[str, Converter] = _STATIC | dynamic(_STATIC)
"""By the operator's name; what is not here is refused."""
