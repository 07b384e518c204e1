"""A Relax function of kernels' calls as one unscheduled TensorIR function."""

from __future__ import annotations

import tvm
from tvm import relax, tirx

from tvm_tile.graph.own_names import with_own_names
from tvm_tile.passes.op_pattern import OpPattern, with_pattern

_PREFIX = "joined_"


def one_function(mod: tvm.IRModule, name: str) -> tirx.PrimFunc:
    """The function ``name`` of a module, which calls kernels only: stock FuseTIR merges them.

    Returns:
        A function without a symbol, which TVM's fusion leaves as it is.
    """
    var = mod.get_global_var(name)
    whole = mod.clone()
    whole[var] = mod[var].with_attr("Primitive", True)
    builder = relax.BlockBuilder(whole)
    params = [relax.Var(f"x{n}", param.ty) for n, param in enumerate(mod[var].params)]
    with builder.function("main", params):
        with builder.dataflow():
            output = builder.emit_output(relax.Call(var, params))
        builder.emit_func_output(output)
    merged = relax.transform.FuseTIR()(builder.get())[name]
    named = with_own_names(merged.without_attr("global_symbol"))
    return with_pattern(named, OpPattern.OPAQUE)


def joined_name(names: list[str]) -> str:
    """The name of the function that several functions became."""
    return _PREFIX + "_".join(name.removeprefix("fused_") for name in names)


def is_joined(name: str) -> bool:
    """Whether a function of this name is several that became one."""
    return name.startswith(_PREFIX)
