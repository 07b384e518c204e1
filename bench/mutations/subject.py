"""The model whose files are damaged: two kernels and a constant, on the emulated device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

X = np.linspace(-2, 2, 6 * 16, dtype="float32").reshape(6, 16)


def relax_model() -> Any:
    """``softmax(relu(x @ constant))`` along the rows."""
    from tvm import relax
    from tvm.relax import op

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(X.shape, "float32"))
    weights = relax.const(np.linspace(-1, 1, 16 * 32, dtype="float32").reshape(16, 32))
    with builder.function("main", [x]):
        product = builder.emit(op.nn.relu(op.matmul(x, weights)))
        builder.emit_func_output(builder.emit(op.nn.softmax(product, axis=-1)))
    return builder.get()


def compiled(cache: Path | bool) -> Any:
    """The model, compiled; all of it, or some, comes from ``cache`` where it is there."""
    import tvm_tile
    from tvm_tile.stages import opened_store
    from tvm_tile.stages.forced import Forced

    # Whoever edits the package meanwhile would turn its cache off.
    opened_store._own_fingerprint = lambda: "the code under test"
    options = Forced(cache=cache, parallel_builds=1)
    return tvm_tile.compile(relax_model(), "emulated", options=options)
