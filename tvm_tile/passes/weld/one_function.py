"""A Relax function of kernels' calls as one unscheduled TensorIR function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, s_tir, tirx
from tvm.s_tir import SBlock, SBlockRealize

from tvm_tile.graph.expression import substituted
from tvm_tile.graph.own_names import with_own_names
from tvm_tile.passes.ir.op_pattern import OpPattern, with_pattern
from tvm_tile.passes.ir.rewriter import is_in_place, written_over
from tvm_tile.passes.scheduling.first_choices import content_of
from tvm_tile.passes.weld.mark_streamed import streamed_again
from tvm_tile.schedule.s_tir.steps import replace_parts
from tvm_tile.schedule.scene import STREAMED

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


def outer_values(calls: Sequence[tuple[Any, Any]]) -> list[Any]:
    """The values that calls of kernels are given and do not make, each once.

    Args:
        calls: each with the variable of what it makes.
    """
    made = [var for var, _ in calls]
    found: list[Any] = []
    for value in (value for _, call in calls for value in call.args[1].fields):
        if not any(value.same_as(known) for known in (*made, *found)):
            found.append(value)
    return found


def as_one(
    mod: tvm.IRModule,
    calls: Sequence[tuple[Any, Any]],
    outer: Sequence[Any],
    stored: Sequence[Any] = (),
) -> tirx.PrimFunc:
    """The functions that calls call as one, unscheduled; it makes what the last one does, and
    ahead of that what others take of it.

    Args:
        mod: module that has the functions.
        calls: each with the variable of what it makes, in the order of the program.
        outer: values that they are given, in the order of the function's parameters.
        stored: variables of what calls make that others take; shapes are static, then.
    """
    if stored:
        return in_turn(mod, calls, outer, stored)
    called = {call.args[0]: mod[call.args[0]] for _, call in calls}
    builder = relax.BlockBuilder(tvm.IRModule(called))
    inner = [relax.Var(f"p{number}", value.ty) for number, value in enumerate(outer)]
    given = list(zip(outer, inner, strict=True))

    with builder.function("joined", inner, private=True):
        with builder.dataflow():
            for var, call in calls:
                fields = call.args[1].fields
                args = [next(own for value, own in given if value.same_as(a)) for a in fields]
                made = relax.call_tir(call.args[0], args, call.ty_args[0])
                given.append((var, builder.emit(made)))
            result = builder.emit_output(given[-1][1])
        builder.emit_func_output(result)
    joined = one_function(builder.get(), "joined")
    return streamed_again(joined, list(called.values()), outer)


def in_turn(
    mod: tvm.IRModule,
    calls: Sequence[tuple[Any, Any]],
    outer: Sequence[Any],
    stored: Sequence[Any] = (),
) -> tirx.PrimFunc:
    """The functions that calls call, one behind the other, unscheduled.

    It writes what they write in place, and makes what the last one does unless that is such a
    call, too, and ahead of that what others take of it. TVM's fusion says in no order which of its
    parameters several outputs are.

    Args:
        mod: module that has the functions, all of static shapes.
        calls: each with the variable of what it makes, in the order of the program; those that
            write in place write one tensor, and none makes several.
        outer: values that they are given, in the order of the function's parameters.
        stored: variables of what calls make that others take.
    """
    known: list[tuple[Any, Any]] = []  # values, each with the buffer that it lies in
    blocks: list[SBlock] = []

    def place(value: Any, like: Any) -> Any:
        found = next((own for other, own in known if value.same_as(other)), None)
        if found is None:
            found = tirx.Var(f"p{len(known)}", like.ty)
            known.append((value, found))
        return found

    for number, (var, call) in enumerate(calls):
        func = _with_block_names(s_tir.renew_defs(mod[call.args[0]]), f"_{number}")
        given = call.args[1].fields
        pairs = zip(func.params, [*given, *([] if is_in_place(call) else [var])], strict=True)
        renamed = {own: place(value, own) for own, value in pairs}
        if is_in_place(call):
            known.append((var, place(written_over(call)[0], var)))
        blocks.append(substituted(func.body.block, renamed))
    ends = outer if is_in_place(call) else [*outer, *stored, var]
    params = [place(value, value) for value in ends]
    inner = [own for _, own in known if not any(own.same_as(p) for p in params)]
    allocated = [buffer for block in blocks for buffer in block.alloc_buffers]
    body = tirx.SeqStmt([block.body for block in blocks])
    root = SBlockRealize([], True, SBlock([], [], [], "root", body, None, [*inner, *allocated]))
    attrs = mod[call.args[0]].attrs
    joined = with_own_names(tirx.PrimFunc(params, root, None, attrs)).without_attr(STREAMED)
    whole = streamed_again(joined, [mod[call.args[0]] for _, call in calls], outer)
    return with_pattern(whole.without_attr("global_symbol"), OpPattern.OPAQUE)


def nest_function(params: Sequence[Any], nest: Any, attrs: Any) -> tirx.PrimFunc:
    """A nest of loops of another function as a function of its own, unscheduled.

    Args:
        params: tensors that it reads, and then what it writes.
        nest: the loops.
        attrs: attributes of the function that has it.
    """
    root = SBlockRealize([], True, SBlock([], [], [], "root", nest, None, []))
    func = with_own_names(s_tir.renew_defs(tirx.PrimFunc(params, root, None, attrs)))
    # Which of its parameters come from memory the other function's places do not tell.
    func = func.without_attr("global_symbol").without_attr(STREAMED)
    return with_pattern(func, OpPattern.OPAQUE)


def _with_block_names(func: tirx.PrimFunc, suffix: str) -> tirx.PrimFunc:
    """A function whose blocks' names end with ``suffix``."""

    def renamed(block: SBlock) -> SBlock:
        return replace_parts(block, name_hint=block.name_hint + suffix)

    body = tvm_ffi.structural_map(func.body, [(SBlock, renamed)], order="post")
    return func.with_body(body)


class JoinedFunctions:
    """Functions that a pass adds to a module, equal ones once: the layers of a model are alike."""

    def __init__(self) -> None:
        self._added: dict[Any, tuple[Any, tirx.PrimFunc]] = {}

    def named(self, func: tirx.PrimFunc, name: str) -> Any:
        """The variable of a function, the same for equal ones, whose name begins with ``name``."""
        key = content_of(func)
        if key not in self._added:
            var = tvm.ir.GlobalVar(f"{name}_{len(self._added)}")
            relax.expr._update_type(var, func.ty)
            self._added[key] = var, func
        return self._added[key][0]

    def add_to(self, mod: tvm.IRModule) -> None:
        """Add all of them to a module, which is changed."""
        for var, func in self._added.values():
            mod[var] = func


def joined_name(names: list[str]) -> str:
    """The name of the function that several functions became."""
    return _PREFIX + "_".join(name.removeprefix("fused_") for name in names)


def is_joined(name: str) -> bool:
    """Whether a function of this name is several that became one."""
    return name.startswith(_PREFIX)
