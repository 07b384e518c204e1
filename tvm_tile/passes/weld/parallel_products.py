"""Products of one left operand with weights, and what behind each treats columns one by one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx
from tvm_ffi import StructuralKey

from tvm_tile.graph.constant_tensors import elements_of
from tvm_tile.passes.weld.product_weights import ConstantMatrix, DecodedMatrix, Weights
from tvm_tile.tile.weld.side_by_side import Pointwise

_MATRIX = 2  # dimensions
_EACH = frozenset(
    f"relax.{name}"
    for name in (
        *("astype", "sigmoid", "tanh", "exp", "log", "erf", "negative", "abs", "sqrt", "rsqrt"),
        *("square", "nn.relu", "nn.leakyrelu", "nn.silu", "nn.gelu", "nn.gelu_tanh"),
    )
)
# The second operand that leaves the first one as it is: -0 + 0 would be 0.
_NEUTRAL = {"relax.add": -0.0, "relax.subtract": 0.0, "relax.multiply": 1.0, "relax.divide": 1.0}
_COMMUTATIVE = ("relax.add", "relax.multiply")
_MOVES = tuple(f"relax.{n}" for n in ("reshape", "permute_dims", "expand_dims", "squeeze"))


@dataclass(frozen=True, slots=True)
class Operation:
    """An operator behind a product that makes each element of the one in its place.

    Attributes:
        binding: the operator's binding.
        step: step that it takes with each element.
        constant: constant of its columns, one element or one each; ``None`` where it has none.
        is_moved: whether elements are elsewhere by then, behind reshapes and permutations.
    """

    binding: Any
    step: Pointwise
    constant: Any
    is_moved: bool

    def columns(self, count: int) -> Any:
        """The constant as an array of one element for each of ``count`` columns."""
        return np.broadcast_to(elements_of(self.constant).reshape(-1), (count,))


@dataclass(frozen=True, slots=True)
class ConstantProduct:
    """A product of a value with constant weights, or with what is decoded of constant codes.

    Attributes:
        binding: the product's binding.
        weights: weights of the product.
        operations: operators behind it, in order, as far as nothing else reads the values between
            them.
    """

    binding: Any
    weights: Weights
    operations: tuple[Operation, ...]

    @property
    def columns(self) -> int:
        """Columns of the product."""
        return self.weights.columns


def parallel_products(block: relax.DataflowBlock, mod: tvm.IRModule) -> list[list[ConstantProduct]]:
    """Groups of products of the same value, added up alike, in the order of the program.

    Left alone are products whose shape is not known, of vectors, with constants that are no
    matrices, with weights of another type than the value's, and with a matrix of codes that is not
    transposed first.

    Args:
        block: block that has the products.
        mod: module that has the functions that decode.
    """
    makers = {binding.var: binding.value for binding in block.bindings}
    readers = _readers(block.bindings)
    groups: dict[Any, list[ConstantProduct]] = {}
    for binding in block.bindings:
        weights = _weights(binding.value, makers, mod)
        if weights is None:
            continue
        operations = _operations(binding, int(binding.var.ty.shape[-1]), readers)
        product = ConstantProduct(binding, weights, tuple(operations))
        groups.setdefault(_kind(binding.value), []).append(product)
    return [group for group in groups.values() if len(group) > 1]


def _readers(bindings: Sequence[Any]) -> dict[Any, list[Any]]:
    """Variable -> bindings that read it."""
    readers: dict[Any, list[Any]] = {binding.var: [] for binding in bindings}
    for binding in bindings:
        for var in relax.analysis.free_vars(binding.value):
            readers.setdefault(var, []).append(binding)
    return readers


def _kind(call: relax.Call) -> Any:
    """A key of a product: equal for products that can become one."""
    return call.args[0], str(call.ty.dtype), StructuralKey(call.attrs)


def _weights(value: Any, makers: Mapping[Any, Any], mod: tvm.IRModule) -> Weights | None:
    """Weights of a product; ``None`` where it is left alone."""
    if not _is_call(value, "relax.matmul") or not is_static(value.ty):
        return None
    left, right = value.args
    made: Any = makers.get(right)
    is_turned = _is_call(made, "relax.permute_dims")
    weights = made.args[0] if is_turned else right
    is_of_value = isinstance(left, relax.Var) and left.ty.ndim >= _MATRIX
    if not is_of_value or weights.ty.ndim != _MATRIX or weights.ty.dtype != left.ty.dtype:
        return None
    if is_turned and made.attrs.axes is not None and int(made.attrs.axes[0]) % _MATRIX == 0:
        return None  # permuted to what it is
    if isinstance(weights, tvm.ir.Constant):
        return ConstantMatrix(weights, is_turned)
    return DecodedMatrix.of(makers.get(weights), mod) if is_turned else None


def _operations(product: Any, columns: int, readers: dict[Any, list[Any]]) -> list[Operation]:
    """The operators behind a product, as far as each value is read by the next one only."""
    operations = []
    last, is_moved = product, False
    while isinstance(last.var, relax.DataflowVar) and len(readers[last.var]) == 1:
        value = last.var
        (last,) = readers[value]
        if _is_call(last.value, *_MOVES):
            is_moved = True
            continue
        found = _step(last.value, value, 1 if is_moved else columns)
        if found is None:
            break
        step, constant = found
        if is_moved and constant is None:
            break
        operations.append(Operation(last, step, constant, is_moved))
    return operations


def _step(call: Any, value: Any, columns: int) -> tuple[Pointwise, Any] | None:
    """The operation of a call on each element of ``value``, and the constant it takes."""
    name = getattr(call.op, "name", "") if isinstance(call, relax.Call) else ""
    attributes = None if name not in _EACH or call.attrs is None else StructuralKey(call.attrs)
    if name in _EACH and len(call.args) == 1:
        return Pointwise((name, attributes)), None
    if name not in _NEUTRAL:
        return None
    first, second = call.args
    if name in _COMMUTATIVE and isinstance(first, tvm.ir.Constant):
        first, second = second, first
    if not value.same_as(first) or not _is_of_columns(second, value.ty.ndim, columns):
        return None
    return Pointwise(name, _NEUTRAL[name]), second


def _is_of_columns(constant: Any, most_dimensions: int, columns: int) -> bool:
    """Whether a constant has one element, or one for each column."""
    if not isinstance(constant, tvm.ir.Constant) or constant.ty.ndim > most_dimensions:
        return False
    shape = [int(extent) for extent in constant.ty.shape]
    return math.prod(shape) == 1 or math.prod(shape) == columns == shape[-1]


def is_static(ty: Any) -> bool:
    """Whether a value is a tensor of known shape, or a tuple of them."""
    if isinstance(ty, relax.TupleType):
        return all(map(is_static, ty.fields))
    if not isinstance(ty, relax.TensorType) or not isinstance(ty.shape, relax.ShapeExpr):
        return False
    return all(isinstance(extent, tirx.IntImm) for extent in ty.shape)


def _is_call(value: Any, *names: str) -> bool:
    """Whether a value is a call of one of these operators."""
    return isinstance(value, relax.Call) and getattr(value.op, "name", "") in names
