"""One node of an exported program becomes Relax operators, or is refused.

A converter is a function that is called with ``emit`` and *all* arguments of its operator, by the
names of the operator's schema: those that the program leaves out have their default values, so
that no flag is lost. Values are Relax expressions; numbers, lists and ``None`` stay what they are;
element types are PyTorch's. Three things differ from the schema:

* ``self`` is named ``x``, ``from`` is ``start``;
* what only says where a tensor lies (``device``, ``layout``, ``pin_memory``, ``memory_format``,
  ``non_blocking``) is left out; layouts other than strided ones are refused before;
* an operator of several results returns as many; ``None`` stands for one not in ``emit.wanted``.

Whatever a converter returns is compared with the shape and the element type that PyTorch itself
gives the node: a difference is a refusal, never passed on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.utils import _pytree as pytree
from tvm import relax

from tvm_tile.frontend.torch.emit import Emit, Refusal, dtype_name, dtype_of, shape_of

Converter = Callable[..., Any]
Converters = Mapping[OpOverload, Converter]
Values = Any  # a Relax expression, or a tuple of them and of None

PLACEMENT = frozenset({"device", "layout", "pin_memory", "memory_format", "non_blocking"})
_RENAMED = {"self": "x", "from": "start"}


def parameters(operator: OpOverload) -> dict[str, Any]:
    """The names by which a converter takes an operator's arguments, with the schema's names."""
    return {
        _RENAMED.get(argument.name, argument.name): argument
        for argument in operator._schema.arguments
        if argument.name not in PLACEMENT
    }


def convert(converter: Converter, node: fx.Node, value: Callable[[Any], Any], emit: Emit) -> Values:
    """The values of a node's results.

    Args:
        converter: that of the node's operator.
        node: a call of an operator.
        value: an argument with its Relax values in place of the nodes.
        emit: made for this node.

    Raises:
        Refusal: the converter does not do this form, or its result is not PyTorch's.
    """
    for result in emit.results:
        dtype_name(result.dtype)
    single = isinstance(node.meta["val"], torch.Tensor)
    try:
        arguments = _arguments(node, value)
        made = _nothing(emit, arguments) or converter(emit, **arguments)
        values = [None if given is None else emit(given) for given in _several(made)]
    except Refusal:
        raise
    except Exception as error:  # of TVM's functions that make operators: whatever comes up
        lines = str(error).strip().splitlines() or [""]
        raise Refusal(f"{type(error).__name__}: {lines[-1]}") from error
    if len(values) != len(emit.results):
        raise Refusal(f"{len(values)} results instead of {len(emit.results)}")
    for i, (given, expected) in enumerate(zip(values, emit.results, strict=True)):
        if given is not None:
            require_like(given, expected)
        elif i in emit.wanted:
            raise Refusal(f"no result {i}")
    return values[0] if single else tuple(values)


def _nothing(emit: Emit, arguments: Mapping[str, Any]) -> list[relax.Expr]:
    """Results none of which has elements, whatever their operator; none if one has some."""
    given = [value for value in pytree.tree_leaves(dict(arguments)) if isinstance(value, relax.Var)]
    if not given or any(0 not in result.shape for result in emit.results):
        return []
    return [emit.nothing(given[0], tuple(like.shape), like.dtype) for like in emit.results]


def _several(made: Any) -> Sequence[Any]:
    return (made,) if isinstance(made, relax.Expr) else made


def results(node: fx.Node) -> tuple[torch.Tensor, ...]:
    """Tensors without data, like a node's results; raises :class:`Refusal` if they are no tensors
    or their extents are left to the data."""
    value = node.meta.get("val")
    values = tuple(value) if isinstance(value, tuple | list) else (value,)
    for item in values:
        if not isinstance(item, torch.Tensor):
            raise Refusal(f"a result that is no tensor but {type(item).__name__}")
        if item.layout != torch.strided:
            raise Refusal(f"layout {item.layout}")
        if not all(isinstance(extent, int) for extent in item.shape):
            raise Refusal(f"shape {tuple(item.shape)} that only the data decide")
    return values


def wanted(node: fx.Node) -> frozenset[int]:
    """Positions of the results that a node's users take."""
    if isinstance(node.meta.get("val"), torch.Tensor):
        return frozenset({0})
    return frozenset(user.args[1] for user in node.users if user.users)


def examples(node: fx.Node) -> dict[str, torch.Tensor]:
    """Tensors without data, like the tensors among a node's arguments."""
    if not isinstance(node.target, OpOverload):
        return {}
    given = given_arguments(node)
    return {
        name: given[argument.name].meta["val"]
        for name, argument in parameters(node.target).items()
        if isinstance(given.get(argument.name), fx.Node)
    }


def _arguments(node: fx.Node, value: Callable[[Any], Any]) -> dict[str, Any]:
    given = given_arguments(node)
    return {
        name: value(given.get(argument.name, argument.default_value))
        for name, argument in parameters(node.target).items()
    }


def given_arguments(node: fx.Node) -> dict[str, Any]:
    """The arguments that a node gives, by the schema's names."""
    names = (argument.name for argument in node.target._schema.arguments)
    return {**dict(zip(names, node.args, strict=False)), **node.kwargs}


def require_like(value: relax.Expr, expected: torch.Tensor) -> None:
    """Compare a value with PyTorch's own; raises :class:`Refusal` where they differ."""
    found = (dtype_of(value), shape_of(value))
    if found != (expected.dtype, tuple(expected.shape)):
        raise Refusal(
            f"the result would be {found[0]}{list(found[1])}, PyTorch's is "
            f"{expected.dtype}{list(expected.shape)}"
        )


def joined(*tables: Converters) -> dict[OpOverload, Converter]:
    """One table of several, none of which may hold another's operator."""
    table: dict[OpOverload, Converter] = {}
    for part in tables:
        twice = sorted(str(operator) for operator in part if operator in table)
        assert not twice, f"several converters of {', '.join(twice)}"
        table.update(part)
    return table


def overloads(converter: Converter, *operators: OpOverload) -> dict[OpOverload, Converter]:
    """A part of a table: operators that share a converter."""
    return dict.fromkeys(operators, converter)
