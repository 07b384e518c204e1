"""A scheduled kernel as the body of a rTask, which is given the numbers of block and threads."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from tvm_tile import compat
from tvm_tile.build.exact.numerics import widen_halves
from tvm_tile.build.launched import launches
from tvm_tile.build.program import SHARED_TAG
from tvm_tile.build.tir_passes import lower_module
from tvm_tile.device.device import Device
from tvm_tile.errors import BuildError
from tvm_tile.graph.expression import substituted
from tvm_tile.graph.extract import loads_in
from tvm_tile.plan.execution_plan import aligned

RESIDENT = "resident"
"""Name of the shared memory that a rTask finds as an earlier one on its vEU left it."""


@dataclass(frozen=True, slots=True)
class Body:
    """A kernel behind TVM's lowering, which is done once however often the kernel is run.

    Attributes:
        stmt: statements of one thread.
        params: position of an argument of the PrimFunc -> the pointer to it in ``stmt``; those
            that the kernel does not use are missing.
        indices: ``"blockIdx.x"`` and so on -> the variable that stands for it, and its extent.
        shared: buffers in shared memory, in the order of their allocation.
        waits: whether threads wait for one another.
    """

    stmt: Any
    params: Mapping[int, Any]
    indices: Mapping[str, tuple[Any, int]]
    shared: tuple[Any, ...]
    waits: bool

    @property
    def blocks(self) -> int:
        """Blocks of the kernel's grid."""
        return self._extents("blockIdx")

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self._extents("threadIdx")

    @property
    def scratch(self) -> tuple[tuple[Any, int], ...]:
        """Buffers in shared memory that a rTask leaves to the next, with their first bytes."""
        placed, end = [], 0
        for buffer in self.shared:
            if str(buffer.name) != RESIDENT:
                placed.append((buffer, end))
                end += aligned(_bytes(buffer))
        return tuple(placed)

    @property
    def scratch_bytes(self) -> int:
        """Bytes of shared memory that a block needs while it runs, without the resident part."""
        return sum(aligned(_bytes(buffer)) for buffer, _ in self.scratch)

    @property
    def resident(self) -> Any | None:
        """The buffer in shared memory that stays, if there is one."""
        return next((b for b in self.shared if str(b.name) == RESIDENT), None)

    @property
    def resident_bytes(self) -> int:
        """Bytes of shared memory that a block's resident part takes; 0 where there is none."""
        return 0 if self.resident is None else aligned(_bytes(self.resident))

    def _extents(self, kind: str) -> int:
        """Number of blocks or threads: the product of a kind of launch extents."""
        return math.prod(n for tag, (_, n) in self.indices.items() if tag.startswith(kind))


def lower_body(func: tirx.PrimFunc, device: Device) -> Body:
    """Lower a PrimFunc that is one kernel.

    Raises:
        BuildError: the function is no single kernel, or has parts that a persistent kernel cannot
            have: tensor maps (copies by TMA), clusters, scalars as parameters, or sums in shared
            memory that threads of a warp add up in step, of types that no shuffle takes.
    """
    named = with_numbered_params(widen_halves(func)).with_attr("global_symbol", "body")
    lowered = lower_module(tvm.IRModule({"body": named}), compat.make_target(device))
    if len(lowered.kernels) != 1:
        raise _no_body("one kernel", f"{len(lowered.kernels)} kernels")
    kernel = lowered.kernels[0]
    tags = {tag for tag in kernel.launch_params if not tag.startswith(("blockIdx", "threadIdx"))}
    if tags - {SHARED_TAG} or set(kernel.arg_types) - {"handle"}:
        raise _no_body("pointers as arguments, no clusters", f"{kernel.arg_types} {tags}")
    (function,) = kernel.module.functions.values()
    params = {_number(param): param for param in function.params}
    body = _found(function.body, params)
    if body.waits and body.threads % device.warp_size and _adds_in_place(body.stmt):
        raise _no_body("whole warps, or store nothing over what it has read", f"{body.threads}")
    return body


def _no_body(requirement: str, found: str) -> BuildError:
    """The error for a kernel that cannot be part of a persistent one."""
    remedy = "launch it by itself"
    return BuildError(f"a kernel inside a persistent one must have {requirement}", found, remedy)


