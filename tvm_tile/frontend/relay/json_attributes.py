"""Attributes of operators and functions in TVM's JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm_tile.errors import UnsupportedOperatorError
from tvm_tile.frontend.relay.attributes import (
    SCHEDULED,
    completed,
    field_kinds,
    known_attributes,
    plain,
)
from tvm_tile.frontend.relay.json_graph import Graph, JsonNode
from tvm_tile.frontend.relay.program import Attribute, Constant, Expr

_STRINGS = ("str", "runtime.String")
_VALUES = ("int", "uint64_t", "bool", "double", "DataType")
# The kind of fields that held numbers themselves in some versions, and nodes in others.
_CHANGED = "object"
# The number itself until TVM 0.6, the number of a node since.
_VALUES_IN_0_6 = {("relay.attrs.TopkAttrs", "k")}
# What JSON lacks where TVM was older than the attribute, which then had no other meaning: a newer
# one writes every attribute.
_IMPLIED: Mapping[str, Mapping[str, Attribute]] = {"nn.batch_matmul": {"transpose_b": True}}
_MOST_NESTED, _MOST_PARTS = 32, 100_000


@dataclass(frozen=True, slots=True)
class Attributes:
    """Attributes of a call, as far as the file has them."""

    type_key: str
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Other:
    """An object that no program's meaning depends on, or that means nothing here."""

    type_key: str


def described(value: Any) -> str:
    """What kind of thing a node is, for messages."""
    return value.type_key if isinstance(value, Other | Attributes) else type(value).__name__


def referring_fields(graph: Graph, node: JsonNode) -> list[str]:
    """The fields of attributes that have numbers of nodes, rather than values."""
    kinds = field_kinds(node.type_key) or {}
    plain_kinds = _STRINGS + _VALUES
    in_0_6 = graph.version.startswith("0.6")
    return [
        name
        for name, text in node.fields.items()
        if kinds.get(name, "str") not in plain_kinds
        and text.isascii()
        and text.isdigit()
        and not (in_0_6 and (node.type_key, name) in _VALUES_IN_0_6)
    ]


def attributes_of(graph: Graph, node: JsonNode, values: Sequence[Any]) -> Attributes | Other:
    """The attributes that a node is, given what the nodes are that it refers to.

    Raises:
        ValueError: a field is unknown, or has something else than its kind of value.
    """
    kinds = field_kinds(node.type_key)
    if kinds is None:
        return Other(node.type_key)
    found = dict(zip(referring_fields(graph, node), values, strict=True))
    for name, text in node.fields.items():
        kind = kinds.get(name)
        if kind is None:
            raise ValueError(f"the unknown attribute {name[:40]}")
        if kind in _STRINGS:
            found[name] = graph.string(text)
        elif kind in _VALUES:
            found[name] = plain(kind, text)
        elif name not in found:
            is_whole = text.removeprefix("-").isdigit()
            found[name] = plain("int" if is_whole else "double", text)
    return Attributes(node.type_key, found)


def attribute(value: Any) -> Attribute:
    """What an object means as the value of an attribute.

    An expression that is no constant means nothing: it is an argument as well, as ``arange`` has
    them.

    Raises:
        ValueError: it means nothing as such.
    """
    if isinstance(value, Expr) and not isinstance(value, Constant):
        return None
    for part in parts(value, tuple, iter):
        if part is not None and not isinstance(part, int | float | str | Constant):
            raise ValueError(f"{described(part)} stands where an attribute's value should")
    return _unwrapped(value)


def parts(value: Any, container: type, inner: Callable[[Any], Iterable[Any]]) -> Iterator[Any]:
    """What a nested value holds that is no container itself.

    Raises:
        ValueError: containers are nested too deeply, or hold too much: since nodes may be shared,
            a small file can have values of any size.
    """
    pending, count = [(value, 0)], 0
    while pending:
        part, depth = pending.pop()
        count += 1
        if depth > _MOST_NESTED or count > _MOST_PARTS:
            raise ValueError("values within values without end")
        if isinstance(part, container):
            pending.extend((item, depth + 1) for item in inner(part))
        else:
            yield part


def call_attributes(operator: str, value: Any) -> dict[str, Attribute]:
    """All attributes of a call of an operator, of which a node has some.

    Raises:
        ValueError: the node is something else, or has wrong attributes.
        UnsupportedOperatorError: the attributes are of an unknown type, or of a form from before
            some of them became arguments.
    """
    if value is None:
        return completed(operator, _IMPLIED.get(operator, {}))
    if isinstance(value, Other):
        raise UnsupportedOperatorError(
            "the attributes of an operator must be ones that some TVM with Relay gave it",
            f"{operator} has {value.type_key[:80]}",
            "compose the model of Relay's own operators",
        )
    if isinstance(value, Attributes):
        given = value.values
        _refuse_former(operator, value)
    else:
        given = dict(named(value))
    found = {name: attribute(part) for name, part in given.items()}
    return completed(operator, {**_IMPLIED.get(operator, {}), **found})


def function_attributes(value: Any) -> dict[str, Attribute]:
    """The attributes of a function; of objects that mean nothing here, the class is left."""
    return {
        name: lenient_attribute(part)
        for name, part in (named(value) if isinstance(value, tuple) else ())
    }


def lenient_attribute(value: Any) -> Attribute:
    """The value of an attribute, or what class it is of if it means nothing here."""
    try:
        return attribute(value)
    except ValueError:
        return described(value)


def named(pairs: Any) -> list[tuple[str, Any]]:
    """What a map from strings holds.

    Raises:
        ValueError: it is something else.
    """
    items = entries(pairs)
    if not all(isinstance(name, str) for name, _ in items):
        raise ValueError("an attribute's name is missing")
    return items


def entries(pairs: Any) -> list[tuple[Any, Any]]:
    """What a map holds, keys and values.

    Raises:
        ValueError: it is something else.
    """
    if not isinstance(pairs, tuple):
        raise ValueError(f"{described(pairs)} stands where a map should")
    items = [item for item in pairs if isinstance(item, tuple) and len(item) == 2]
    if len(items) != len(pairs):
        raise ValueError("a list stands where a map should")
    return items


def _unwrapped(value: Any) -> Attribute:
    if isinstance(value, tuple):
        return tuple(_unwrapped(item) for item in value)
    return value.value if isinstance(value, Constant) else value


def _refuse_former(operator: str, attributes: Attributes) -> None:
    known = known_attributes(operator)
    kinds = field_kinds(attributes.type_key) or {}
    for name in attributes.values:
        if known and name not in known and name not in SCHEDULED and kinds[name] == _CHANGED:
            raise UnsupportedOperatorError(
                "scales and zero points must be arguments, as they are since TVM 0.7",
                f"{operator} has the attribute {name}",
                "import the model again with TVM 0.7 or newer",
            )
