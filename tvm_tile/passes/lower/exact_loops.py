"""Kernels whose machine code TVM makes compute what they say, as those that we build do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx

from tvm_tile import compat
from tvm_tile.build.exact.floats import hide_arithmetic
from tvm_tile.build.exact.in_tvm import exact_in_tvm
from tvm_tile.build.exact.integer_types import in_unsigned, in_unsigned_on_nvidia
from tvm_tile.build.exact.integers import wrap_collected, wrap_integers
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
    quotients of places (see :mod:`tvm_tile.build.exact.quotients`). Loops that are to be unrolled
    are left to the kernels' compiler: TVM would write a reduction across threads several times over
    one variable, which its own LowerThreadAllreduce dies of.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        target = tvm.target.Target.current()
        opened = open_blocks(with_prim_funcs(mod, lambda func: _hidden(func, target)))
        return with_prim_funcs(opened, lambda func: _written(func, target))


def has_exact_loops(func: tirx.PrimFunc) -> bool:
    """Whether TVM opens the blocks of a scheduled PrimFunc behind :class:`ExactLoops`' rewriting.

    It does not know a maximum with its place, reduced across threads, whose comparison is hidden.
    """
    try:
        open_blocks(tvm.IRModule({"main": _hidden(func, None)}))
    except compat.TVM_ERRORS:
        return False
    return True


def is_for_tvm(func: tirx.PrimFunc) -> bool:
    """Whether a PrimFunc is one of :class:`ExactLoops`."""
    return _FOR_TVM in (func.attrs or {})


def _hidden(func: tirx.PrimFunc, target: Any) -> tirx.PrimFunc:
    """The function with arithmetic that TVM's passes leave as it is."""
    is_cuda = target is not None and target.kind.name == "cuda"
    return wrap_integers(hide_arithmetic(func), in_unsigned_on_nvidia if is_cuda else in_unsigned)


def _written(func: tirx.PrimFunc, target: Any) -> tirx.PrimFunc:
    """A PrimFunc as TVM is to build it, that says what its pipeline is not to do to it again."""
    exact = exact_in_tvm(wrap_collected(func), target)
    kept = tirx.AttrStmt(tirx.const(0), "pragma_unroll_explicit", tirx.const(0), exact.body)
    return exact.with_body(kept, exact.span).with_attr(_FOR_TVM, True)
