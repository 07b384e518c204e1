"""One call of a Relay operator, as its converter sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, te
from tvm.ir import GenericConst

from tvm_tile.frontend.relay.program import Attribute

Value = Any
"""A Relax tensor expression with a static type, or a tuple of values."""


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """A call whose arguments are converted.

    Attributes:
        name: of the operator, such as ``nn.conv2d``.
        arguments: tensors are Relax variables or constants of static types; a tuple of Relay is a
            Python tuple of such.
        attributes: all of the operator's, defaults filled in.
        builder: where operators and kernels go.
    """

    name: str
    arguments: tuple[Value, ...]
    attributes: Mapping[str, Attribute]
    builder: relax.BlockBuilder

    def known(self, index: int) -> np.ndarray | None:
        """The value of an argument that is known while the model is compiled; else ``None``."""
        value = self.arguments[index]
        if not isinstance(value, GenericConst):
            return None
        array: np.ndarray = value.value.numpy()
        return array

    def parameter(self, index: int, name: str) -> np.ndarray:
        """The value of an argument that has to be known.

        Raises:
            NotImplementedError: the argument, called ``name``, is known only at run time.
        """
        array = self.known(index)
        if array is None:
            raise NotImplementedError(f"{name} that is known only at run time")
        return array

    def emit(self, value: Value) -> Value:
        """Bind an expression to a variable, so that it is computed once and has a type."""
        return self.builder.emit(value)

    def compute(self, function: Callable[..., te.Tensor], *arguments: Value, name: str) -> Value:
        """What a tensor expression makes of the arguments, as a kernel called ``name``."""
        bound = [self.builder.emit(argument) for argument in arguments]
        return self.builder.emit_te(function, *bound, primfunc_name_hint=name)


Converter = Callable[[OperatorCall], Value]
"""Makes a call's result; raises ValueError or NotImplementedError, saying what it does not take."""
