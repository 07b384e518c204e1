"""Errors of ours that pass through TVM."""

from __future__ import annotations

import functools

from tvm_tile.errors import ALL_ERRORS, TileError


@functools.cache
def let_errors_through() -> None:
    """Have TVM hand on our errors, and Ctrl-C, when it calls Python that raises them.

    Otherwise they arrive as RuntimeErrors, and Ctrl-C is taken for a pass that failed.
    """
    import tvm_ffi
    from tvm_ffi import core

    def from_text(kind: type[TileError]) -> type[TileError]:
        # TVM keeps the text alone, and calls a class to have the error back.
        return type(kind.__name__, (kind,), {"__new__": lambda _, text: kind.from_text(text)})

    tvm_ffi.register_error("KeyboardInterrupt", KeyboardInterrupt)
    for kind in ALL_ERRORS:
        tvm_ffi.register_error(kind.__name__, from_text(kind))
        core.ERROR_TYPE_TO_NAME[kind] = kind.__name__
