"""Arguments of a call on their way to the device, and its results on their way back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from tvm_tile.runtime.arrays import NUMPY, ArrayKind
from tvm_tile.runtime.copies import clone


def on_device(kinds: Sequence[ArrayKind], values: Sequence[Any], device: Any) -> list[Any]:
    """A caller's arrays as tensors on a device."""
    pairs = zip(kinds, values, strict=True)
    return [kind.to_device(value, device) for kind, value in pairs]


def returned(
    fields: Sequence[Any],
    kinds: Sequence[ArrayKind],
    values: Sequence[Any],
    copied: Collection[int],
) -> Any:
    """Result of a call: one array of the first input's kind, or a tuple of several.

    Args:
        fields: the outputs on the device.
        kinds: kinds of the inputs; so are ``values``.
        copied: positions of outputs that may share memory with a constant or an input.
    """
    kind = kinds[0] if kinds else NUMPY
    like = values[0] if values else None
    arrays = tuple(
        kind.from_device(field, like, copy=position in copied)
        for position, field in enumerate(fields)
    )
    return arrays[0] if len(arrays) == 1 else arrays


def write_back(
    fields: Sequence[tuple[Any, bool]], homes: Sequence[tuple[int, Callable[[Any], None]]]
) -> None:
    """Put new values where they belong, unless they are there already.

    Args:
        fields: tensors with the values, and whether each may share memory with something else.
        homes: for each value, the address where it belongs, and the function that writes it there.
    """
    waiting = [
        # It may lie where another new value is put.
        (write, clone(field) if is_shared else field)
        for (field, is_shared), (address, write) in zip(fields, homes, strict=True)
        if field.data_ptr() != address
    ]
    for write, field in waiting:
        write(field)
