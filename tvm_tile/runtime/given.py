"""The inputs that a call is given, in the order in which the model takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tvm_tile.closest import did_you_mean
from tvm_tile.errors import InputError
from tvm_tile.graph.signature import Signature


def in_order(
    inputs: Sequence[Signature], args: tuple[Any, ...], by_name: Mapping[str, Any]
) -> tuple[Any, ...]:
    """All inputs of a call.

    Args:
        inputs: what the model takes.
        args: the first of them, by position.
        by_name: the others.

    Raises:
        InputError: one is missing, given twice or unknown.
    """
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


def check_repeats(name: str, value: Any) -> None:
    """Refuse to repeat a call less often than once.

    Raises:
        InputError: the value is no whole number, or too small.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{name} must be at least 1", repr(value), "measure one call or more")
