"""One call of a Relay operator on TVM's CPU build."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import GenericConst

from bench.cpu_build import run_on_cpu
from tvm_tile.frontend.relay.call import OperatorCall, converted
from tvm_tile.frontend.relay.operators import CONVERTERS
from tvm_tile.frontend.relay.operators.folding import folded as values_of


class Known:
    """An argument that is known while the model is compiled."""

    def __init__(self, value: Any, dtype: str = "") -> None:
        self.value = np.asarray(value, dtype or None)


def run(name: str, *arguments: Any, **attributes: Any) -> Any:
    """What an operator makes of arrays; lists of arrays are tuples of Relay.

    Returns:
        An array, or a tuple of several.
    """
    parameters: list[Any] = []
    arrays: list[np.ndarray] = []

    def value_of(argument: Any) -> Any:
        if isinstance(argument, list):
            return tuple(value_of(field) for field in argument)
        if isinstance(argument, Known):
            return relax.const(argument.value, str(argument.value.dtype))
        array = np.asarray(argument)
        type_ = relax.TensorType(array.shape, str(array.dtype))
        parameters.append(relax.Var(f"x{len(arrays)}", type_))
        arrays.append(array)
        return parameters[-1]

    values = tuple(value_of(argument) for argument in arguments)
    builder = relax.BlockBuilder()
    with builder.function("main", parameters):
        with builder.dataflow():
            result = converted(CONVERTERS[name], OperatorCall(name, values, attributes, builder))
            fields = result if isinstance(result, tuple) else (result,)
            for field in fields:
                assert isinstance(field, GenericConst | relax.Var)
            output = builder.emit_output(relax.Tuple(list(fields)))
        builder.emit_func_output(output)
    found = tuple(run_on_cpu(builder.get(), arrays))
    return found if isinstance(result, tuple) else found[0]


def folded(name: str, *arguments: Any, **attributes: Any) -> Any:
    """What folding makes of known arguments; ``None`` where it leaves the call alone."""

    def value_of(argument: Any) -> Any:
        if isinstance(argument, list):
            return tuple(value_of(field) for field in argument)
        array = np.asarray(argument)
        return relax.const(array, str(array.dtype))

    values = tuple(value_of(argument) for argument in arguments)
    builder = relax.BlockBuilder()
    call = OperatorCall(name, values, attributes, builder)
    with builder.function("main", []):
        result = values_of(call, converted(CONVERTERS[name], call))
        builder.emit_func_output(relax.const(0))
    fields = result if isinstance(result, tuple) else (result,)
    if not all(isinstance(field, GenericConst) for field in fields):
        return None
    arrays = tuple(field.value.numpy() for field in fields)
    return arrays if isinstance(result, tuple) else arrays[0]


def equal(found: Any, expected: Any, tolerance: float = 0.0) -> None:
    """Assert that shapes, types and values agree."""
    expected = np.asarray(expected)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    if tolerance:
        wide = found.astype("float64"), expected.astype("float64")
        np.testing.assert_allclose(*wide, rtol=tolerance, atol=tolerance)
    else:
        np.testing.assert_array_equal(found, expected)
