"""Asynchronous copies of a thread from global to shared memory, past its registers (cp.async)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from tvm import tirx
from tvm.script import tirx as T

from tvm_tile.device.device import VECTOR_BYTES


def asked(into: Any, pointer: Any, size: int, inside: Sequence[Any] = ()) -> Any:
    """The call that asks for a copy to shared memory, of zeros where not all conditions hold.

    Args:
        into: pointer to where it goes.
        pointer: pointer to the source.
        size: bytes: 4, 8 or 16.
        inside: the conditions.
    """
    # Only whole units may pass by the first-level cache.
    copy = T.ptx[f"cp.async.{'cg' if size == VECTOR_BYTES else 'ca'}.shared.global"]
    holds = reduce(tirx.And, inside) if inside else None
    brought = [] if holds is None else [tirx.Select(holds, T.uint32(size), T.uint32(0))]
    return copy(into, pointer, size, *brought)
