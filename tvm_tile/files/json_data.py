"""Frozen data as JSON's dictionaries and lists, and back."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields, is_dataclass
from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints


def text_of(data: Any) -> str:
    """A dataclass as JSON, sets as lists in order; :func:`revived` makes it of what that is."""
    return json.dumps(asdict(data), default=sorted)


def revived(kind: Any, data: Any) -> Any:
    """Make frozen data of the dictionary that ``dataclasses.asdict`` made of such data.

    Args:
        kind: a dataclass, a tuple of one kind or of several, a ``frozenset``, a ``Mapping`` from
            texts, a union of such kinds, or what JSON has itself.
        data: dictionary of the fields; fields that are missing take their defaults.

    Raises:
        TypeError: a field is unknown, missing and without a default, or of another type.
    """
    if isinstance(kind, type) and is_dataclass(kind):
        kinds, own = _kinds(kind), _of_type(dict, data)
        if unknown := own.keys() - kinds.keys():
            raise TypeError(f"{kind.__name__} has no field {min(map(str, unknown))!r}")
        if missing := _required(kind) - own.keys():
            raise TypeError(f"{kind.__name__} lacks field {min(missing)!r}")
        return kind(**{name: revived(kinds[name], value) for name, value in own.items()})
    origin, inner = get_origin(kind), get_args(kind)
    if origin is tuple:
        items = _of_type(list, data)
        inner = (inner[0],) * len(items) if inner[-1] is Ellipsis else inner
        if len(items) != len(inner):
            raise TypeError(f"{len(items)} values where {len(inner)} belong")
        return tuple(map(revived, inner, items))
    if origin is frozenset:
        return frozenset(revived(inner[0], item) for item in _of_type(list, data))
    if origin is Mapping:
        return {name: revived(inner[1], value) for name, value in _of_type(dict, data).items()}
    if origin in (Union, UnionType):
        return _of_union(inner, data)
    return _scalar(kind, data)


def _of_type(kind: type, data: Any) -> Any:
    """``data``, which must be of exactly this type."""
    if type(data) is not kind:
        raise TypeError(f"{data!r:.80} where a {kind.__name__} belongs")
    return data


def _of_union(kinds: tuple[Any, ...], data: Any) -> Any:
    """``data`` as the first of several types that fits."""
    for kind in kinds:
        if data is None and kind is type(None):
            return None
        try:
            return revived(kind, data)
        except TypeError:
            continue
    raise TypeError(f"{data!r:.80} where one of {', '.join(map(str, kinds))} belongs")


def _scalar(kind: Any, data: Any) -> Any:
    """``data`` as a number, text or flag; floats must be finite."""
    if kind is float and type(data) in (int, float):
        # A whole number stays one, so that what is written again is the same text.
        if not math.isfinite(data):
            raise TypeError(f"{data} where a finite number belongs")
        return data
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(data)
    return _of_type(kind, data)


@cache
def _kinds(kind: Any) -> Mapping[str, Any]:
    """Types of a dataclass's fields, by name."""
    return get_type_hints(kind)


@cache
def _required(kind: Any) -> frozenset[str]:
    """Names of the fields without defaults."""
    own = fields(kind)
    return frozenset(f.name for f in own if f.default is MISSING and f.default_factory is MISSING)
