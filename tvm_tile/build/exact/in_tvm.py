"""Arithmetic as it is written, in builds of TVM's own.

These are the CPU build, which kernels are compared with, and those of the pipeline that TVM's users
ask for by its name. Beside the simplifier (see :mod:`tvm_tile.build.exact.floats`), TVM's generated
code is in the way: to it ``x != y`` is false where one is NaN, and ``max(x, y)`` is ``y`` where
``x`` is.
"""

from __future__ import annotations

from typing import Any

from tvm_tile.build.exact.floats import hide_arithmetic, is_float
from tvm_tile.registered import as_written, maximum, minimum


def exact_in_tvm(function: Any, target: Any = None) -> Any:
    """A PrimFunc that TVM builds so that it computes what this one says.

    before: ``max(x, y)``       ``x != y``
    after:  ``maximum(x, y)``   ``not as_written(x == y)``

    Integers wrap only as far as the function says so: see :mod:`tvm_tile.build.exact.integers`.

    Args:
        function: PrimFunc whose arithmetic is to be kept.
        target: target that TVM builds it for; a CPU where it is None.
    """
    import tvm_ffi
    from tvm.tirx import EQ, NE, Max, Min, Not

    from tvm_tile.build.exact.bfloat16 import round_bfloat16
    from tvm_tile.build.exact.narrow_bindings import store_narrow_bindings

    def unequal(node: Any) -> Any:
        return Not(as_written(EQ(node.a, node.b))) if is_float(node.a) else node

    def extremum(written: Any) -> Any:
        return lambda node: written(node.a, node.b) if is_float(node) else node

    changes = [(NE, unequal), (Max, extremum(maximum)), (Min, extremum(minimum))]
    exact = hide_arithmetic(tvm_ffi.structural_map(function, changes, order="post"))
    return store_narrow_bindings(round_bfloat16(exact, target))


def exact_on_cpu(function: Any) -> Any:
    """A PrimFunc that TVM builds for this CPU so that it computes what this one says, and whose
    integers wrap."""
    from tvm_tile.build.exact.integer_types import in_longer
    from tvm_tile.build.exact.integers import wrap_collected, wrap_integers

    wrapping = wrap_collected(wrap_integers(function, in_longer), in_longer)
    return exact_in_tvm(wrapping)
