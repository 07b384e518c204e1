"""A Relay program becomes a Relax module whose ``main`` takes the program's inputs."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tvm_tile.errors import DynamicShapeError, ModelError, ModelFileError, UnsupportedOperatorError
from tvm_tile.frontend.declared import Declared, Shapes
from tvm_tile.frontend.open_blocks import ending_blocks
from tvm_tile.frontend.open_inputs import require_names
from tvm_tile.frontend.relay import program as relay
from tvm_tile.frontend.relay.call import Converter
from tvm_tile.frontend.relay.environment import Closure, Scope, Value, flattened
from tvm_tile.frontend.relay.evaluate import Evaluator
from tvm_tile.frontend.relay.loops import write_loop
from tvm_tile.frontend.relay.operators import CONVERTERS, folded
from tvm_tile.frontend.relay.walk import operators_within
from tvm_tile.graph.user_names import named

_log = logging.getLogger(__name__)


def convert(
    program: relay.Program,
    params: Mapping[str, np.ndarray],
    sizes: Mapping[str, Sequence[int]],
) -> tuple[tvm.IRModule, tuple[str, ...]]:
    """Write a program as Relax.

    Args:
        program: of Relay.
        params: values of parameters of ``main``, by name; they are constants then.
        sizes: extents of the others, where the program leaves some open.

    Returns:
        The module, and the names of its inputs.

    Raises:
        ModelFileError: the program has no function ``main``.
        ModelError: ``params`` or ``sizes`` contradict ``main``.
        DynamicShapeError: an extent is neither in the program nor in ``sizes``.
        UnsupportedOperatorError: operators that have no converter, all of them by name; or the
            first form or construct that cannot be converted.
    """
    main = program.functions.get("main")
    if main is None:
        raise ModelFileError(
            "a Relay program must have a function @main",
            f"it has {', '.join(f'@{name}' for name in program.functions) or 'none'}",
            "save the module that relay.frontend made, before it is lowered",
        )
    _require_known(operators_within(program), CONVERTERS)
    arguments, inputs = _bound(main, params, sizes)
    builder = relax.BlockBuilder()
    evaluator = Evaluator(program.functions, CONVERTERS, folded, builder, write_loop)
    parameters = [variable for _, variable in inputs]
    with ending_blocks(builder), builder.function("main", parameters):
        result = evaluator.call(Closure(main, Scope()), arguments)
        builder.emit_func_output(_output(builder, result))
    passes = [
        relax.transform.DeadCodeElimination(["main"]),
        relax.transform.ConvertToDataflow(1),
        relax.transform.DeadCodeElimination(["main"]),
    ]
    mod = named(builder.get(), evaluator.names)
    return tvm.transform.Sequential(passes)(mod), tuple(name for name, _ in inputs)


def shapes_of(main: relay.Function) -> Shapes:
    """The shapes of a function's parameters, those of tuples and of unknown types left out."""
    return {
        parameter.name: tuple(
            Declared(f"{parameter.name}.{axis}") if extent is None else extent
            for axis, extent in enumerate(parameter.type.shape)
        )
        for parameter in main.parameters
        if isinstance(parameter.type, relay.TensorType)
    }


def _require_known(operators: Mapping[str, str], converters: Mapping[str, Converter]) -> None:
    unknown = sorted(set(operators) - set(converters))
    if unknown:
        named = [f"{name} ({operators[name]})" if operators[name] else name for name in unknown]
        raise UnsupportedOperatorError(
            "each operator of a Relay program must be one that the importer knows",
            ", ".join(named),
            "rewrite the model without these",
        )


def _bound(
    main: relay.Function, params: Mapping[str, np.ndarray], sizes: Mapping[str, Sequence[int]]
) -> tuple[tuple[Value, ...], list[tuple[str, Any]]]:
    """What ``main`` is called with, and the names and variables of its inputs."""
    _require_agreement(main, params, sizes)
    arguments: list[Value] = []
    inputs: list[tuple[str, Any]] = []
    for parameter in main.parameters:
        if parameter.name in params:
            arguments.append(_weight(parameter, params[parameter.name]))
            continue
        taken = {name for name, _ in inputs}
        value = _input(parameter, sizes.get(parameter.name), taken, inputs)
        arguments.append(value)
    return tuple(arguments), inputs


