"""Values of calls whose arguments are known: the arithmetic of shapes.

Later operators may need such a value while the model is compiled: the target of a reshape, the
bounds of a slice. Only small tensors are computed here; all others stay operators of Relax.
"""

from __future__ import annotations

import math
from typing import Any

from tvm_tile.frontend.evaluate import KnownValues, static_shape
from tvm_tile.frontend.ops.values import constant, dtype_of
from tvm_tile.frontend.ops.writer import known_value
from tvm_tile.frontend.relay.call import OperatorCall, Value
from tvm_tile.frontend.relay.environment import flattened, restored

_MOST = 1024  # elements of an argument or of a result


def folded(call: OperatorCall, made: Value) -> Value:
    """What a call made, as constants where its arguments and its results are small ones.

    Args:
        call: of an operator.
        made: its result as its converter wrote it: a tensor, or a tuple of tensors.

    Returns:
        ``made`` itself where something is large or known only at run time, and where an operator is
        none of shape arithmetic.
    """
    tensors = flattened(made)
    arguments = flattened(call.arguments)
    is_known = all(known_value(value) is not None for value in arguments)
    if not is_known or not all(map(_is_small, (*arguments, *tensors))):
        return made
    known = KnownValues(call.builder.lookup_binding)
    values = [known.value(tensor) for tensor in tensors]
    if any(value is None for value in values):
        return made
    return restored(made, [constant(v, dtype_of(t)) for v, t in zip(values, tensors, strict=True)])


def _is_small(tensor: Any) -> bool:
    shape = static_shape(tensor.ty)
    return shape is not None and math.prod(shape) <= _MOST
