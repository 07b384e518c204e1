"""Several models as one, which computes once what they have in common.

Each model's ``main`` is called by one ``main`` of all, and written out there. Weights of equal
values become one constant: then TVM and our passes see that two models begin alike, that products
read the same tensor, and what is too small to fill a device by itself.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import tvm
from tvm import relax

from tvm_tile.errors import ModelError
from tvm_tile.frontend.imported import Imported
from tvm_tile.graph.constant_tensors import bytes_of
from tvm_tile.graph.functions import mutated
from tvm_tile.graph.signature import NO_EFFECTS, Signature

_WEIGHT = 1 << 10  # elements; what has fewer TVM compares itself


@dataclass(frozen=True, slots=True)
class Together:
    """Models that one call runs; see :func:`together`.

    Attributes:
        models: each, by its name.
    """

    models: Mapping[str, Any]

    def each(self, change: Callable[[Any], Any]) -> Together:
        """A copy with every model as ``change`` gives it back."""
        return Together({name: change(model) for name, model in self.models.items()})


def together(models: Mapping[str, Any]) -> Together:
    """Models to be compiled as one: an ensemble, heads over one backbone, a search's candidates.

    What they compute of the same inputs and weights of equal values is computed once. Inputs of one
    name are one input; outputs are named ``"model.output"``, and come model by model.

    Args:
        models: name -> a model of any kind that :func:`tvm_tile.compile` takes.

    Raises:
        ModelError: there is no model, or a name is no word.
    """
    for name in models:
        if not isinstance(name, str) or not name.isidentifier():
            raise ModelError(
                "models that are compiled together have words as names",
                repr(name),
                "give letters, digits and underscores",
            )
    if not models:
        raise ModelError(
            "models are compiled together", "there is none", "give one of them at least"
        )
    return Together(dict(models))


def joined(parts: Mapping[str, Imported]) -> Imported:
    """Imported models as one.

    Raises:
        ModelError: one of them keeps state, writes to its inputs, or has weights without values; or
            inputs of one name are not alike.
    """
    inputs = _inputs(parts)
    functions: dict[Any, Any] = {}
    for name, part in parts.items():
        _require_plain(name, part)
        functions |= _renamed(part.mod, name)
    mains = {str(var.name_hint): var for var in functions}
    builder = relax.BlockBuilder(tvm.IRModule(functions))
    params = {n: relax.Var(n, relax.TensorType(own.shape, own.dtype)) for n, own in inputs.items()}
    with builder.function("main", list(params.values())):
        results: list[Any] = []
        for name, part in parts.items():
            given = [params[own.name] for own in part.inputs]
            value = builder.emit(relax.Call(mains[f"{name}_main"], given))
            is_tuple = isinstance(value.ty, relax.TupleType)
            fields = range(len(value.ty.fields)) if is_tuple else ()
            results += [builder.emit(value[place]) for place in fields] or [value]
        result = results[0] if len(results) == 1 else builder.emit(relax.Tuple(results))
        builder.emit_func_output(result)
    whole = relax.transform.InlinePrivateFunctions()(builder.get())
    outputs = [
        replace(own, name=f"{name}.{own.name}")
        for name, part in parts.items()
        for own in part.outputs
    ]
    return Imported(
        mutated(whole, _OneOfEach(whole)),
        tuple(inputs.values()),
        tuple(outputs),
        weights=tuple(own for part in parts.values() for own in part.weights),
        notes=tuple(note for part in parts.values() for note in part.notes),
    )


def _inputs(parts: Mapping[str, Imported]) -> dict[str, Signature]:
    """The inputs of all models by their names, each once."""
    found: dict[str, Signature] = {}
    for own in (own for part in parts.values() for own in part.inputs):
        known = found.setdefault(own.name, own)
        if (known.shape, known.dtype) != (own.shape, own.dtype):
            raise ModelError(
                "inputs of one name are one input of the models that are compiled together",
                f"{known} and {own}",
                "give one of them another name",
            )
    return found


def _require_plain(name: str, part: Imported) -> None:
    """Refuse a model whose calls leave something behind."""
    if part.effects != NO_EFFECTS or part.without_values:
        raise ModelError(
            "models that are compiled together compute outputs of inputs and weights alone",
            f"{name!r} keeps state, writes to an input, or has weights without values",
            "compile it by itself",
        )


def _renamed(mod: tvm.IRModule, prefix: str) -> dict[Any, Any]:
    """A module's functions, private and with longer names."""
    names = {var: tvm.ir.GlobalVar(f"{prefix}_{var.name_hint}") for var in mod.get_global_vars()}
    for old, new in names.items():
        relax.expr._update_type(new, old.ty)
    renamer = _Renamer(mod, names)
    return {
        names[var]: (
            renamer.visit_expr(func) if isinstance(func, relax.Function) else func
        ).without_attr("global_symbol")
        for var, func in mod.functions_items()
    }


@relax.expr_functor.mutator
class _Renamer(relax.PyExprMutator):
    """Calls functions by other names."""

    def __init__(self, mod: tvm.IRModule, names: Mapping[Any, Any]) -> None:
        super().__init__(mod)
        self._names = names

    def visit_global_var_(self, var: Any) -> relax.Expr:
        return self._names[var]


@relax.expr_functor.mutator
class _OneOfEach(relax.PyExprMutator):
    """Puts one constant in the place of all that have its values."""

    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self._known: dict[Any, Any] = {}

    def visit_generic_const_(self, constant: Any) -> relax.Expr:
        if not hasattr(constant.value, "shape") or math.prod(constant.value.shape) < _WEIGHT:
            return constant
        own = hashlib.sha256(bytes_of(constant.value).data).digest()
        key = own, tuple(constant.value.shape), str(constant.value.dtype)
        return self._known.setdefault(key, constant)
