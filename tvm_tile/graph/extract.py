"""Read a TensorIR function into a :class:`TileGraph`."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import tvm
import tvm_ffi
from tvm import sym, tirx
from tvm.s_tir import SBlock

from tvm_tile.graph.tile_graph import Access, AffineIndex, Axis, Operator, Tensor, TileGraph

_BINARY = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Max, tirx.Min)
# Rough cost, in floating-point operations, of what is not an add or a multiply. The unit of special
# functions answers a warp in as many cycles as eight others take, and few of these are around it.
_SPECIAL, _LONG, _QUOTIENT = 12, 24, 10
_COSTLY_CALLS = {
    **dict.fromkeys(("exp", "exp2", "exp10", "log", "log2", "log10", "sqrt", "rsqrt"), _SPECIAL),
    **dict.fromkeys(("erf", "tanh", "sigmoid", "pow", "log1p", "sin", "cos", "tan"), _LONG),
    **dict.fromkeys(("sinh", "cosh", "asin", "acos", "atan", "atan2", "fmod", "hypot"), _LONG),
    **dict.fromkeys(("asinh", "acosh", "atanh"), _LONG),
    "tvm_tile.philox": 64,
}


def extract(func: tirx.PrimFunc) -> TileGraph | None:
    """The operators of ``func`` with their accesses, in program order.

    Returns:
        ``None`` where the function is not a sequence of blocks over rectangular, static
        domains: extern calls, loops written by hand, symbolic extents.
    """
    operators = extract_operators(blocks_in(func.body))
    return TileGraph(tuple(operators)) if operators else None


def extract_operators(blocks: Iterable[SBlock]) -> list[Operator]:
    """Several blocks as operators; none where one of them is none."""
    found = [extract_operator(block) for block in blocks]
    known = [operator for operator in found if operator is not None]
    return known if len(known) == len(found) else []


# Passes and rules ask about the same block, whose text never changes, one after the other.
@functools.lru_cache(maxsize=1 << 9)
def extract_operator(block: SBlock) -> Operator | None:
    """One block as an operator; ``None`` if its body is not a single store of an expression."""
    axes = _axes(block)
    body = block.body
    if axes is None or not isinstance(body, tirx.BufferStore):
        return None
    iters = list(block.iter_vars)
    names = Names(
        {v.var: axis.name for v, axis in zip(iters, axes, strict=True)},
        tuple((v.var, v.dom) for v in iters),
    )
    write = _access(body.buffer, body.indices, names)
    if write is None:
        return None
    nodes = nodes_in(body.value, tvm.ir.TensorLoad, tvm.ir.Call, *_BINARY)
    guards = [_Guard.of(node, names) for node in nodes if is_choice(node)]
    reads: list[Access] = []
    for load in (node for node in nodes if isinstance(node, tvm.ir.TensorLoad)):
        access = _access(load.source, load.indices, names)
        if access is None:
            return None
        if access.tensor != write.tensor:
            own = [guard.axes for guard in guards if guard.holds(load.source)]
            reads.append(replace(access, is_computed=bool(own), guards=frozenset().union(*own)))
    unique = tuple(dict.fromkeys(reads))
    return Operator(
        name=block.name_hint,
        axes=axes,
        reads=unique,
        write=write,
        flops=max(1, sum(map(operations_at, nodes))),
        # What another tensor says where to read is no copy.
        is_copy=isinstance(body.value, tvm.ir.TensorLoad) and len(unique) == 1,
    )


def _axes(block: SBlock) -> tuple[Axis, ...] | None:
    """Axes of a block by unique names; ``None`` if one is neither spatial nor summed."""
    axes = []
    for v in block.iter_vars:
        if not isinstance(v.dom.extent, tirx.IntImm) or v.iter_type not in (0, 2):
            return None
        axes.append(Axis(v.var.name, int(v.dom.extent), v.iter_type == 2))
    # Two iterators may share a name hint after inlining; positions keep them apart.
    if len({axis.name for axis in axes}) < len(axes):
        axes = [Axis(f"{a.name}.{i}", a.extent, a.is_reduce) for i, a in enumerate(axes)]
    return tuple(axes)


def nodes_in(tree: Any, *kinds: Any, order: str = "pre") -> list[Any]:
    """The nodes of some kinds in an expression or a statement, as often as they occur.

    Args:
        tree: expression or statement to be searched.
        kinds: classes of nodes.
        order: ``"pre"`` for a node ahead of those that it holds, ``"post"`` for it behind them.
    """
    found: list[Any] = []
    tvm_ffi.structural_walk(tree, (kinds, found.append), order=order)
    return found


def loads_in(expr: Any) -> list[Any]:
    """The loads of an expression, as often as they occur."""
    return nodes_in(expr, tvm.ir.TensorLoad)


def is_gather(block: SBlock) -> bool:
    """Whether a block copies elements from where data tell."""
    value = getattr(block.body, "value", None)
    return isinstance(value, tvm.ir.TensorLoad) and any(map(loads_in, value.indices))


def blocks_in(statement: Any) -> list[SBlock]:
    """The blocks in a statement, in program order, but for a function's outermost one."""
    return [block for block in nodes_in(statement, SBlock) if block.name_hint != "root"]


