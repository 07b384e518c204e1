"""A model inside the compiler, whatever front door it came through."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import tvm
from tvm import relax

from tvm_tile.errors import DynamicShapeError, ModelError
from tvm_tile.graph.functions import is_called
from tvm_tile.graph.signature import NO_EFFECTS, Effects, Signature
from tvm_tile.graph.tile_graph import element_size
from tvm_tile.report.coded_weights import CodedWeight

UNKNOWN_EXTENT = -1

NUM_INPUT = "num_input"
"""TVM's attribute of a function: so many of its first parameters differ from call to call; the
memory of those behind them, weights, does not."""


_PARAMS = "params"
"""TVM's attribute of a function: the values of its last parameters, which
``relax.frontend.detach_params`` takes off."""


def with_parameters(main: relax.Function, inputs: int, values: Sequence[Any]) -> relax.Function:
    """A function whose parameters behind its first ``inputs`` are said to have these values."""
    return main.with_attrs({NUM_INPUT: inputs, _PARAMS: list(values)})


@dataclass(frozen=True, slots=True)
class Imported:
    """A model as Relax operators, not yet lowered to loops.

    Attributes:
        mod: module whose ``main`` takes exactly ``inputs``, and the state of ``effects``; weights
            are constants in it, or where these have no values inputs.
        inputs: what a call takes, in order; every extent is known.
        outputs: what a call returns, in order; an extent is -1 where the data decides it.
        effects: what a call changes, and what ``main`` returns for that.
        weights: matrices that are computed of codes of a few bits, but cannot stay codes.
        notes: lines for people, such as what sizes were taken for inputs that nobody gave any.
        without_values: how many inputs, the last, are weights of which no values are known.
    """

    mod: tvm.IRModule
    inputs: tuple[Signature, ...]
    outputs: tuple[Signature, ...]
    effects: Effects = NO_EFFECTS
    weights: tuple[CodedWeight, ...] = ()
    notes: tuple[str, ...] = ()
    without_values: int = 0

    @property
    def bytes_without_values(self) -> int:
        """Bytes of the weights of which no values are known."""
        weights = self.inputs[len(self.inputs) - self.without_values :]
        return sum(math.prod(one.shape) * element_size(one.dtype) for one in weights)


def describe(
    mod: tvm.IRModule,
    input_names: Sequence[str] = (),
    output_names: Sequence[str] = (),
    effects: Effects = NO_EFFECTS,
) -> Imported:
    """Read the signatures of ``mod``'s ``main``.

    Args:
        mod: a Relax module with a function ``main``.
        input_names: names of the inputs; Relax's own where empty.
        output_names: names of the outputs; ``output0``, ``output1``, ... where empty.
        effects: what ``main`` changes.

    Raises:
        DynamicShapeError: an input has an unknown rank or extent.
        ModelError: an input or output is not a tensor.
    """
    main = mod["main"]
    params = main.params[: len(main.params) - len(effects.state)]
    names = tuple(input_names) or tuple(str(param.name) for param in params)
    inputs = tuple(_signature(n, p.ty) for n, p in zip(names, params, strict=True))
    for signature in inputs:
        if UNKNOWN_EXTENT in signature.shape:
            raise DynamicShapeError(
                "every extent of every input must be known when the model is compiled",
                f"input {signature.name!r} has shape {signature.shape}, -1 meaning unknown",
                f"give its shape: inputs={{{signature.name!r}: (...)}}",
            )
    types = result_types(mod)
    types = types[: len(types) - len(effects.written_inputs) - len(effects.state)]
    names = tuple(output_names) or tuple(f"output{i}" for i in range(len(types)))
    outputs = tuple(_signature(n, ty) for n, ty in zip(names, types, strict=True))
    if effects.state:  # lies where it is for good, so that CUDA graphs may know its address
        mod["main"] = main.with_attr(NUM_INPUT, len(inputs))
    return Imported(mod, inputs, outputs, effects)


def with_weights(imported: Imported, weights: int) -> Imported:
    """The same model, its last inputs said to be weights.

    A ``main`` that functions of the model call is left without any: they call it by its parameters.

    Args:
        imported: a model; a Relax module may have said so itself.
        weights: how many of its inputs; 0 leaves to the model what it says.

    Raises:
        ModelError: no input is left that is none.
    """
    count = len(imported.inputs)
    said = int((imported.mod["main"].attrs or {}).get(NUM_INPUT, count))
    others = count - weights if weights else said
    if others == count:
        return imported
    if not 0 < others < count:
        raise ModelError(
            "weights are the last of a model's inputs, and one input at least is none",
            f"{count - others} of {count} inputs",
            "give a smaller number",
        )
    mod = imported.mod.clone()
    main = mod["main"].with_attr(NUM_INPUT, others) if weights else mod["main"]
    mod[mod.get_global_var("main")] = (
        main.without_attr(NUM_INPUT) if is_called(mod, "main") else main
    )
    return replace(imported, mod=mod)


def result_types(mod: tvm.IRModule) -> tuple[Any, ...]:
    """Types of what ``main`` returns: one value, or a flat tuple of values."""
    ty = mod["main"].ret_ty
    return tuple(ty.fields) if isinstance(ty, relax.TupleType) else (ty,)


def _signature(name: str, ty: Any) -> Signature:
    if not isinstance(ty, relax.TensorType):
        raise ModelError(
            "inputs and outputs of a model must be tensors",
            f"{name!r} is {ty}",
            "export the model so that it takes and returns tensors, not sequences or optionals",
        )
    if not isinstance(ty.shape, relax.ShapeExpr):  # none, or a variable for what is computed
        if ty.ndim < 0:
            raise DynamicShapeError(
                "the rank of every input and output must be known",
                f"{name!r} has an unknown rank",
                f"give its shape: inputs={{{name!r}: (...)}}",
            )
        return Signature(name, (UNKNOWN_EXTENT,) * ty.ndim, str(ty.dtype))
    return Signature(name, tuple(_extent(e) for e in ty.shape), str(ty.dtype))


def _extent(extent: Any) -> int:
    return int(extent.value) if isinstance(extent, tvm.tirx.IntImm) else UNKNOWN_EXTENT
