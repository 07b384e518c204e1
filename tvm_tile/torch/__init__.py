"""PyTorch's compiler with tvm_tile behind it: ``torch.compile(model, backend="tvm_tile")``.

That line needs no import: PyTorch finds the backend by an entry point of this package. Names are
resolved on first use, so that decisions of this package are free of PyTorch and TVM.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

# Where each public name lives, other than what reports consist of.
_HOMES = {"explain": "tvm_tile.torch.explaining", "tvm_tile": "tvm_tile.torch.backend"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES.get(name, "tvm_tile.torch.report")), name)
