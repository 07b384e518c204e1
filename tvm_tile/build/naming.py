"""Names that say what a function computes, so that equal kernels share a name."""

from __future__ import annotations

from typing import Any


def rename_by_content(mod: Any) -> Any:
    """Rename every PrimFunc to ``name_<8 hex digits of its structural hash>``.

    before: ``matmul``, ``matmul1``   after: ``matmul_0f3a99c1``, ``matmul1_77b0d2e4``

    The emulated device finds kernels in a table of the whole process, so two models may use
    one name only for one and the same kernel. Names that already end so are kept.

    Args:
        mod: a Relax module whose PrimFuncs are called by ``call_tir`` or by the VM.

    Returns:
        A new IRModule; PrimFuncs and their calls agree on the new names.
    """
    import tvm_ffi
    from tvm.relax.transform import NormalizeGlobalVar
    from tvm.tirx import PrimFunc

    renamed = mod.clone()
    for var, function in mod.functions.items():
        if isinstance(function, PrimFunc):
            anonymous = function.without_attr("global_symbol")
            suffix = f"_{tvm_ffi.structural_hash(anonymous) & 0xFFFFFFFF:08x}"
            name = str(var.name_hint)
            name = name if name.endswith(suffix) else name + suffix
            renamed[var] = anonymous.with_attr("global_symbol", name)
    # TVM's pass makes every GlobalVar agree with the symbol of its function.
    return NormalizeGlobalVar()(renamed)
