"""Descriptors by which the copy engine knows tensors (tensor maps), and which tensor each is of.

The host encodes a map of a parameter, and hands it to the kernel, which knows the map's name alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx

_SUFFIX, _ENCODE = "_map", "runtime.cuTensorMapEncodeTiled"


def map_variable(tensor: str) -> Any:
    """A variable for the map of a parameter, by the parameter's name."""
    return tirx.Var(f"{tensor}{_SUFFIX}", _map_type())


def mapped_tensor(variable: Any) -> str | None:
    """The parameter that a variable is the map of; ``None`` where it is no map."""
    is_map = isinstance(getattr(variable.ty, "element_type", variable.ty), tirx.TensorMapType)
    return str(variable.name).removesuffix(_SUFFIX) if is_map else None


def encoded(variable: Any, *how: Any) -> Any:
    """The call by which the host encodes a map, as the driver's function takes it."""
    return tirx.call_packed(_ENCODE, variable, *how)


def encodes(statement: Any) -> bool:
    """Whether a statement is such a call, which reads no tensor."""
    arguments: Sequence[Any] = getattr(getattr(statement, "value", None), "args", ())
    return bool(arguments) and str(arguments[0]).strip('"') == _ENCODE


def _map_type() -> Any:
    from tvm.tirx.script import builder as ib

    return ib.handle("tensormap").ty
