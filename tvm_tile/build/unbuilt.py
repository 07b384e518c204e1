"""A builder for predictions: it builds nothing, and takes every kernel to build."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import tirx

from tvm_tile.build.built import Built
from tvm_tile.build.early.dependent_launches import starts_early
from tvm_tile.build.lower import Builder
from tvm_tile.errors import BuildError
from tvm_tile.graph.extract import nodes_in

_GRID = "blockIdx.x"


class Unbuilt(Builder):
    """A builder that finds no failures, and knows no resources: no compiler is asked."""

    def _build_all(self, functions: Mapping[str, Any]) -> dict[str, Built | BuildError]:
        """Nothing of what is asked for."""
        return {}

    def registers(self, mod: Any) -> dict[str, tuple[int | None, ...]]:
        """A place for each kernel of a module's scheduled PrimFuncs."""
        return {name: (None,) * count for name, count in self.kernel_counts(mod).items()}

    def kernel_counts(self, mod: Any) -> dict[str, int]:
        """How many kernels each of a module's scheduled PrimFuncs will become."""
        functions = mod.functions_items()
        return {
            str(var.name_hint): _kernels(func)
            for var, func in functions
            if isinstance(func, tirx.PrimFunc)
        }

    def dependent_counts(self, mod: Any) -> dict[str, int]:
        """Count the launches of each function that will depend on the kernel before."""
        counts = self.kernel_counts(mod)
        marked = {str(var.name_hint) for var, func in mod.functions_items() if starts_early(func)}
        return {name: count if name in marked else 0 for name, count in counts.items()}


def _kernels(func: tirx.PrimFunc) -> int:
    """Loops, or statements, that are the blocks of a kernel; one at least."""
    loops = [loop.thread_binding for loop in nodes_in(func.body, tirx.For)]
    tags = [str(binding.thread_tag) for binding in loops if binding is not None]
    return max(1, tags.count(_GRID))
