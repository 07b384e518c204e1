"""Memory between the kernels of one function, planned with the rest of a model's memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.relax.expr_functor import PyExprVisitor, mutator, visitor
from tvm.s_tir import SBlockRealize

from tvm_tile import compat
from tvm_tile.graph.expression import uses
from tvm_tile.passes.ir.rewriter import ModuleRewriter, is_call_tir
from tvm_tile.schedule.s_tir.steps import replace_parts


@tvm.transform.module_pass(opt_level=0, name="LiftWorkspaces")
@dataclass(frozen=True, slots=True)
class LiftWorkspaces:
    """Make memory between the kernels of a function an output of the function.

    before: ``y = call_tir(f, (x,), out_ty=Y)``, where ``f(x, y)`` allocates ``parts``
    after:  ``z = call_tir(f, (x,), out_ty=[Y, Parts]); y = z[0]``, with ``f(x, y, parts)``

    TVM would allocate this memory whenever ``f`` is called, from a pool of the calling thread. But
    a CUDA graph keeps the address, while the pool may end with its thread or hand the memory to
    others; and two streams of one thread would share it. An output lies where
    StaticPlanBlockMemory says; as nothing reads this one, its memory is free after the call.

    A function that is used in other ways than by ``call_tir`` keeps its form. So does memory
    whose size is not constant, and what only one kernel uses: TVM moves that into the kernel.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        lifted = {}
        for name in _called_by_call_tir_only(mod):
            own = _lift(mod[name], name)
            if own is not None:
                lifted[name] = own
        if not lifted:
            return mod
        result = mod.clone()
        for name, own in lifted.items():
            # The type of a GlobalVar tells the parameters, so that it is another one now.
            del result[name]
            result[own.var] = own.func
        return _WorkspaceLifting(result, lifted).rewritten(result)


def has_workspace(func: tirx.PrimFunc) -> bool:
    """Whether kernels of a scheduled function leave anything for one another."""
    return _lift(func, "func") is not None


@dataclass(frozen=True, slots=True)
class _Lifted:
    """A function that is given its workspaces, its last parameters."""

    var: tvm.ir.GlobalVar
    func: tirx.PrimFunc
    workspaces: tuple[Any, ...]


@mutator
class _WorkspaceLifting(ModuleRewriter):
    def __init__(self, mod: tvm.IRModule, lifted: Mapping[str, _Lifted]) -> None:
        super().__init__(mod)
        self._lifted = lifted

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        lifted = self._lifted.get(str(call.args[0].name_hint)) if is_call_tir(call) else None
        if lifted is None:
            return super().visit_call_(call)
        (former,) = call.ty_args
        is_one = not isinstance(former, relax.TupleType)
        outputs = [former] if is_one else list(former.fields)
        added = [_tensor_type(space, outputs[0].vdevice) for space in lifted.workspaces]
        arguments = self.visit_expr(call.args[1])
        both = self.builder_.emit(relax.call_tir(lifted.var, arguments, [*outputs, *added]))
        values = [relax.TupleGetItem(both, place) for place in range(len(outputs))]
        return values[0] if is_one else relax.Tuple(values)


@visitor
class _Uses(PyExprVisitor):
    """Finds the functions that ``call_tir`` calls, and those that are used in other ways."""

    def __init__(self) -> None:
        self.called: set[str] = set()
        self.others: set[str] = set()

    def visit_call_(self, call: relax.Call) -> None:
        if not is_call_tir(call):
            super().visit_call_(call)
            return
        self.called.add(str(call.args[0].name_hint))
        for argument in call.args[1:]:
            self.visit_expr(argument)

    def visit_global_var_(self, var: tvm.ir.GlobalVar) -> None:
        self.others.add(str(var.name_hint))


def _called_by_call_tir_only(mod: tvm.IRModule) -> list[str]:
    """Names of functions that are called by ``call_tir``, and named nowhere else."""
    uses = _Uses()
    for func in mod.functions.values():
        if isinstance(func, relax.Function):
            uses.visit_expr(func)
        elif isinstance(func, tirx.PrimFunc):
            tvm_ffi.structural_walk(func.body, (tvm.ir.GlobalVar, uses.visit_global_var_))
    return sorted(uses.called - uses.others)


def _lift(func: Any, name: str) -> _Lifted | None:
    """``func`` without the memory that it allocates; ``None`` where it has none."""
    if not isinstance(func, tirx.PrimFunc) or compat.runs_on_host(func):
        return None
    root = _root_of(func)
    whole = func.body if root is None else root.body
    statements = list(whole) if isinstance(whole, tirx.SeqStmt) else [whole]
    # Of the last resort, and of the thread-level dialect: allocated by a statement, so that TVM
    # leaves it where it is.
    declared = [
        s
        for s in statements
        if isinstance(s, tirx.AllocBuffer) and _is_plain(s.buffer) and _users(s.buffer, statements)
    ]
    own = [] if root is None else root.alloc_buffers
    shared = [b for b in own if _is_plain(b) and _users(b, statements) > 1]
    workspaces = (*shared, *(statement.buffer for statement in declared))
    if not workspaces:
        return None
    rest = [s for s in statements if not _is_among(s, declared)]
    body = rest[0] if len(rest) == 1 else tirx.SeqStmt(rest)
    if root is not None:
        kept = [b for b in own if not _is_among(b, shared)]
        block = replace_parts(root, body=body, alloc_buffers=kept)
        body = SBlockRealize(func.body.iter_values, func.body.predicate, block)
    lifted = tirx.PrimFunc([*func.params, *workspaces], body, func.ret_type, func.attrs)
    var = tvm.ir.GlobalVar(name)
    relax.expr._update_type(var, lifted.ty)
    return _Lifted(var, lifted, workspaces)


def _root_of(func: tirx.PrimFunc) -> Any:
    """The block that all others are in; ``None`` of the thread-level dialect, and of one block."""
    is_block = isinstance(func.body, SBlockRealize) and func.body.block.name_hint == "root"
    return func.body.block if is_block else None


def _is_plain(buffer: Any) -> bool:
    """Whether a tensor can hold it: in global memory, its rows one behind the other."""
    extents = all(isinstance(extent, tirx.IntImm) for extent in buffer.ty.shape)
    return extents and buffer.scope() == "global" and not buffer.ty.strides


def _users(buffer: Any, statements: list[Any]) -> int:
    """Number of ``statements`` that use ``buffer``."""
    return sum(uses(s, [buffer]) for s in statements if not isinstance(s, tirx.AllocBuffer))


def _is_among(node: Any, others: list[Any]) -> bool:
    """Whether a node is one of several, by identity."""
    return any(node.same_as(other) for other in others)


def _tensor_type(buffer: Any, vdevice: Any) -> relax.TensorType:
    """Type of a buffer as a tensor."""
    shape = [int(extent) for extent in buffer.ty.shape]
    return relax.TensorType(shape, str(buffer.ty.dtype), vdevice)
