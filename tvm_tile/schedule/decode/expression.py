"""An expression of a block, to be written elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import ir, tirx
from tvm.s_tir import SBlock

from tvm_tile.graph.tile_graph import Operator
from tvm_tile.schedule.tensor_cores.place import Place, placed


@dataclass(frozen=True, slots=True)
class Expression:
    """A value that parameters and axes make.

    Attributes:
        value: itself.
        axes: its variables -> the axes that they stand for.
        extents: of these axes, by name.
    """

    value: Any
    axes: Mapping[Any, str]
    extents: Mapping[str, int]

    @classmethod
    def of(cls, block: SBlock, operator: Operator, value: Any) -> Expression:
        """What a block computes on its way; ``operator`` names its axes."""
        pairs = list(zip(block.iter_vars, operator.axes, strict=True))
        extents = {axis.name: axis.extent for _, axis in pairs}
        return cls(value, {v.var: axis.name for v, axis in pairs}, extents)

    @property
    def names(self) -> frozenset[str]:
        """The axes that it depends on."""
        used: list[Any] = []
        tvm_ffi.structural_walk(self.value, (tirx.Var, used.append), order="pre")
        return frozenset(self.axes[var] for var in used if var in self.axes)

    def at(self, place: Place, buffers: Mapping[str, Any]) -> Any:
        """The value at a place.

        Args:
            place: value of every axis of more than one element.
            buffers: name of a parameter -> the buffer that stands for it.
        """

        def load(node: ir.TensorLoad) -> Any:
            return tirx.BufferLoad(buffers[str(node.source.name)], list(node.indices))

        value = placed(self.value, self.axes, place)
        return tvm_ffi.structural_map(value, [(ir.TensorLoad, load)], order="post")
