"""Entry point that TVM calls at the end of ``import tvm``, in the group ``tvm.backends``.

Afterwards ``tvm.compile(mod, target, relax_pipeline="tvm_tile")`` works without importing
this package. Nothing but factories is registered here: pipelines are imported when
somebody asks for them, so ``import tvm`` gets no slower.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm_tile.registered import MARK, REQUIRE_ENDED, register_function, wrap_function
from tvm_tile.registered.host_functions import return_to_the_device


def register() -> None:
    """Register the Relax and TIR pipelines, how their CUDA texts compile, and what their programs
    call; called by TVM, once.

    Relax: ``"tvm_tile"`` and ``"tvm_tile_full"``. TIR: ``"tvm_tile"``.
    """
    # TVM imports relax before it calls its entry points.
    from tvm.relax import register_pipeline
    from tvm.tirx import register_tir_pipeline

    register_pipeline("tvm_tile")(_blocks_pipeline)
    register_pipeline("tvm_tile_full")(_full_pipeline)
    register_tir_pipeline("tvm_tile", _tir_pipeline)
    wrap_function("tvm_callback_cuda_compile", _compiler)
    register_function(REQUIRE_ENDED, _require_ended)
    return_to_the_device()


def _blocks_pipeline() -> Any:
    """The Relax pipeline ``"tvm_tile"``, imported when it is first named."""
    from tvm_tile.plug_in import blocks_pipeline

    return blocks_pipeline()


def _full_pipeline() -> Any:
    """The Relax pipeline ``"tvm_tile_full"``, imported when it is first named."""
    from tvm_tile.plug_in import full_pipeline

    return full_pipeline()


def _tir_pipeline() -> Any:
    """The TIR pipeline ``"tvm_tile"``, imported when it is first named."""
    from tvm_tile.plug_in import tir_pipeline

    return tir_pipeline()


def _require_ended(*arguments: Any) -> Any:
    """Check that a kernel came to its end; its errors pass through TVM."""
    from tvm_tile.registered.errors import let_errors_through
    from tvm_tile.runtime.ended import require_ended

    let_errors_through()
    return require_ended(*arguments)


def _compiler(former: Callable[[str], bytes]) -> Callable[[str], bytes]:
    """TVM's compiler of CUDA texts, which takes ours, too: those that were built without a GPU."""

    def compile_text(text: str) -> bytes:
        if not text.startswith(MARK):
            return former(text)
        from tvm_tile.build.in_tvm import compile_marked

        return compile_marked(text)

    return compile_text
