"""Places that operators read are told as simply as their axes allow, before these are replaced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, sym, tirx
from tvm.s_tir import SBlock

from tvm_tile.graph.expression import block_ranges
from tvm_tile.graph.extract import nodes_in
from tvm_tile.graph.functions import with_prim_funcs
from tvm_tile.schedule.s_tir.steps import replace_parts


@tvm.transform.module_pass(opt_level=0, name="SimplifyPlaces")
@dataclass(frozen=True, slots=True)
class SimplifyPlaces:
    """Write the places that reshapes read without what the ranges of their axes rule out.

    before: ``B[i, j, k] = A[((i * 56 + j) * 96 + k) // 672, (j * 96 + k) % 672 // 96, k % 96]``
    after:  ``B[i, j, k] = A[i * 8 + j // 7, j % 7, k]``

    Once functions are joined, ``j`` is perhaps a sum with an offset, and nothing is seen any more.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        return with_prim_funcs(
            mod, lambda func: tvm_ffi.structural_map(func, (SBlock, _simplified), order="post")
        )


def _simplified(block: SBlock) -> SBlock:
    """A block that reads the same elements; loops that are written by hand stay as they are."""
    if not isinstance(block.body, tirx.BufferStore) or not _divides(block.body):
        return block
    ranges = block_ranges(block)

    def load(node: ir.TensorLoad) -> Any:
        return tirx.BufferLoad(node.source, [_simple(index, ranges) for index in node.indices])

    def region(node: tirx.BufferRegion) -> tirx.BufferRegion:
        found = [(_simple(axis.min, ranges), axis.extent) for axis in node.region]
        return tirx.BufferRegion(node.source, [ir.Range.from_min_extent(*own) for own in found])

    body = tvm_ffi.structural_map(block.body, (ir.TensorLoad, load), order="post")
    return replace_parts(block, body=body, reads=[region(read) for read in block.reads])


def _simple(index: Any, ranges: sym.Analyzer) -> Any:
    """An index as simply as it can be told."""
    return ranges.simplify(index) if _divides(index) else index


def _divides(value: Any) -> bool:
    """Whether there is a division in an expression or a statement."""
    return bool(nodes_in(value, tirx.FloorDiv, tirx.FloorMod))
