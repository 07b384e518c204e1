"""Choices between values in memory, only one of which may be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx

from tvm_tile.build.exact.numerics import with_bodies
from tvm_tile.graph.extract import loads_in


@tvm.transform.module_pass(opt_level=0, name="GuardLoads")
@dataclass(frozen=True, slots=True)
class GuardLoads:
    """Read nothing for a value that is not chosen, however deep in it the load stands.

    before: ``Select(i == 4, if_then_else(j % 3 == 0, A[i - 4, j // 3], 0), 0)``
    after:  ``if_then_else(i == 4, if_then_else(j % 3 == 0, A[i - 4, j // 3], 0), 0)``

    TVM's RewriteUnsafeSelect takes a load for safe that stands behind a condition, whatever that
    condition is. Its code generator computes the inner choice in front of the outer one, and its
    simplifier has made the place that is read shorter by what the outer condition says.

    Choices by vectors of truths stay as they are: there is no branch for these.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        return with_bodies(mod, (tirx.Select, _guarded))


def _guarded(select: tirx.Select) -> Any:
    """A choice between values in memory as one that reads only the chosen one."""
    values = (select.true_value, select.false_value)
    if str(select.condition.ty.dtype) != "bool" or not any(map(loads_in, values)):
        return select
    return tirx.if_then_else(select.condition, *values)
