"""Write an update to the memory of its base: in a view's places, everywhere or at indices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import fx
from tvm import relax

from tvm_tile.frontend.torch.emit import Emit, dtype_of, shape_of
from tvm_tile.frontend.torch.operators.indexing import require_within
from tvm_tile.frontend.torch.operators.rows_in_place import Updates, write_rows
from tvm_tile.frontend.torch.operators.slices_in_place import write_slices
from tvm_tile.frontend.torch.updates import Update


def write_update(emit: Emit, update: Update, values: Mapping[fx.Node, Any]) -> relax.Expr:
    """The new value of the base, in its memory.

    Args:
        emit: of the node that is the update.
        update: nobody reads its base any more.
        values: of the update's operands.

    Raises:
        Refusal: an index that is known is out of bounds.
    """
    base, places = values[update.base], update.places
    if 0 in (*shape_of(base), *places.shape):
        return base
    value = emit.cast(values[update.value], dtype_of(base))
    chosen = {i: values[index] for i, index in enumerate(update.indices) if index is not None}
    if not chosen:
        return write_slices(emit, base, value, places)
    broadcast = torch.broadcast_shapes(*map(shape_of, chosen.values()))
    if 0 in broadcast:
        return base
    for axis, index in chosen.items():
        require_within(index, places.shape[axis], lowest=-places.shape[axis])
    updates = Updates(places.shape, tuple(chosen), tuple(broadcast))
    return write_rows(emit, base, list(chosen.values()), value, updates, places)
