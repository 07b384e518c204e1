"""Relax operators as :mod:`tvm_tile.tile.weld.gate_groups` knows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, tirx
from tvm_ffi import StructuralKey

from tvm_tile.frontend.transposed_weights import is_transposition
from tvm_tile.tile.few_rows.gates import MOST_VECTORS
from tvm_tile.tile.weld.gate_groups import Role

_MATRIX = 2  # dimensions
_EACH = frozenset(
    f"relax.{name}"
    for name in (
        *("add", "subtract", "multiply", "divide", "maximum", "minimum", "power"),
        *("sigmoid", "tanh", "exp", "log", "erf", "negative", "abs", "sqrt", "rsqrt", "square"),
        *("clip", "astype", "nn.relu", "nn.leakyrelu", "nn.silu", "nn.gelu", "nn.gelu_tanh"),
    )
)
_DTYPES = frozenset({"float32", "float16", "bfloat16"})


@dataclass(slots=True)
class Statement:
    """A binding; or that of a tuple of parts, with those of its parts.

    Attributes:
        role: role in a group.
        bindings: itself, and the parts.
        operands: numbers of the statements above it whose values it takes.
        readers: variable that it binds -> numbers of the statements that read it.
        transposed: constant whose transposition a product multiplies with; ``None`` where its
            weights are a constant themselves.
    """

    role: Role
    bindings: list[relax.Binding]
    operands: tuple[int, ...]
    readers: dict[Any, list[int]]
    transposed: Any = None

    def reads(self, number: int) -> Sequence[Any]:
        """Tensors that binding ``number`` reads, or the one tuple that it takes an element of."""
        value = self.bindings[number].value
        if isinstance(value, relax.TupleGetItem):
            return [value.tuple_value]
        if self.transposed is not None:
            return [value.args[0], self.transposed]
        # What is no tensor tells how, not of what.
        return [o for o in value.args if isinstance(o.ty, relax.TensorType | relax.TupleType)
                and isinstance(o, relax.Var | tvm.ir.Constant)]  # fmt: skip

    def described(self, number: int) -> Any:
        """A key of what one of the bindings does: equal for equal operators."""
        value = self.bindings[number].value
        if isinstance(value, relax.TupleGetItem):
            return int(value.index)
        reads = value.args if self.role is Role.PRODUCT else self.reads(number)
        rest = [o for o in value.args if not any(o.same_as(read) for read in reads)]
        attrs = None if value.attrs is None else StructuralKey(value.attrs)
        return str(value.op.name), attrs, tuple(StructuralKey(o) for o in rest)

    def again(self, number: int, operands: Sequence[Any]) -> relax.Expr:
        """The statement's expression, of other operands."""
        value = self.bindings[number].value
        if isinstance(value, relax.TupleGetItem):
            return relax.TupleGetItem(operands[0], int(value.index))
        given = iter(operands)
        reads = self.reads(number)
        args = [next(given) if any(o.same_as(r) for r in reads) else o for o in value.args]
        return relax.Call(value.op, args, value.attrs)


def read_statements(block: relax.DataflowBlock) -> list[Statement]:
    """All bindings of a dataflow block, in its order."""
    statements: list[Statement] = []
    maker: dict[Any, int] = {}
    transposed = {
        binding.var: binding.value.args[0]
        for binding in block.bindings
        if is_transposition(binding.value) and isinstance(binding.value.args[0], tvm.ir.Constant)
    }
    for binding in block.bindings:
        free = [var for var in relax.analysis.free_vars(binding.value) if var in maker]
        value, number = binding.value, len(statements)
        whole = maker.get(value.tuple_value) if isinstance(value, relax.TupleGetItem) else None
        if whole is not None and statements[whole].role is Role.PART:
            statements[whole].bindings.append(binding)
            statements[whole].readers[binding.var] = []
            maker[binding.var] = whole
            continue
        for var in free:
            statements[maker[var]].readers[var].append(number)
        operands = tuple(dict.fromkeys(maker[var] for var in free))
        role, weights = _role(value, transposed), None
        if role is Role.PRODUCT:
            weights = transposed.get(value.args[1])
        statements.append(Statement(role, [binding], operands, {binding.var: []}, weights))
        maker[binding.var] = number
    return statements


def _role(value: Any, transposed: Mapping[Any, Any]) -> Role:
    """The role of what stands on the right of a binding; some values are weights, transposed."""
    name = getattr(value.op, "name", "") if isinstance(value, relax.Call) else ""
    if name == "relax.matmul":
        return Role.PRODUCT if _is_of_few_rows(value, transposed) else Role.OTHER
    if name in ("relax.split", "relax.strided_slice"):
        return Role.PART if _is_by_columns(name, value) else Role.OTHER
    few = name in _EACH and _extents(value.ty)
    return Role.EACH if few and few[0] <= MOST_VECTORS else Role.OTHER


def _extents(ty: Any) -> tuple[int, ...]:
    """Extents of a matrix of known shape; none of any other value."""
    if not isinstance(ty, relax.TensorType) or ty.shape is None or ty.ndim != _MATRIX:
        return ()
    if not all(isinstance(extent, tirx.IntImm) for extent in ty.shape):
        return ()
    return tuple(int(extent) for extent in ty.shape)


def _is_of_few_rows(call: relax.Call, transposed: Mapping[Any, Any]) -> bool:
    """Whether a call multiplies a matrix of few rows by constant weights, summed in float32."""
    left, right = call.args
    rows = _extents(left.ty)
    is_weight = isinstance(right, tvm.ir.Constant) or right in transposed
    if isinstance(left, tvm.ir.Constant) or not is_weight:
        return False
    if not rows or not _extents(right.ty) or str(call.ty.dtype) != "float32":
        return False
    return rows[0] <= MOST_VECTORS and str(left.ty.dtype) == str(right.ty.dtype) in _DTYPES


def _is_by_columns(name: str, call: relax.Call) -> bool:
    """Whether a call takes columns of a matrix, as they are."""
    rows = _extents(call.args[0].ty)
    if not rows or rows[0] > MOST_VECTORS:
        return False
    last = _MATRIX - 1
    if name == "relax.split":
        return int(call.attrs.axis) % _MATRIX == last
    axes, _, _, *strides = call.args[1:]
    if not all(isinstance(tuple_, relax.Tuple) for tuple_ in (axes, *strides)):
        return False
    known = [int(axis) % _MATRIX for axis in axes.fields]
    return known == [last] and all(int(s) == 1 for own in strides for s in own.fields)
