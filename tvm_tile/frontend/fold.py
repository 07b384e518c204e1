"""Compute what constants alone decide, once, in NumPy.

TVM's own ``FoldConstant`` compiles machine code for every operator it folds: 9 s for ResNet-18,
where this takes milliseconds. The operators here are those that importers put on weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

import numpy as np
import tvm
from tvm import relax
from tvm_ffi import StructuralKey

from tvm_tile.frontend.evaluate import OF_NOTHING, evaluate, part_of_split, static_shape
from tvm_tile.frontend.transposed_weights import is_transposition, transposed_weights
from tvm_tile.graph.constant_tensors import elements_of
from tvm_tile.graph.functions import mutated

# What is made of nothing or spread is kept as an operator above this, if it is larger than its
# operands: a kernel needs not read it.
_SMALL_BYTES = 1 << 16
_IN_CACHE = 1 << 15  # elements
_SPREADING = frozenset(
    f"relax.{name}"
    for name in ("full", "full_like", "zeros", "arange", "broadcast_to", "matmul", "repeat", "tile")
)
_LARGE, _SPREAD = 1 << 22, 16  # elements, and elements for each of the operands


class Spreads(Protocol):
    """Which of the operators that make constants stay operators."""

    def keeps(self, is_large: bool) -> bool:
        """Whether the next one does, whose result is large or not."""
        ...


def is_large(made: int, given: int) -> bool:
    """Whether what is made of constants is better computed where it is used: a mask of indices,
    distances of positions.

    Args:
        made: its elements.
        given: elements of what it is made of.
    """
    return made >= max(_LARGE, _SPREAD * given)


class RecordedSpreads:
    """Lets all large results be kept, and notes each answer."""

    def __init__(self) -> None:
        self.answers: list[bool] = []

    def keeps(self, is_large: bool) -> bool:
        """Whether the next one is kept."""
        self.answers.append(is_large)
        return is_large


class ReplayedSpreads:
    """Answers as when the same model was imported with other extents."""

    def __init__(self, answers: Sequence[bool]) -> None:
        self._left = iter(answers)

    def keeps(self, is_large: bool) -> bool:
        """Whether the next one is kept."""
        return next(self._left, is_large)


_SPREADS: ContextVar[Spreads | None] = ContextVar("_SPREADS", default=None)


def keeps_spread(is_large: bool) -> bool:
    """Whether an operator that makes a constant stays one."""
    decides = _SPREADS.get()
    return is_large if decides is None else decides.keeps(is_large)


@contextmanager
def spreading_by(decides: Spreads) -> Iterator[None]:
    """Let something else decide meanwhile which of these operators stay."""
    token = _SPREADS.set(decides)
    try:
        yield
    finally:
        _SPREADS.reset(token)


def fold_constants(mod: tvm.IRModule) -> tvm.IRModule:
    """Replace operators on constants by their results, and batch norms by constants.

    A batch norm in inference mode whose statistics are constants becomes a multiplication and an
    addition; behind a convolution with constant weights the multiplication goes into them::

        batch_norm(conv2d(x, w), gamma, beta, mean, var)[0]   =>   conv2d(x, w') + b'

    Weights of products stay as they are stored, and their transposition an operator: how they are
    read is decided when it is known by what.

    Args:
        mod: Relax operators.

    Returns:
        The module without these operators and without unused ones.
    """
    return folded(mod, _Fold(mod))


def folded(mod: tvm.IRModule, mutator: Any) -> tvm.IRModule:
    """``mod`` with its Relax functions rewritten by a mutator of it, and without unused values."""
    passes = [relax.transform.CanonicalizeBindings(), relax.transform.DeadCodeElimination()]
    return tvm.transform.Sequential(passes)(mutated(mod, mutator))


@relax.expr_functor.mutator
class _Fold(relax.PyExprMutator):
    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self._known: dict[Any, relax.Expr] = {}
        self._kept = transposed_weights(mod)

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        ty, is_kept = call.ty, call in self._kept
        call = self.visit_expr_post_order(call)
        if is_kept:
            return call
        values = tuple(self._definition(argument) for argument in call.args)
        if not all(isinstance(value, tvm.ir.Constant) for value in values):
            return self._folded(call, ty)
        # Weights that a thousand steps transpose stay one tensor.
        key = call.op, values, StructuralKey(call.attrs)
        if key not in self._known:
            self._known[key] = self._folded(call, ty)
        folded = self._known[key]
        return call if isinstance(folded, relax.Call) else folded

    def _folded(self, call: relax.Call, ty: Any) -> relax.Expr:
        """The result as a constant, or ``call``."""
        name = getattr(call.op, "name", "")
        shape = static_shape(ty)
        tensors = [own for own in call.args if isinstance(own.ty, relax.TensorType)]
        is_known = name in OF_NOTHING or all(map(self._is_constant, tensors))
        if shape is None or not call.args or not is_known:
            return call  # weights are not read for nothing
        operands = [self._constant(argument) for argument in call.args]
        result = evaluate(name, call, operands, shape, str(ty.dtype))
        allowed = max(_SMALL_BYTES, sum(o.nbytes for o in operands if o is not None))
        if result is None or result.shape != shape:
            return call
        is_spread = is_large(result.size, sum(o.size for o in operands if o is not None))
        if keeps_spread(result.nbytes > allowed if name in _SPREADING else is_spread):
            return call
        if name == "relax.full_like" and operands[0] is None and result.size > 1:
            return call  # what is like a value of the model joins what it is computed with
        return _const(result, str(ty.dtype))

    def visit_tuple_getitem_(self, item: relax.TupleGetItem) -> relax.Expr:
        item = self.visit_expr_post_order(item)
        norm = self._definition(item.tuple_value)
        if _is_call(norm, "relax.split"):
            return self._part(norm, item)
        if item.index != 0 or not _is_call(norm, "relax.nn.batch_norm") or norm.attrs.training:
            return item
        statistics = [self._constant(argument) for argument in norm.args[1:]]
        if any(value is None for value in statistics):
            return item
        gamma, beta, mean, variance = (np.asarray(s, np.float64) for s in statistics)
        attrs = norm.attrs
        scale = (gamma if attrs.scale else 1.0) / np.sqrt(variance + float(attrs.epsilon))
        shift = (beta if attrs.center else 0.0) - mean * scale
        return self._scale_and_shift(norm.args[0], scale, shift, int(attrs.axis))

    def _part(self, split: relax.Call, item: relax.TupleGetItem) -> relax.Expr:
        """One of a constant's parts as a constant, or ``item``."""
        whole = self._constant(split.args[0])
        if whole is None:
            return item
        key = self._definition(split.args[0]), StructuralKey(split.attrs), int(item.index)
        if key not in self._known:
            part = part_of_split(split, whole, item.index)
            self._known[key] = _const(part, str(split.args[0].ty.dtype))
        return self._known[key]

    def _scale_and_shift(
        self, data: relax.Expr, scale: np.ndarray, shift: np.ndarray, axis: int
    ) -> relax.Expr:
        dtype, rank = str(data.ty.dtype), int(data.ty.ndim)
        column = tuple(-1 if i == axis % rank else 1 for i in range(rank))
        convolution = self._definition(data)
        scaled = self._scale_weights(convolution, scale) if axis == 1 else None
        if scaled is None:
            scaled = relax.op.multiply(data, _const(scale.reshape(column), dtype))
        return relax.op.add(self.builder_.emit(scaled), _const(shift.reshape(column), dtype))

    def _scale_weights(self, convolution: Any, scale: np.ndarray) -> relax.Expr | None:
        """The convolution with its output channels scaled; ``None`` where that cannot be."""
        if not _is_call(convolution, "relax.nn.conv1d", "relax.nn.conv2d", "relax.nn.conv3d"):
            return None
        weights = self._constant(convolution.args[1])
        if weights is None or not str(convolution.attrs.kernel_layout).startswith("OI"):
            return None
        folded = _const(_scaled(weights, scale), str(convolution.args[1].ty.dtype))
        # The unscaled convolution stays for other readers; without any it is dead code.
        return relax.Call(convolution.op, [convolution.args[0], folded], convolution.attrs)

    def _definition(self, value: relax.Expr) -> Any:
        return self.lookup_binding(value) if isinstance(value, relax.Var) else value

    def _constant(self, value: relax.Expr) -> np.ndarray | None:
        value = self._definition(value)
        if not self._is_constant(value):
            return None
        if is_transposition(value):  # one that is kept
            source = self._constant(value.args[0])
            return None if source is None else source.T
        return elements_of(value)

    def _is_constant(self, value: relax.Expr) -> bool:
        value = self._definition(value)
        if is_transposition(value):
            return self._is_constant(value.args[0])
        return isinstance(value, tvm.ir.GenericConst) and hasattr(value.value, "numpy")


def _scaled(weights: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Weights times a number for each of their rows, rounded once; some rows at a time, which stay
    in the processor's cache."""
    scaled = np.empty_like(weights, order="C")
    step = max(1, _IN_CACHE // max(1, weights[:1].size))
    for start in range(0, len(weights), step):
        rows = slice(start, start + step)
        column = scale[rows].reshape(-1, *(1,) * (weights.ndim - 1))
        scaled[rows] = weights[rows].astype(np.float64) * column
    return scaled


def _is_call(value: Any, *names: str) -> bool:
    return isinstance(value, relax.Call) and getattr(value.op, "name", "") in names


def _const(value: np.ndarray, dtype: str) -> Any:
    return relax.const(np.asarray(value, order="C"), dtype)
