"""One call of a Relay operator, as its converter sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from tvm_tile.frontend.ops.writer import Writer, known_value
from tvm_tile.frontend.relay.program import Attribute

Value = Any
"""A Relax tensor expression with a static type, or a tuple of values."""


@dataclass(frozen=True, slots=True)
class OperatorCall(Writer):
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
        return known_value(self.arguments[index])

    def parameter(self, index: int, name: str) -> np.ndarray:
        """The value of an argument that has to be known.

        Raises:
            NotImplementedError: the argument, called ``name``, is known only at run time.
        """
        array = self.known(index)
        if array is None:
            raise NotImplementedError(f"{name} that is known only at run time")
        return array


Converter = Callable[[OperatorCall], Value]
"""Makes a call's result; raises ValueError or NotImplementedError, saying what it does not take."""
