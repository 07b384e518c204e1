"""A model inside the compiler, whatever front door it came through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax

from tvm_tile.errors import DynamicShapeError, ModelError
from tvm_tile.graph.signature import Signature

UNKNOWN_EXTENT = -1


@dataclass(frozen=True, slots=True)
class Imported:
    """A model as Relax operators, not yet lowered to loops.

    Attributes:
        mod: module whose ``main`` takes exactly ``inputs``; weights are constants in it.
        name: the model's own name, for messages and kernel names.
        inputs: what ``main`` takes, in order; every extent is known.
        outputs: what ``main`` returns, in order; an extent is -1 where the data decides it.
    """

    mod: tvm.IRModule
    name: str
    inputs: tuple[Signature, ...]
    outputs: tuple[Signature, ...]


def describe(
    mod: tvm.IRModule,
    name: str,
    input_names: Sequence[str] = (),
    output_names: Sequence[str] = (),
) -> Imported:
    """Read the signatures of ``mod``'s ``main``.

    Args:
        mod: a Relax module with a function ``main``.
        name: the model's name.
        input_names: names of the inputs; Relax's own where empty.
        output_names: names of the outputs; ``output0``, ``output1``, ... where empty.

    Raises:
        DynamicShapeError: an input has an unknown rank or extent.
        ModelError: an input or output is not a tensor.
    """
    main = mod["main"]
    names = tuple(input_names) or tuple(str(param.name) for param in main.params)
    inputs = tuple(_signature(n, p.ty) for n, p in zip(names, main.params, strict=True))
    for signature in inputs:
        if UNKNOWN_EXTENT in signature.shape:
            raise DynamicShapeError(
                "every extent of every input must be known when the model is compiled",
                f"input {signature.name!r} has shape {signature.shape}, -1 meaning unknown",
                f"give its shape: inputs={{{signature.name!r}: (...)}}",
            )
    types = result_types(mod)
    names = tuple(output_names) or tuple(f"output{i}" for i in range(len(types)))
    outputs = tuple(_signature(n, ty) for n, ty in zip(names, types, strict=True))
    return Imported(mod, name, inputs, outputs)


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