def _require_agreement(
    main: relay.Function, params: Mapping[str, np.ndarray], sizes: Mapping[str, Sequence[int]]
) -> None:
    """Refuse values and sizes of others' parameters, and weights that lack a value.

    Importers leave values of weights behind that they folded: names that the program lacks are no
    error alone. What has no value is an input; behind a weight it may be a weight itself, though.
    """
    names = [parameter.name for parameter in main.parameters]
    require_names(sizes, names)
    if not params:
        return
    extra = sorted(set(params) - set(names))
    weights = [number for number, name in enumerate(names) if name in params]
    first = weights[0] if weights else len(names)
    doubtful = [name for name in names[first:] if name not in params and name not in sizes]
    if not weights or (doubtful and (sizes or extra)):
        found = f"without a value: {', '.join(doubtful or names)}"
        raise ModelError(
            "params= must have a value for each weight of @main",
            f"{found}; values of others: {', '.join(extra)}" if extra else found,
            "give the parameters that were saved with this program, or name all inputs in inputs=",
        )
    if doubtful:
        _log.warning("parameters without a value are inputs: %s", ", ".join(doubtful))


def _input(
    parameter: relay.Local,
    size: Sequence[int] | None,
    taken: set[str],
    inputs: list[tuple[str, Any]],
) -> Value:
    """A parameter as an input, or as several if it is a tuple."""
    if isinstance(parameter.type, relay.TupleType):
        fields = [
            relay.Local(f"{parameter.name}.{number}", kind)
            for number, kind in enumerate(parameter.type.fields)
        ]
        return tuple(_input(part, None, {n for n, _ in inputs}, inputs) for part in fields)
    if not isinstance(parameter.type, relay.TensorType):
        raise ModelError(
            "each parameter of @main must be a tensor whose type the program says",
            f"%{parameter.name} is none",
            "save the program after relay.transform.InferType, or its JSON",
        )
    kind = parameter.type
    shape = _sized(parameter.name, kind.shape, size)
    name = parameter.name
    while name in taken:  # two parameters may have one name
        name += "_"
    identifier = re.sub(r"\W", "_", name)
    if not identifier[:1].isalpha():
        identifier = f"input_{identifier}"
    used = {str(variable.name) for _, variable in inputs}
    while identifier in used:
        identifier += "_"
    variable = relax.Var(identifier, relax.TensorType(shape, kind.dtype))
    inputs.append((name, variable))
    return variable


def _sized(name: str, shape: tuple[int | None, ...], size: Sequence[int] | None) -> tuple[int, ...]:
    if size is None:
        if any(extent is None for extent in shape):
            raise DynamicShapeError(
                "every extent of every input must be known when the model is compiled",
                f"input {name!r} has shape {_said(shape)}",
                f"give its shape: inputs={{{name!r}: (...)}}, of numbers or of ranges such as "
                "Open(1, 512)",
            )
        return tuple(int(extent) for extent in shape if extent is not None)
    agrees = len(size) == len(shape) and all(
        fixed in (None, given) and given >= 0 for fixed, given in zip(shape, size, strict=False)
    )
    if not agrees:
        raise ModelError(
            f"the size of input {name!r} must agree with the program: {_said(shape)}",
            f"{tuple(size)}",
            "give one extent per dimension, the program's own where it fixes them",
        )
    return tuple(map(int, size))


def _said(shape: tuple[int | None, ...]) -> str:
    return f"({', '.join('?' if extent is None else str(extent) for extent in shape)})"


def _weight(parameter: relay.Local, value: np.ndarray) -> Value:
    kind = parameter.type
    if isinstance(kind, relay.TensorType):
        agrees = len(kind.shape) == value.ndim and all(
            fixed in (None, extent) for fixed, extent in zip(kind.shape, value.shape, strict=False)
        )
        if not agrees or kind.dtype != str(value.dtype):
            raise ModelError(
                f"the value of %{parameter.name} must be of the type that the program says: "
                f"{_said(kind.shape)} {kind.dtype}",
                f"{value.shape} {value.dtype}",
                "give the parameters that were saved with this program",
            )
    return relax.const(value, str(value.dtype))


def _output(builder: relax.BlockBuilder, result: Value) -> Any:
    """What ``main`` returns, a tuple of tuples as one flat tuple."""
    tensors = [builder.emit(tensor) for tensor in flattened(result)]
    return tensors[0] if not isinstance(result, tuple) else builder.emit(relax.Tuple(tensors))
