"""The inputs that a call is given, in the order in which the model takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from tvm_tile.errors import InputError
from tvm_tile.errors.closest import did_you_mean
from tvm_tile.graph.signature import Signature


def in_order(
    inputs: Sequence[Signature], args: tuple[Any, ...], by_name: Mapping[str, Any]
) -> tuple[Any, ...]:
    """All inputs of a call.

    Args:
        inputs: signatures of the model's inputs.
        args: the first of them, by position; or the arguments of the code that the model was made
            from, in which they are.
        by_name: the others.

    Raises:
        InputError: one is missing, given twice or unknown.
    """
    if any(one.path for one in inputs) and any(map(_is_container, (*args, *by_name.values()))):
        held = dict(zip(dict.fromkeys(map(_argument, inputs)), args, strict=False))
        if len(held) == len(args) and held.keys().isdisjoint(by_name):
            return _taken_out(inputs, {**held, **by_name})
    if not by_name and len(args) == len(inputs):
        return args
    remaining = inputs[len(args) :]
    names = {signature.name for signature in remaining}
    if len(args) > len(inputs) or names != by_name.keys():
        expected = ", ".join(map(str, inputs)) or "none"
        given = ", ".join([f"{len(args)} by position", *by_name])
        remedy = "pass every input once, by position or by name"
        if unknown := [name for name in by_name if name not in names]:
            remedy = did_you_mean(unknown[0], names, remedy)
        raise InputError(f"the model takes {len(inputs)} inputs: {expected}", given, remedy)
    return (*args, *(by_name[signature.name] for signature in remaining))


def _argument(one: Signature) -> str:
    """The name of the argument that an input is, or is in."""
    return one.path[0] if one.path else one.name


def _is_container(value: Any) -> bool:
    """Whether a value may hold inputs: a mapping, a sequence or a dataclass."""
    return isinstance(value, Mapping | list | tuple) or is_dataclass(value)


def _taken_out(inputs: Sequence[Signature], given: Mapping[str, Any]) -> tuple[Any, ...]:
    """The inputs in the arguments that hold them.

    Raises:
        InputError: one is missing, or others are held as well.
    """
    known = set(map(_argument, inputs))
    found: list[Any] = []
    for one in inputs:
        value: Any = given
        for key in one.path or (one.name,):
            value = _part(value, key)
        found.append(value)
    count = sum(map(_arrays, given.values()))
    if any(value is None for value in found) or count != len(inputs) or given.keys() - known:
        lacking = (str(one) for one, value in zip(inputs, found, strict=True) if value is None)
        raise InputError(
            f"the model takes {len(inputs)} inputs: {', '.join(map(str, inputs))}",
            f"{count} in {', '.join(given)}; not found: {', '.join(lacking) or 'none'}",
            "pass what it was exported with: the same arguments with the same keys",
        )
    return tuple(found)


def _part(value: Any, key: str) -> Any:
    """Element of a container for a key; ``None`` where it has none."""
    if isinstance(value, Mapping):
        return value.get(key)
    if isinstance(value, list | tuple):
        return value[int(key)] if key.isdecimal() and int(key) < len(value) else None
    return getattr(value, key, None)


def _arrays(value: Any) -> int:
    """How many arrays an argument holds."""
    if isinstance(value, Mapping):
        return sum(map(_arrays, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(_arrays, value))
    if is_dataclass(value):
        return sum(_arrays(getattr(value, field.name)) for field in fields(value))
    return int(hasattr(value, "shape"))


def check_repeats(name: str, value: Any) -> None:
    """Refuse to repeat a call less often than once.

    Raises:
        InputError: the value is no whole number, or too small.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{name} must be at least 1", repr(value), "measure one call or more")
