"""Frozen data as JSON's dictionaries and lists, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints


def revived(kind: Any, data: Any) -> Any:
    """What ``dataclasses.asdict`` took apart.

    Args:
        kind: a dataclass, a tuple of one kind or of several, or what JSON has itself.
        data: of it; fields that are missing take their defaults.

    Raises:
        TypeError: a field is unknown, or missing and without a default.
    """
    if isinstance(kind, type) and is_dataclass(kind):
        kinds = _kinds(kind)
        return kind(**{name: revived(kinds.get(name), value) for name, value in data.items()})
    if get_origin(kind) is tuple:
        own = get_args(kind)
        own = (own[0],) * len(data) if own[-1] is Ellipsis else own
        return tuple(map(revived, own, data))
    return data


@cache
def _kinds(kind: Any) -> Mapping[str, Any]:
    return get_type_hints(kind)
