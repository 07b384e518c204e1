"""What is known of operators' attributes: their kinds, and what those that are left out are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tvm_tile.errors import UnsupportedOperatorError
from tvm_tile.frontend.relay.arrays import element_type
from tvm_tile.frontend.relay.program import Attribute

SCHEDULED = ("auto_scheduler_rewritten_layout", "meta_schedule_original_shape")
"""Attributes that TVM's tuners write; one that is not empty says that weights were rearranged."""

# Attributes that later became arguments.
_FORMER = {("nn.pad", "pad_value")}


def field_kinds(type_key: str) -> Mapping[str, str] | None:
    """The kind of each attribute of a type of attributes, such as ``int`` or ``runtime.String``.

    The kind decides whether the JSON has the value itself or the number of a node. ``None`` if
    nothing is known of the type.
    """
    kinds: Mapping[str, str] | None = _table("attribute_keys.json").get(type_key)
    return kinds


def known_attributes(operator: str) -> Mapping[str, Mapping[str, Any]]:
    """The type, and the default if there is one, of each attribute that an operator had last."""
    known: Mapping[str, Mapping[str, Any]] = _table("attribute_defaults.json").get(operator) or {}
    return known


def refuse_unknown(operator: str, given: Mapping[str, Attribute]) -> None:
    """Check that an operator has, or once had, the attributes that a text gives it.

    Raises:
        ValueError: it has one that none of TVM's versions knew.
    """
    known = known_attributes(operator)
    for name in given:
        if known and name not in known and (operator, name) not in _FORMER:
            raise ValueError(f"{operator} has no attribute {name[:40]}")


def completed(operator: str, given: Mapping[str, Attribute]) -> dict[str, Attribute]:
    """All attributes of a call: those that the program gives, and defaults.

    Nothing is known of some operators, nor of names that are no operator's: they have what is
    given.

    Raises:
        ValueError: a value is not of its attribute's kind, or one without default is missing.
        UnsupportedOperatorError: a tuner rearranged what the call works on.
    """
    known = known_attributes(operator)
    for name in SCHEDULED:
        if given.get(name):
            raise UnsupportedOperatorError(
                "a program must be as it was before tuning",
                f"{operator} has the attribute {name}: its weights were rearranged",
                "save the program before it is compiled or tuned",
            )
    complete: dict[str, Attribute] = {}
    for name, entry in known.items():
        kind = str(entry["type"]).partition(",")[0]
        if name in given:
            complete[name] = _of_kind(operator, name, kind, given[name])
        elif "default" in entry:
            complete[name] = _default(kind, entry["default"])
        else:
            raise ValueError(f"{operator} lacks its attribute {name}")
    unknown = {name: value for name, value in given.items() if name not in complete}
    return complete | {name: unknown[name] for name in unknown if name not in SCHEDULED}


def plain(kind: str, text: str) -> Attribute:
    """A value that the JSON has itself, as text; ``kind`` is none of nodes.

    Raises:
        ValueError: it is not of that kind.
    """
    if kind in ("int", "uint64_t"):
        return integer(text)
    if kind == "bool":
        return integer(text) != 0
    if kind == "double":
        return float(text)
    if kind == "DataType":
        return _data_type(text)
    return text


def integer(text: str) -> int:
    """A number of at most 64 bits.

    Raises:
        ValueError: the text is something else.
    """
    if len(text) > 20 or not text.removeprefix("-").isascii():
        raise ValueError(f"the number {text[:40]!r}")
    number = int(text)
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"the number {number}, which 64 bits cannot hold")
    return number


@cache
def _table(name: str) -> dict[str, Any]:
    table: dict[str, Any] = json.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))
    return table


def _of_kind(operator: str, name: str, kind: str, value: Attribute) -> Attribute:
    if value is None:
        return None
    if kind in ("bool", "int") and isinstance(value, bool | int):
        return bool(value) if kind == "bool" else int(value)
    if kind == "double" and isinstance(value, bool | int | float):
        return float(value)
    if kind == "DataType" and isinstance(value, str):
        return _data_type(value)
    expected = _PYTHON_TYPES.get(kind, object)
    if not isinstance(value, expected):
        raise ValueError(f"{name} of {operator} is {str(value)[:40]!r}, which is no {kind}")
    return value


_PYTHON_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "bool": bool,
    "int": int,
    "double": float,
    "DataType": str,
    "str": str,
    "runtime.String": str,
    "Array": tuple,
    "IntImm": int,
    "PrimExpr": (int, float),
}


def _data_type(name: str) -> str:
    return element_type(name) if name not in ("", "void") else ""


def _default(kind: str, value: Any) -> Attribute:
    if kind in ("Map", "VirtualDevice"):
        return () if kind == "Map" else None
    if kind == "bool":
        return bool(value)
    return _nested(value)


def _nested(value: Any) -> Attribute:
    return tuple(_nested(item) for item in value) if isinstance(value, list) else value
