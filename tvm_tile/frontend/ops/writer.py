"""What converters of every format write operators with."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax, te
from tvm.ir import GenericConst

from tvm_tile.frontend.ops.values import Value
from tvm_tile.graph.constant_tensors import elements_of


class Writer:
    """A node or a call that is being converted.

    Attributes:
        builder: where operators and kernels go.
    """

    __slots__ = ()
    builder: relax.BlockBuilder

    def emit(self, value: Value) -> Value:
        """Bind an expression to a variable, so that it is computed once and has a type."""
        return self.builder.emit(value)

    def compute(self, function: Callable[..., te.Tensor], *arguments: Value, name: str) -> Value:
        """What a tensor expression makes of the arguments, as a kernel called ``name``."""
        bound = [self.builder.emit(argument) for argument in arguments]
        return self.builder.emit_te(function, *bound, primfunc_name_hint=name)


def known_value(value: Value) -> np.ndarray | None:
    """The elements of a constant; ``None`` of what is known at run time only, or left out."""
    if not isinstance(value, GenericConst):
        return None
    return elements_of(value)
