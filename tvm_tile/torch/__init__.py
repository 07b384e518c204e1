"""PyTorch's compiler with tvm_tile behind it: ``torch.compile(model, backend="tvm_tile")``.

That line needs no import: PyTorch finds the backend by an entry point of this package. Names are
resolved on first use, so that decisions of this package are free of PyTorch and TVM.

``backend.py`` is what PyTorch calls. PyTorch's AOTAutograd first turns Dynamo's graph into one for
inference, or into one forward and one backward, of operators without side effects: it sees to
inputs that are written, to aliases and to gradients. Operators that have a converter stay whole,
the others are broken down, but for those that draw random numbers. ``cut.py`` asks ``support.py``
which nodes can be compiled and ``stages.py`` which of them run together. ``compiler.py`` makes each
part an exported program (``program.py``) and compiles it as any other; a part that fails is cut
again without the nodes that the error names, or left to PyTorch: no failure here may reach users.
``assemble.py`` writes the graph that calls the parts (``calls.py``), with open sizes once for each
of them (``sizes.py``).

Weights are inputs of these programs, never constants, and come last. A CUDA graph reads them where
they lay when it was captured; :mod:`tvm_tile.runtime.weights` sees to it that no graph does so when
they have moved. ``prune.py`` sets the least weights of linear layers to zero, ``quantize.py``
rounds them to codes of ``codebooks.py``, and ``coded_linear.py`` decodes these by PyTorch's own
operators, as any model would.

``tests/torch_backend_cases.py`` compares all that can be seen of a call with PyTorch: a new kind of
behaviour is a case there. What PyTorch's people test of backends is in ``tests/aot_cases.py`` and
``tests/training_scenarios.py``, each under the name of their test; ``tests/fake_graphs.py`` records
and replays on the CPU as CUDA does.
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
