"""What passes that write operators in a simpler form leave of a module."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from tvm_tile.passes.sequence import run_passes


def behind(step: tvm.transform.Pass, mod: Any) -> Any:
    """The module as the pipeline has it behind such a pass."""
    passes = [
        relax.transform.Normalize(),
        relax.transform.ConvertToDataflow(),
        step,
        relax.transform.CanonicalizeBindings(),
        relax.transform.DeadCodeElimination(),
    ]
    after = run_passes(passes, mod)
    assert relax.analysis.check_well_formed(after)
    return after


def operators(mod: Any) -> list[str]:
    """The names of the operators of ``main``, in order."""
    blocks = mod["main"].body.blocks
    calls = [binding.value for block in blocks for binding in block.bindings]
    return [call.op.name for call in calls if isinstance(call, relax.Call)]
