"""Which Relax operators have loops of ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from tvm_tile.loops.extremes import argument_of_largest, argument_of_smallest

Legalization = Callable[[Any, Any], Any]
"""``(relax.BlockBuilder, relax.Call) -> relax.Expr``: what a call of an operator becomes."""

LEGALIZATIONS: Mapping[str, Legalization] = MappingProxyType(
    {
        "relax.argmax": argument_of_largest,
        "relax.argmin": argument_of_smallest,
    }
)
"""Name of a Relax operator -> its legalization, for ``LegalizeOps``; TVM has the others'."""
