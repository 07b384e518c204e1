"""What TVM calls at the end of ``import tvm``, through the entry-point group ``tvm.backends``.

Afterwards ``tvm.compile(mod, target, relax_pipeline="tvm_tile")`` works without importing
this package. Nothing but a factory is registered here: the pipeline is imported when
somebody asks for it, so ``import tvm`` gets no slower.
"""

from __future__ import annotations

from typing import Any


def register() -> None:
    """Register the Relax pipeline ``"tvm_tile"``; called by TVM, once."""
    # TVM imports relax before it calls its entry points.
    from tvm.relax import register_pipeline

    register_pipeline("tvm_tile")(_relax_pipeline)


def _relax_pipeline() -> Any:
    from tvm_tile.pipeline import relax_pipeline

    return relax_pipeline()
