"""The axes of blocks and threads that a kernel is launched with, and what each thread does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm_ffi
from tvm import tirx

from tvm_tile.graph.extract import nodes_in


def launches(body: Any) -> list[Any]:
    """The statements of a kernel that launch its axes, outermost first."""
    return [s for s in nodes_in(body, tirx.AttrStmt) if s.attr_key == "thread_extent"]


def in_threads(body: Any, change: Callable[[Any], Any]) -> Any:
    """A kernel's body with another statement in place of what lies within all of its axes."""
    innermost = launches(body)[-1]

    def visit(launch: Any) -> Any:
        if not launch.same_as(innermost):
            return launch
        return tirx.AttrStmt(launch.node, launch.attr_key, launch.value, change(launch.body))

    return tvm_ffi.structural_map(body, [(tirx.AttrStmt, visit)], order="pre")