def with_numbered_params(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """``func``, whose parameters are named ``a0``, ``a1``, ... by their positions.

    Lowering sorts them by name, and a tensor is known by its name, which several may share.
    """
    renamed = {p: tirx.Var(f"a{n}", p.ty) for n, p in enumerate(func.params)}
    body = substituted(func.body, renamed)
    return tirx.PrimFunc([renamed[p] for p in func.params], body, func.ret_type, func.attrs)


def _number(param: Any) -> int:
    """Position that a parameter's name ``a0``, ``a1``, ... tells."""
    return int(str(param.name).removesuffix("_ptr").removeprefix("a"))


def _found(stmt: Any, params: Mapping[int, Any]) -> Body:
    """The body of a lowered kernel, with its indices, shared memory and barriers."""
    indices = {str(s.node.thread_tag): (s.node.var, int(s.value)) for s in launches(stmt)}
    shared: list[Any] = []
    waits: list[Any] = []

    def allocate(allocation: Any) -> None:
        if allocation.buffer.scope().startswith("shared"):
            shared.append(allocation.buffer)

    def call(statement: Any) -> None:
        if is_wait(statement):
            waits.append(statement)

    visits = [(tirx.AllocBuffer, allocate), (tirx.Evaluate, call)]
    tvm_ffi.structural_walk(stmt, visits)
    if any(_is_of_a_warp(statement.value) for statement in waits):
        raise _no_body("barriers that whole blocks come to", "some of part of a warp")
    return Body(stmt, params, indices, tuple(shared), bool(waits))


def _is_of_a_warp(call: Any) -> bool:
    """Whether a barrier is for threads of a warp that go on in step, not all of which come."""
    return len(call.args) > 0 and str(getattr(call.args[0], "value", "")) == "warp"


def _adds_in_place(stmt: Any) -> bool:
    """Whether a store to shared or global memory depends on what was there."""

    def store(statement: Any) -> Any:
        buffer = statement.buffer
        if buffer.scope() == "local":
            return None
        loads = loads_in(statement.value)
        over = any(load.source.same_as(buffer) for load in loads)
        return tvm_ffi.VisitInterrupt() if over else None

    return tvm_ffi.structural_walk(stmt, (tirx.BufferStore, store)) is not None


def is_wait(statement: Any) -> bool:
    """Whether a statement makes the threads of a block wait for one another."""
    operator = str(getattr(getattr(statement.value, "op", None), "name", ""))
    return operator in ("tirx.tvm_storage_sync", "tirx.cuda.cta_sync")


def _bytes(buffer: Any) -> int:
    """Size of a buffer in bytes."""
    dtype = tvm_ffi.dtype(str(buffer.ty.dtype))
    size = -(-int(dtype.bits) * int(dtype.lanes) // 8)
    return math.prod(int(extent) for extent in buffer.ty.shape) * size


def with_numbers(
    body: Body,
    numbers: Mapping[str, Any],
    pointers: Mapping[int, Any],
    shared: Mapping[Any, Any],
    wait: Any,
) -> list[Any]:
    """The statements of a body for one rTask; their variables are in no other's.

    Args:
        body: a kernel.
        numbers: ``"blockIdx.x"`` and so on -> what it is.
        pointers: position of a parameter -> where that is.
        shared: a buffer in shared memory -> the pointer to its place.
        wait: the statement that makes the threads of a block wait for one another.
    """
    own = {var: tirx.Var(str(var.name), var.ty) for var in _bound(body)}
    # Where what a tensor holds is an index, numbers are of its type.
    given = {var: numbers[tag] for tag, (var, _) in body.indices.items()}

    def launch(attr: Any) -> Any:
        return attr.body if attr.attr_key == "thread_extent" else attr

    def allocate(allocation: Any) -> Any:
        place = shared.get(allocation.buffer)
        return allocation if place is None else tirx.DeclBuffer(allocation.buffer, data=place)

    def call(statement: Any) -> Any:
        return wait if is_wait(statement) else statement

    stmt = tvm_ffi.structural_map(
        body.stmt,
        [(tirx.AttrStmt, launch), (tirx.AllocBuffer, allocate), (tirx.Evaluate, call)],
        order="post",
    )
    stmt = substituted(stmt, given | own)
    binds = [tirx.Bind(own[param], pointers[n]) for n, param in sorted(body.params.items())]
    return [*binds, stmt]


def _bound(body: Body) -> list[Any]:
    """The variables that a body binds, its parameters among them."""
    found: list[Any] = list(body.params.values())
    visits = [
        (tirx.For, lambda loop: found.append(loop.loop_var)),
        (tirx.Bind, lambda bind: found.append(bind.var)),
        (tirx.AllocBuffer, lambda allocation: found.append(allocation.buffer)),
        (tirx.DeclBuffer, lambda declared: found.append(declared.buffer)),
    ]
    tvm_ffi.structural_walk(body.stmt, visits)
    return found
