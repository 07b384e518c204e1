"""Whether two readers made the same program."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from tvm_tile.frontend.relay.program import (
    Call,
    Clause,
    Constant,
    Constructor,
    ConstructorPattern,
    Function,
    Global,
    If,
    Item,
    Let,
    Local,
    LocalPattern,
    Match,
    NewReference,
    Operator,
    OtherType,
    Program,
    ReadReference,
    Tuple,
    TuplePattern,
    WriteReference,
)

_LEAVES = (Global, Operator, Constructor)
# What a text keeps of a number.
_PRECISION = 1e-5


def difference(text: Program, json: Program) -> str:
    """Where a program that was read as text differs from the same read as JSON; empty if nowhere.

    Numbers may differ as much as six digits do, and variables may have the numbers or the ``v``
    that TVM adds to names it prints.
    """
    if set(text.functions) != set(json.functions):
        return f"functions {sorted(text.functions)} and {sorted(json.functions)}"
    pairs: dict[int, Any] = {}
    pending: list[tuple[Any, Any]] = [
        (function, json.functions[name]) for name, function in text.functions.items()
    ]
    while pending:
        one, other = pending.pop()
        if id(one) in pairs:
            if isinstance(one, Call | Local) and pairs[id(one)] is not other:
                return f"{one!r:.200} is two values in JSON"
            continue
        pairs[id(one)] = other
        if type(one) is not type(other):
            return f"{one!r:.200} and {other!r:.200}"
        if not _same_itself(one, other):
            return f"{one!r:.400} and {other!r:.400}"
        parts, others = _parts(one), _parts(other)
        if len(parts) != len(others):
            return f"{len(parts)} and {len(others)} parts of {one!r:.200}"
        pending.extend(zip(parts, others, strict=True))
    return ""


def same_values(one: Any, other: Any) -> bool:
    """Whether two attributes are the same, numbers as far as a text keeps them."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(same_values, one, other))
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return _same_arrays(one, other)
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=_PRECISION) or (one != one and other != other)
    return type(one) is type(other) and bool(one == other)


def _same_itself(one: Any, other: Any) -> bool:
    if isinstance(one, _LEAVES):
        return bool(one == other)
    if isinstance(one, Constant):
        return _same_arrays(one.value, other.value)
    if isinstance(one, Local):
        is_same_type = one.type == other.type or OtherType in (type(one.type), type(other.type))
        return _same_names(one.name, other.name) and is_same_type
    if isinstance(one, Item):
        return bool(one.index == other.index)
    if isinstance(one, ConstructorPattern):
        return bool(one.constructor == other.constructor)
    if isinstance(one, Call | Function):
        names = set(one.attributes)
        return names == set(other.attributes) and all(
            same_values(one.attributes[name], other.attributes[name]) for name in names
        )
    return True


def _same_names(text: str, json: str) -> bool:
    printed = json if json[:1].isalpha() else f"v{json}"
    return text == printed or re.sub(r"\d+$", "", text.removeprefix(printed)) == ""


def _same_arrays(one: np.ndarray, other: np.ndarray) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    if one.dtype.kind in "iub":
        return bool(np.array_equal(one, other))
    return np.allclose(
        one.astype("float64"), other.astype("float64"), rtol=_PRECISION, equal_nan=True
    )


def _parts(node: Any) -> tuple[Any, ...]:
    match node:
        case Call():
            return node.callee, *node.arguments
        case Tuple():
            return node.fields
        case Item() | NewReference():
            return (node.value,)
        case Function():
            return *node.parameters, node.body
        case Let():
            return node.variable, node.value, node.body
        case If():
            return node.condition, node.then, node.otherwise
        case Match():
            return node.value, *node.clauses
        case Clause():
            return node.pattern, node.body
        case LocalPattern():
            return (node.variable,)
        case ConstructorPattern() | TuplePattern():
            return node.fields
        case ReadReference():
            return (node.reference,)
        case WriteReference():
            return node.reference, node.value
    return ()
