"""PyTorch's compiler with tvm_tile behind it: ``torch.compile(model, backend="tvm_tile")``.

That line needs no import: PyTorch finds the backend by an entry point of this package.
"""

from __future__ import annotations

from tvm_tile.torch.backend import tvm_tile
from tvm_tile.torch.explaining import explain
from tvm_tile.torch.report import (
    CompiledPart,
    EagerOperator,
    Explanation,
    GraphKind,
    GraphReport,
)

__all__ = [
    "CompiledPart",
    "EagerOperator",
    "Explanation",
    "GraphKind",
    "GraphReport",
    "explain",
    "tvm_tile",
]