def is_choice(expr: Any) -> bool:
    """Whether an expression is one of two others, of which only that one is computed."""
    return isinstance(expr, tvm.ir.Call) and getattr(expr.op, "name", "") == "prim.if_then_else"


def has_vector_form(call: Any) -> bool:
    """Whether TVM's vectorizer knows what a call is for neighbours, as it does not of erf's."""
    if not isinstance(call.op, tvm.ir.Op):
        return False
    return is_choice(call) or bool(call.op.get_attr("TVectorizable"))


@dataclass(frozen=True, slots=True)
class _Guard:
    """An ``if_then_else``: padding or a cut-out, no plain load.

    Attributes:
        buffers: the buffers that are read under it.
        axes: names of the axes that its condition depends on.
    """

    buffers: tuple[Any, ...]
    axes: frozenset[str]

    @classmethod
    def of(cls, choice: Any, names: Names) -> _Guard:
        """What a choice guards; ``names`` are those of its block's variables."""
        condition = names.ranges.simplify(choice.args[0])
        used = (names.axes[v] for v in nodes_in(condition, tirx.Var) if v in names.axes)
        return cls(tuple(load.source for load in loads_in(choice)), frozenset(used))

    def holds(self, buffer: Any) -> bool:
        """Whether a buffer is read under it."""
        return any(buffer.same_as(own) for own in self.buffers)


def _access(buffer: Any, indices: Any, names: Names) -> Access | None:
    """An access to a buffer; ``None`` where the buffer's extents are not known."""
    shape = list(buffer.ty.shape if hasattr(buffer, "ty") else buffer.shape)
    if not all(isinstance(extent, tirx.IntImm) for extent in shape):
        return None
    dtype = str(buffer.ty.dtype if hasattr(buffer, "ty") else buffer.dtype)
    tensor = Tensor(str(buffer.name), tuple(int(extent) for extent in shape), dtype)
    return Access(tensor, tuple(affine_index(index, names) for index in indices))


class Names:
    """Axis names of a block's variables, with their ranges for the simplifier."""

    def __init__(self, axes: dict[Any, str], domains: tuple[tuple[Any, Any], ...] = ()) -> None:
        self.axes = axes
        self._domains = domains

    @functools.cached_property
    def ranges(self) -> Any:
        """The simplifier; few indices need it."""
        analyzer = sym.Analyzer()
        for var, domain in self._domains:
            analyzer.bind(var, domain)
        return analyzer


def affine_index(expr: Any, names: Names) -> AffineIndex:
    """``expr`` as an affine form of the axes in ``names``; inexact where it is none.

    Reshapes leave ``(j // 768 + i) % 128``, which is ``i`` within the ranges of the axes.
    """
    terms = _affine(expr, names.axes)
    if terms is None:
        terms = _affine(names.ranges.simplify(expr), names.axes)
    if terms is None:
        used = nodes_in(expr, tirx.Var)
        axes = dict.fromkeys(names.axes[v] for v in used if v in names.axes)
        return AffineIndex(tuple((axis, 1) for axis in axes), 0, is_exact=False)
    offset = terms.pop("", 0)
    return AffineIndex(tuple((axis, c) for axis, c in terms.items() if c), offset)


def _affine(expr: Any, names: dict[Any, str]) -> dict[str, int] | None:
    """Coefficients of an expression by axes, the constant by ``""``; ``None`` if not affine."""
    if isinstance(expr, tirx.IntImm):
        return {"": int(expr)}
    if isinstance(expr, tirx.Var):
        return {names[expr]: 1} if expr in names else None
    if isinstance(expr, tirx.Add | tirx.Sub):
        left, right = _affine(expr.a, names), _affine(expr.b, names)
        if left is None or right is None:
            return None
        sign = 1 if isinstance(expr, tirx.Add) else -1
        keys = dict.fromkeys([*left, *right])
        return {key: left.get(key, 0) + sign * right.get(key, 0) for key in keys}
    if isinstance(expr, tirx.Mul):
        left, right = _affine(expr.a, names), _affine(expr.b, names)
        if left is None or right is None:
            return None
        if left.keys() - {""}:
            left, right = right, left
        if left.keys() - {""}:
            return None
        return {axis: c * left.get("", 0) for axis, c in right.items()}
    return None


def operations_at(node: Any) -> int:
    """Floating-point operations of one node of an expression, without its operands."""
    if isinstance(node, tvm.ir.Call):
        return _COSTLY_CALLS.get(getattr(node.op, "name", "").removeprefix("tirx."), 1)
    if "float" not in str(getattr(node, "ty", "")):
        return 0
    if isinstance(node, tirx.Div) and not isinstance(node.b, tirx.FloatImm):
        return _QUOTIENT
    return int(isinstance(node, _BINARY))
