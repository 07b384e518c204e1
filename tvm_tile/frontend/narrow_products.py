"""Products of 8-bit codes that models decode first, in the 8 bits that matrix units take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

from tvm_tile.frontend.evaluate import KnownValues, broadcast_shape, static_shape
from tvm_tile.frontend.factors import HALVES, Factor, Reader, dtype_of, name_of
from tvm_tile.frontend.fold import folded
from tvm_tile.graph.eight_bits import FLOATS, NOTHING, Span, dtype_for, span_of, sums_fit

_MATRIX = 2  # dimensions
_CONVOLUTIONS = {f"nn.conv{rank}d": getattr(op.nn, f"conv{rank}d") for rank in (1, 2, 3)}


def narrow_products(mod: tvm.IRModule, matrix_dtypes: frozenset[str] = frozenset()) -> tvm.IRModule:
    """Multiply codes, and scale the sums.

    before: ``matmul((x - zero_x) * scale_x, (w - zero_w) * scale_w)``, in float32
    after:  ``astype(matmul(x, w, out_dtype="int32") - zero_x * sum(w - zero_w) - zero_w * sum(x),
            "float32") * (scale_x * scale_w)``

    Where the weights are constants, a zero point of theirs is taken off at once if the differences
    have 8 bits, and what is left of the corrections is known. The scales must be the same along
    the sum. Convolutions are treated likewise: their border is of zero points.

    The results are at least as exact as those of the model's own order: sums of integers are exact
    as long as 32 bits hold them, which is required, so that there are three roundings in all (of
    the sum, the scales' product, the result) where the model has three for each term and one for
    each addition. Products that are 32-bit integers wrap around as before. Where a model rounds
    scaled numbers to half precision on their way to a product of that precision, these roundings
    are left out. Scales that are known at run time only are taken for finite.

    Products of 8-bit floats that no matrix unit takes become those of half precision, in which all
    such numbers are, and whose products are exact in float32.

    Args:
        mod: Relax operators.
        matrix_dtypes: what the device's matrix units multiply. Products of half precision, which
            they would multiply as well, are narrowed to codes of these types only; so are those
            of 8-bit floats, whose sums some units keep in fewer bits than float32 has.

    Returns:
        The module; the very one where nothing is to be narrowed.
    """
    rewriter = _Rewriter(mod, matrix_dtypes)
    narrowed = folded(mod, rewriter)
    return narrowed if rewriter.is_changed else mod


@dataclass(frozen=True, slots=True)
class _Product:
    """A product as it is to be computed, whatever it is of.

    Attributes:
        left, right: its operands.
        depth: how many products a sum has.
        dtype: of the result.
    """

    left: Factor
    right: Factor
    depth: int
    dtype: str


@relax.expr_functor.mutator
class _Rewriter(relax.PyExprMutator):
    def __init__(self, mod: tvm.IRModule, matrix_dtypes: frozenset[str]) -> None:
        super().__init__(mod)
        self.is_changed = False
        self._matrix_dtypes = matrix_dtypes
        self._constants = KnownValues(self._made)
        self._reader = Reader(self.builder_, self._constants, set())

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        ty = call.ty
        call = self.visit_expr_post_order(call)
        name = name_of(call)
        if name != "matmul" and name not in _CONVOLUTIONS:
            return call
        product = self._product(call, ty)
        if product is None:
            return self._widened(call, ty)
        narrow = self._matmul if name == "matmul" else self._convolution
        narrowed = narrow(call, product)
        self.is_changed |= narrowed is not None
        return call if narrowed is None else narrowed

    def _widened(self, call: relax.Call, ty: Any) -> relax.Call:
        """A product of 8-bit floats that no unit takes, as one of halves; else the call itself."""
        kinds = {dtype_of(own) for own in call.args}
        is_taken = kinds <= self._matrix_dtypes or not kinds <= {*FLOATS}
        if is_taken or name_of(call) != "matmul" or str(ty.dtype) != "float32":
            return call
        self.is_changed = True
        x, w = (self._emit(op.astype(own, "float16")) for own in call.args)
        return op.matmul(x, w, out_dtype="float32")

    def _made(self, value: Any) -> Any:
        """The expression that a variable is bound to."""
        found = self.lookup_binding(value) if isinstance(value, relax.Var) else value
        return value if found is None else found

    def _product(self, call: relax.Call, ty: Any) -> _Product | None:
        """The operands of a call, if both are made of codes that are to be multiplied."""
        x, w = call.args
        if min(operand.ty.ndim for operand in (x, w)) < _MATRIX:
            return None
        left, right = (self._reader.factor(operand) for operand in (x, w))
        if left is None or right is None:
            return None
        if left.codes.same_as(x) and right.codes.same_as(w):
            return None  # it is one of codes
        dtype = str(ty.dtype)
        if not self._is_allowed(left, right, dtype):
            return None
        return _Product(self._left(left), self._right(right), _depth(call), dtype)

    def _is_allowed(self, left: Factor, right: Factor, dtype: str) -> bool:
        """Whether a product of this type may be one of codes; see :func:`narrow_products`."""
        kinds = {left.is_integer, right.is_integer}
        is_scaled = bool(left.scales or right.scales)
        if dtype == "int32":
            return kinds == {True} and not is_scaled
        is_rounded = left.is_rounded or right.is_rounded
        if dtype in HALVES:
            codes = {"int8"} if True in kinds else {dtype_of(f.codes) for f in (left, right)}
            return len(kinds) == 1 and codes <= self._matrix_dtypes
        return dtype == "float32" and kinds == {True} and not is_rounded

    def _right(self, factor: Factor) -> Factor:
        """A right operand: constants less their zero points, if 8 bits hold the differences."""
        codes, zero = self._constants.value(factor.codes), self._value_or_none(factor.zero)
        if codes is None or not factor.is_integer or (factor.zero is not None and zero is None):
            return self._left(self._without_zero(factor))
        values = codes.astype(np.int32) - (0 if zero is None else zero)
        dtype = dtype_for(_span(values))
        if dtype is None:
            return self._left(factor)
        own = replace(factor, codes=relax.const(values.astype(dtype)), zero=None, zeros=NOTHING)
        return self._left(own)

    def _left(self, factor: Factor) -> Factor:
        """An operand whose codes have a sign, if the matrix units take no others."""
        is_taken = "uint8" in self._matrix_dtypes or "int8" not in self._matrix_dtypes
        if is_taken or dtype_of(factor.codes) != "uint8":
            return factor
        return self._shifted(factor, 128, "int8")

    def _without_zero(self, factor: Factor) -> Factor:
        """An operand without zero point, if that is one number, known, and 8 bits hold the
        differences from it."""
        zero = self._value_or_none(factor.zero)
        if zero is None or zero.size != 1:
            return factor
        dtype = dtype_for(span_of(dtype_of(factor.codes)).less(factor.zeros))
        return factor if dtype is None else self._shifted(factor, int(zero), dtype)

    def _shifted(self, factor: Factor, shift: int, dtype: str) -> Factor:
        """The same numbers by other codes, less by ``shift``; so is their zero point."""
        number = relax.const(np.int32(shift))
        codes = self._emit(op.subtract(self._emit(op.astype(factor.codes, "int32")), number))
        codes = self._emit(op.astype(codes, dtype))
        zeros = factor.zeros.less(Span(shift, shift))
        if zeros == NOTHING:
            return replace(factor, codes=codes, zero=None, zeros=NOTHING)
        zero = relax.const(np.int32(0)) if factor.zero is None else factor.zero
        return replace(factor, codes=codes, zero=self._emit(op.subtract(zero, number)), zeros=zeros)

    def _fits(self, product: _Product) -> bool:
        """Whether all sums that are to be integers are right in 32 bits."""
        left, right = product.left, product.right
        if product.dtype == "int32" or not left.is_integer:
            return True
        spans = [self._span_of(factor) for factor in (left, right)]
        real = [own.less(factor.zeros) for own, factor in zip(spans, (left, right), strict=True)]
        return sums_fit(product.depth, *spans) and sums_fit(product.depth, *real)

    def _span_of(self, factor: Factor) -> Span:
        """Where an operand's codes lie."""
        known = self._constants.value(factor.codes)
        return span_of(dtype_of(factor.codes)) if known is None else _span(known)

    def _matmul(self, call: relax.Call, product: _Product) -> relax.Expr | None:
        if self._constants.value(product.right.codes) is None:
            product = replace(product, left=self._without_zero(product.left))
        left, right = product.left, product.right
        along = [_is_same_along(own, 1) for own in left.parameters]
        along += [_is_same_along(own, _MATRIX) for own in right.parameters]
        if not all(along) or not self._fits(product):
            return None
        total = op.matmul(left.codes, right.codes, out_dtype=_sum_dtype(left))
        if left.zero is not None:
            sums = self._sum(right.codes, [-2])
            if right.zero is not None:
                whole = op.multiply(right.zero, relax.const(np.int32(product.depth)))
                sums = self._emit(op.subtract(sums, self._emit(whole)))
            total = op.subtract(self._emit(total), self._emit(op.multiply(left.zero, sums)))
        if right.zero is not None:
            sums = self._sum(left.codes, [-1])
            total = op.subtract(self._emit(total), self._emit(op.multiply(sums, right.zero)))
        return self._scaled(total, left.scales, right.scales, product.dtype)

    def _convolution(self, call: relax.Call, product: _Product) -> relax.Expr | None:
        left, right, attrs = product.left, product.right, call.attrs
        padding = [int(extent) for extent in attrs.padding]
        if left.zero is not None and any(padding):
            left = self._without_zero(left)
        product = replace(product, left=left)
        channel = str(attrs.kernel_layout).index("O")
        rows = [self._along_channels(own, call, channel) for own in right.scales]
        is_one = all(own.ty.ndim == 0 for own in left.parameters)
        if right.zero is not None or not is_one or None in rows or not self._fits(product):
            return None
        codes = left.codes
        if left.zero is not None and any(padding):
            zero = self._constants.value(left.zero)
            if zero is None:
                return None
            codes = self._emit(_bordered(codes, padding, str(attrs.data_layout), int(zero)))
            padding = [0] * len(padding)
        total = _CONVOLUTIONS[name_of(call)](
            codes,
            right.codes,
            strides=attrs.strides,
            padding=padding,
            dilation=attrs.dilation,
            groups=attrs.groups,
            data_layout=attrs.data_layout,
            kernel_layout=attrs.kernel_layout,
            out_layout=attrs.out_layout,
            out_dtype=_sum_dtype(left),
        )
        if left.zero is not None:
            axes = [axis for axis in range(right.codes.ty.ndim) if axis != channel]
            sums = self._along_channels(self._sum(right.codes, axes), call, channel)
            total = op.subtract(self._emit(total), self._emit(op.multiply(left.zero, sums)))
        return self._scaled(total, left.scales, rows, product.dtype)

    def _scaled(
        self, total: Any, left: Sequence[Any], right: Sequence[Any], dtype: str
    ) -> relax.Expr | None:
        """Sums as the numbers that they stand for.

        Returns:
            ``None`` where a product of known scales is no number of float32's full precision.
        """
        if dtype == "int32":
            return total
        known, others = self._known_scales([*left, *right])
        numbers = self._emit(op.astype(self._emit(total), "float32"))
        for scale in known:
            if not _is_normal(scale):
                return None
            numbers = self._emit(op.multiply(numbers, relax.const(scale.astype(np.float32))))
        for scale in others:
            numbers = self._emit(op.multiply(numbers, scale))
        return op.astype(numbers, dtype) if dtype != "float32" else numbers

    def _known_scales(self, scales: Sequence[Any]) -> tuple[list[np.ndarray], list[Any]]:
        """What is known of some scales, multiplied while that makes no larger tensor, as float64;
        and the other ones."""
        known: list[np.ndarray] = []
        others = []
        for scale in scales:
            array = self._constants.value(scale)
            if array is None:
                others.append(scale)
                continue
            wide = array.astype(np.float64)
            if known and max(known[-1].size, wide.size) == (known[-1] * wide).size:
                known[-1] = known[-1] * wide
            else:
                known.append(wide)
        return known, others

    def _along_channels(self, vector: Any, call: relax.Call, channel: int) -> Any | None:
        """What weights have for each channel of the result, as that has it; ``None`` where it is
        not the same for all elements of a channel."""
        if not vector.ty.ndim:
            return vector
        wide = broadcast_shape(vector.ty, call.args[1].ty.ndim)
        if any(extent != 1 for axis, extent in enumerate(wide) if axis != channel):
            return None
        layout = str(call.attrs.out_layout) or str(call.attrs.data_layout)
        new = [wide[channel] if letter == "C" else 1 for letter in layout]
        return self._emit(op.reshape(vector, new))

    def _sum(self, codes: Any, axes: Sequence[int]) -> Any:
        """Sums of codes along some axes, which are kept."""
        values = self._constants.value(codes)
        if values is not None:
            return relax.const(values.sum(tuple(axes), dtype=np.int32, keepdims=True))
        return self._emit(op.sum(self._emit(op.astype(codes, "int32")), list(axes), keepdims=True))

    def _value_or_none(self, value: Any | None) -> np.ndarray | None:
        return None if value is None else self._constants.value(value)

    def _emit(self, call: Any) -> Any:
        """A value as a variable, or as a constant if it is known."""
        var = self.builder_.emit(call)
        known = self._constants.value(var)
        return var if known is None else relax.const(known)


def _depth(call: relax.Call) -> int:
    """How many products a sum of a product, or of a convolution, has."""
    shape = broadcast_shape(call.args[1].ty, 0)
    if name_of(call) == "matmul":
        return shape[-2]
    return math.prod(shape) // shape[str(call.attrs.kernel_layout).index("O")]


def _sum_dtype(factor: Factor) -> str:
    return "int32" if factor.is_integer else "float32"


def _is_same_along(value: Any, axis: int) -> bool:
    """Whether a value, broadcast, is the same all along an axis, counted from the last, from 1."""
    shape = static_shape(value.ty)
    return shape is not None and (len(shape) < axis or shape[-axis] == 1)


def _is_normal(scale: np.ndarray) -> bool:
    """Whether float32 has all the numbers in full precision, or they are 0."""
    limits = np.finfo(np.float32)
    size = np.abs(scale)
    return bool(np.all((size <= limits.max) & ((size >= limits.tiny) | (size == 0))))


def _bordered(codes: Any, padding: Sequence[int], layout: str, zero: int) -> relax.Call:
    """An image with a border of zero points."""
    begins, ends = padding[: len(padding) // 2], padding[len(padding) // 2 :]
    borders = iter(zip(begins, ends, strict=True))
    widths = [next(borders) if letter not in "NC" else (0, 0) for letter in layout]
    return op.nn.pad(codes, [extent for pair in widths for extent in pair], pad_value=float(zero))


def _span(values: np.ndarray) -> Span:
    return Span(int(values.min()), int(values.max())) if values.size else NOTHING
