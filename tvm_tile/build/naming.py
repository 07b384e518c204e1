"""Names that say what a function computes, so that equal kernels share a name."""

from __future__ import annotations

import hashlib
from typing import Any


def rename_by_content(mod: Any) -> Any:
    """Rename every PrimFunc to ``name_<8 hex digits of a hash of its text>``.

    before: ``matmul``, ``matmul1``   after: ``matmul_0f3a99c1``, ``matmul1_77b0d2e4``

    The emulated device finds kernels in a table of the whole process, so two models may use
    one name only for one and the same kernel, whose source has the names of its buffers in it.
    Names that already end so are kept.

    Args:
        mod: a Relax module whose PrimFuncs are called by ``call_tir`` or by the VM.

    Returns:
        A new IRModule; PrimFuncs and their calls agree on the new names.
    """
    from tvm.relax.transform import NormalizeGlobalVar
    from tvm.tirx import PrimFunc

    renamed = mod.clone()
    for var, function in mod.functions.items():
        if isinstance(function, PrimFunc):
            anonymous = function.without_attr("global_symbol")
            text = anonymous.script(show_meta=True).encode()
            suffix = f"_{hashlib.sha256(text).hexdigest()[:8]}"
            name = str(var.name_hint)
            name = name if name.endswith(suffix) else name + suffix
            renamed[var] = anonymous.with_attr("global_symbol", name)
    # TVM's pass makes every GlobalVar agree with the symbol of its function.
    return NormalizeGlobalVar()(renamed)
