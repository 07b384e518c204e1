"""Which Relax operators have loops of ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from tvm_tile.loops.arithmetic import product_of_two, quotient_of_two, sum_of_two
from tvm_tile.loops.extremes import argument_of_largest, argument_of_smallest
from tvm_tile.loops.pooling import windows_of_maxima

Legalization = Callable[[Any, Any], Any]
"""``(relax.BlockBuilder, relax.Call) -> relax.Expr``: what a call of an operator becomes."""

LEGALIZATIONS: Mapping[str, Legalization] = MappingProxyType(
    {
        "relax.add": sum_of_two,
        "relax.argmax": argument_of_largest,
        "relax.argmin": argument_of_smallest,
        "relax.divide": quotient_of_two,
        "relax.multiply": product_of_two,
        "relax.nn.max_pool1d": windows_of_maxima,
        "relax.nn.max_pool2d": windows_of_maxima,
        "relax.nn.max_pool3d": windows_of_maxima,
    }
)
"""Name of a Relax operator -> its legalization, for ``LegalizeOps``; TVM has the others'."""
