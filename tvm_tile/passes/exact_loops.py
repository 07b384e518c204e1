"""Kernels whose machine code TVM makes compute what they say, as those that we build do."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm import tirx

from tvm_tile import compat
from tvm_tile.build.exact_floats import hide_arithmetic
from tvm_tile.build.exact_in_tvm import module_in_tvm
from tvm_tile.build.tir_passes import open_blocks
from tvm_tile.graph.functions import with_prim_funcs

_FOR_TVM = "tvm_tile.for_tvm"


@tvm.transform.module_pass(opt_level=0, name="ExactLoops")
@dataclass(frozen=True, slots=True)
class ExactLoops:
    """Scheduled blocks as loops that TVM's own pipeline lowers rightly.

    before: blocks with ``x + y - y``, ``max(x, y)``, ``A[(287 - i) % 288]``
    after:  loops with ``as_written(x + y) - y``, ``maximum(x, y)``, ``A[truncmod(575 - i, 288)]``

    Without it TVM takes floating-point numbers for real ones, loses NaN in extrema, and offsets in
    quotients of places (see :mod:`tvm_tile.build.quotients`). Loops that are to be unrolled are
    left to the kernels' compiler: TVM would write a reduction across threads several times over
    one variable, which its own LowerThreadAllreduce dies of.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        exact = module_in_tvm(open_blocks(with_prim_funcs(mod, hide_arithmetic)))
        return with_prim_funcs(exact, _for_tvm)


def _for_tvm(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """A PrimFunc that says what TVM's pipeline is not to do to it again."""
    kept = tirx.AttrStmt(tirx.const(0), "pragma_unroll_explicit", tirx.const(0), func.body)
    return func.with_body(kept, func.span).with_attr(_FOR_TVM, True)


def has_exact_loops(func: tirx.PrimFunc) -> bool:
    """Whether TVM opens the blocks of a scheduled PrimFunc behind :class:`ExactLoops`' rewriting.

    It does not know a maximum with its place, reduced across threads, whose comparison is hidden.
    """
    try:
        open_blocks(tvm.IRModule({"main": hide_arithmetic(func)}))
    except compat.TVM_ERRORS:
        return False
    return True


def is_for_tvm(func: tirx.PrimFunc) -> bool:
    """Whether a PrimFunc is one of :class:`ExactLoops`."""
    return _FOR_TVM in (func.attrs or {})
