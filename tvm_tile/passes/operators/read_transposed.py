"""Products read their operands as they lie in memory, not through a transposed copy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import ir, relax, te
from tvm.relax.expr_functor import PyExprVisitor, mutator, visitor
from tvm_ffi import StructuralKey

from tvm_tile.frontend.evaluate import static_shape
from tvm_tile.frontend.fold import folded
from tvm_tile.frontend.transposed_weights import transposition_source
from tvm_tile.graph.constant_tensors import transposed
from tvm_tile.passes.ir.rewriter import ModuleRewriter
from tvm_tile.tile.few_rows.weight_layout import is_of_few_rows

_MATRIX = 2  # dimensions
_ARGUMENTS = 2  # of a call whose function takes tensors alone


@tvm.transform.module_pass(opt_level=0, name="ReadTransposed")
@dataclass(frozen=True, slots=True)
class ReadTransposed:
    """Products of transposed operands, as in linear layers and attention.

    before: ``wt = permute_dims(w); y = matmul(x, wt)``
    after:  ``y[i, j] = sum(x[i, k] * w[j, k])``

    Constants, too, are read as they are stored where the product is of few rows, which
    :class:`~tvm_tile.passes.LayOutWeights` may change, or where others read them as they are
    stored: so they are stored once. Other constants are transposed here. So are weights in
    ``dtypes_by_depth``, the other way: their summed axis becomes the contiguous one. (TVM's own
    FuseTransposeMatmul knows the second operand only, and fails where both are the same tensor.)
    As they are stored stay those of ``multiplied`` types, too, whose product's halves are taken
    apart: so matrix units multiply columns of both halves side by side.

    Args:
        dtypes_by_depth: types that matrix units multiply only, or best, where the summed axis is
            contiguous.
        as_stored: whether all constants are read as they are stored.
        multiplied: types that matrix units multiply.
    """

    dtypes_by_depth: frozenset[str] = frozenset()
    as_stored: bool = False
    multiplied: frozenset[str] = frozenset()

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        readers = _Readers.of(mod, self.multiplied)
        return folded(mod, _TransposedReading(mod, readers, self.dtypes_by_depth, self.as_stored))


@mutator
class _TransposedReading(ModuleRewriter):
    def __init__(
        self,
        mod: tvm.IRModule,
        readers: _Readers,
        dtypes_by_depth: frozenset[str],
        as_stored: bool,
    ) -> None:
        super().__init__(mod)
        self._dtypes_by_depth, self._as_stored = dtypes_by_depth, as_stored
        self._readers = readers
        self._turned: dict[Any, relax.Expr] = {}  # weights -> these, transposed
        self._made: dict[Any, relax.Call] = {}  # kind of a product -> a call of its loops

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        if not _is_product(call):
            return call
        left, right = call.args
        sources = [self._source(left), self._source(right)]
        if isinstance(sources[0], ir.Constant):
            sources[0] = None
        if isinstance(sources[1], ir.Constant) and not self._stays(call, sources[1]):
            sources[1], right = None, self._transposed(sources[1])
        elif self._is_by_depth(right):
            sources[1] = self._transposed(right)
        if all(source is None for source in sources):
            return relax.Call(call.op, [left, right], call.attrs)
        dtype = str(call.ty.dtype)
        operands = [o if s is None else s for s, o in zip(sources, (left, right), strict=True)]
        transposed = [source is not None for source in sources]

        def product(a: te.Tensor, b: te.Tensor) -> te.Tensor:
            return product_of(a, b, transposed, dtype)

        # The layers of a model are alike.
        kind = dtype, *transposed, *(StructuralKey(own.ty) for own in operands)
        made = self._made.get(kind)
        if made is None or operands[0].same_as(operands[1]):
            made = self.builder_.call_te(product, *operands, primfunc_name_hint="matmul")
            if len(made.args) == _ARGUMENTS and not operands[0].same_as(operands[1]):
                self._made[kind] = made
            return made
        arguments = [made.args[0], relax.Tuple(operands)]
        return relax.Call(made.op, arguments, made.attrs, made.ty_args)

    def _source(self, operand: relax.Expr) -> relax.Expr | None:
        """Value whose transposition ``operand`` is, its last two axes exchanged."""
        return transposition_source(self.made(operand))

    def _stays(self, call: relax.Call, weights: Any) -> bool:
        """Whether transposed weights are read as they are stored."""
        is_by_depth = str(weights.ty.dtype) in self._dtypes_by_depth
        is_few = is_of_few_rows(static_shape(call.ty))
        return self._as_stored or is_by_depth or is_few or weights in self._readers.constants

    def _is_by_depth(self, weights: relax.Expr) -> bool:
        """Whether weights are a constant that is of use with its last two axes exchanged."""
        return isinstance(weights, ir.Constant) and str(weights.ty.dtype) in self._dtypes_by_depth

    def _transposed(self, weights: Any) -> relax.Expr:
        """The constant with its last two axes exchanged, made once."""
        if weights not in self._turned:
            self._turned[weights] = transposed(weights)
        return self._turned[weights]


@visitor
class _Readers(PyExprVisitor):
    """Finds the constants that are read as they are stored.

    Those are all but weights that only products of many rows read, transposed, and whole.
    """

    def __init__(self, multiplied: frozenset[str]) -> None:
        self.constants: set[Any] = set()
        self._multiplied = multiplied
        self._made: dict[Any, Any] = {}
        self._transposed: dict[Any, Any] = {}  # variable -> the constant that it is made of

    @classmethod
    def of(cls, mod: tvm.IRModule, multiplied: frozenset[str]) -> _Readers:
        """Find the readers in all Relax functions of a module."""
        readers = cls(multiplied)
        for func in mod.functions.values():
            if isinstance(func, relax.Function):
                readers.visit_expr(func)
        return readers

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        source = transposition_source(binding.value)
        self._made[binding.var] = binding.value
        if isinstance(source, ir.Constant):
            self._transposed[binding.var] = source
        else:
            super().visit_var_binding_(binding)

    def visit_call_(self, call: relax.Call) -> None:
        super().visit_call_(call)
        weights = self._transposed.get(call.args[-1]) if _is_product(call) else None
        if weights is not None and is_of_few_rows(static_shape(call.ty)):
            self.constants.add(weights)
        if _is_half(call):
            weights = self._weights_behind(call.args[0])
            if weights is not None and str(weights.ty.dtype) in self._multiplied:
                self.constants.add(weights)

    def _weights_behind(self, value: Any) -> Any:
        """Weights whose product a value is, perhaps cast and with a bias."""
        made = self._made.get(value)
        while isinstance(made, relax.Call) and not _is_product(made):
            if str(getattr(made.op, "name", "")) not in ("relax.add", "relax.astype"):
                return None
            made = next((self._made[own] for own in made.args if own in self._made), None)
        return self._transposed.get(made.args[-1]) if isinstance(made, relax.Call) else None

    def visit_generic_const_(self, constant: Any) -> None:
        self.constants.add(constant)


def _is_product(call: relax.Call) -> bool:
    """Whether a call is a product of matrices."""
    is_product = call.op == ir.Op.get("relax.matmul")
    return bool(is_product and min(operand.ty.ndim for operand in call.args) >= _MATRIX)


def _is_half(call: relax.Call) -> bool:
    """Whether a call takes half of the columns of a tensor."""
    if call.op != ir.Op.get("relax.strided_slice"):
        return False
    whole, part = static_shape(call.args[0].ty), static_shape(call.ty)
    if not whole or not part:
        return False
    return whole[-1] == 2 * part[-1] and whole[:-1] == part[:-1]


def product_of(a: te.Tensor, b: te.Tensor, transposed: Sequence[bool], dtype: str) -> te.Tensor:
    """The product over the last two axes; axes before these broadcast. Adds up in ``dtype``.

    Args:
        a: (..., rows, depth).
        b: (..., depth, columns).
        transposed: whether the last two axes of each are exchanged.
        dtype: type of the product.
    """
    rows, depth = (a.shape[-1], a.shape[-2]) if transposed[0] else (a.shape[-2], a.shape[-1])
    columns = b.shape[-2] if transposed[1] else b.shape[-1]
    rank = max(len(a.shape), len(b.shape))
    batch = [_broadcast(a.shape, b.shape, rank - axis) for axis in range(rank - 2)]
    k = te.reduce_axis((0, depth), "k")

    def element(*index: Any) -> te.PrimExpr:
        *outer, i, j = index
        x = (k, i) if transposed[0] else (i, k)
        w = (j, k) if transposed[1] else (k, j)
        left, right = a(*_within(a.shape, outer), *x), b(*_within(b.shape, outer), *w)
        return te.sum(left.astype(dtype) * right.astype(dtype), axis=k)

    return te.compute([*batch, rows, columns], element, name="matmul")


def _broadcast(first: Sequence[Any], second: Sequence[Any], from_end: int) -> Any:
    """Extent of an axis, counted from the end, that both shapes broadcast to."""
    extents = [shape[-from_end] for shape in (first, second) if len(shape) >= from_end]
    return next((extent for extent in extents if not _is_one(extent)), extents[0])


def _within(shape: Sequence[Any], outer: Sequence[Any]) -> list[Any]:
    """Indices of the leading axes: those of the result, or 0 where an axis of one is repeated."""
    own = len(shape) - 2
    indices = outer[len(outer) - own :]
    return [0 if _is_one(extent) else i for extent, i in zip(shape, indices, strict=False)]


def _is_one(extent: Any) -> bool:
    """Whether an extent is known to be 1."""
    return isinstance(extent, tvm.tirx.IntImm) and int(extent) == 1
