"""Symbolic extents of a Relax module: their ranges, and the module with values for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tvm
from tvm import relax

from tvm_tile.errors import ModelError
from tvm_tile.frontend.declared import Declared, Shapes
from tvm_tile.frontend.open_inputs import require_names

_BOUNDS = "tir_var_lower_bound", "tir_var_upper_bound"
"""TVM's attributes of a function: variables' names -> the values that its callers keep to."""


def declared(mod: tvm.IRModule) -> Shapes:
    """The shapes of the inputs of ``main``, its variables with the bounds that it says."""
    main = mod["main"]
    low, high = ((main.attrs or {}).get(name, {}) for name in _BOUNDS)
    names: dict[tvm.tirx.Var, str] = {}

    def extent(own: Any) -> int | Declared:
        if isinstance(own, tvm.tirx.IntImm):
            return int(own.value)
        if not isinstance(own, tvm.tirx.Var):
            return Declared(str(own), is_derived=True)
        text = str(own.name)
        # Two variables may have one name.
        unique = text if text not in names.values() else f"{text}.{len(names)}"
        least, most = low.get(text), high.get(text)
        bound = None if most is None else int(most)
        return Declared(names.setdefault(own, unique), max(1, int(least or 1)), bound)

    return {
        str(param.name): tuple(map(extent, param.ty.shape))
        for param in main.params
        if isinstance(getattr(param.ty, "shape", None), relax.ShapeExpr)
    }


def bind_sizes(mod: tvm.IRModule, sizes: Mapping[str, Sequence[int]]) -> tvm.IRModule:
    """Replace the symbolic extents of ``main``'s inputs by numbers, everywhere.

    Args:
        mod: module whose ``main`` takes tensors.
        sizes: input name -> extents. A symbol that one input settles is settled for all.

    Returns:
        The module with these symbols bound; symbols that ``sizes`` leaves open stay.

    Raises:
        ModelError: an unknown input name, a wrong rank, or a contradiction of a fixed extent.
    """
    if not sizes:
        return mod
    inputs = {str(param.name): param for param in mod["main"].params}
    require_names(sizes, list(inputs))
    values: dict[tvm.tirx.Var, int] = {}
    for name, size in sizes.items():
        declared = inputs[name].ty.shape
        if declared is None or len(declared) != len(size):
            raise _contradiction(name, declared, size)
        for extent, value in zip(declared, size, strict=True):
            if isinstance(extent, tvm.tirx.Var):
                known = values.setdefault(extent, int(value))
            else:
                known = int(extent.value) if isinstance(extent, tvm.tirx.IntImm) else int(value)
            if known != int(value) or known < 0:
                raise _contradiction(name, declared, size)
    bound: tvm.IRModule = relax.transform.BindSymbolicVars(values, "main")(mod)
    return bound


def _contradiction(name: str, declared: object, size: Sequence[int]) -> ModelError:
    return ModelError(
        f"the size of input {name!r} must agree with the model: {declared}",
        f"{tuple(size)}",
        "give one extent per dimension, the model's own where it fixes them",
    )
