"""Write one kernel: rules that turn a fused function into scheduled TensorIR.

The package itself can be called: ``tvm_tile.schedule(prim_func)`` is :func:`ranking.schedule`.

A rule (``rule.py``) names tiles for a function, best first, and writes the one that it is asked
for. ``ranking.py`` asks the rules, and takes the tile of the least predicted time. What no rule
takes goes to TVM's dlight, what that cannot schedule or build to ``statements.py``; the report
names both. Rules know tensors by their names, which no two buffers of a function share
(:mod:`tvm_tile.graph.own_names`).

Rules for CUDA cores are in ``s_tir/``. Kernels for matrix units are made of parts: a function's
spatial blocks are inlined (``s_tir/normalize.py``), so that the product is found in it
(``tensor_cores/``) and what becomes of an element is an expression that any kernel can write
(:mod:`tvm_tile.graph.expression`); ``units/`` multiplies, ``pipelines/`` brings operands.
``threads.py`` launches such a kernel, gives it shared memory and has its threads wait.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from tvm_tile.schedule.ranking import (
    RULES,
    Finder,
    candidates,
    schedule,
)
from tvm_tile.schedule.rule import Choice, FindChoices, Resident, Scheduled, Task

__all__ = [
    "RULES",
    "Choice",
    "FindChoices",
    "Finder",
    "Resident",
    "Scheduled",
    "Task",
    "candidates",
    "schedule",
]


class _CallablePackage(ModuleType):
    """This package under its second name, that of a public function.

    Python binds a package's name in its parent whenever it is first imported, by anyone: a
    function of that name in the parent would turn into the package sooner or later. As one
    object that is both, ``tvm_tile.schedule`` means the same at all times.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[Scheduled, ...]:
        return schedule(*args, **kwargs)


_CallablePackage.__call__.__doc__ = schedule.__doc__
sys.modules[__name__].__class__ = _CallablePackage
