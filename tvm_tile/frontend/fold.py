"""Compute what constants alone decide, once, in NumPy.

TVM's own ``FoldConstant`` compiles machine code for every operator it folds: 9 s for ResNet-18,
where this takes milliseconds. The operators here are those that importers put on weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, Protocol

import numpy as np
import tvm
from tvm import relax
from tvm_ffi import StructuralKey

from tvm_tile.frontend.transposed_weights import is_transposition, transposed_weights
from tvm_tile.graph.functions import mutated

# What is made of nothing or spread is kept as an operator above this, if it is larger than its
# operands: a kernel needs not read it.
_SMALL_BYTES = 1 << 16
_SPREADING = frozenset(
    f"relax.{name}" for name in ("full", "zeros", "arange", "broadcast_to", "matmul")
)

Evaluate = Callable[..., np.ndarray]


class Spreads(Protocol):
    """Which of the operators that make constants stay operators."""

    def keeps(self, is_large: bool) -> bool:
        """Whether the next one does, whose result is large or not."""
        ...


class RecordedSpreads:
    """Those of large results; the answers are kept."""

    def __init__(self) -> None:
        self.answers: list[bool] = []

    def keeps(self, is_large: bool) -> bool:
        """Whether the next one is kept."""
        self.answers.append(is_large)
        return is_large


class ReplayedSpreads:
    """Those that did when the same model was imported with other extents."""

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


_RESHAPES = ("reshape", "expand_dims", "squeeze", "flatten")
_UNARY: dict[str, Evaluate] = {
    "negative": np.negative,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "exp": np.exp,
    "abs": np.abs,
    "logical_not": np.logical_not,
}
_BINARY: dict[str, Evaluate] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "mod": np.fmod,
    "floor_mod": np.mod,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
}
# TVM's modes of "take" -> NumPy's.
_PICKS: dict[str, Literal["wrap", "clip"]] = {"wrap": "wrap", "clip": "clip", "fast": "clip"}
_ELEMENTWISE = {f"relax.{name}": f for name, f in (*_UNARY.items(), *_BINARY.items())}

_TRIANGLES: dict[str, Evaluate] = {"relax.tril": np.tril, "relax.triu": np.triu}


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
        operands = [self._constant(argument) for argument in call.args]
        name = getattr(call.op, "name", "")
        shape = static_shape(ty)
        if shape is None or not operands:
            return call
        result = evaluate(name, call, operands, shape, str(ty.dtype))
        allowed = max(_SMALL_BYTES, sum(o.nbytes for o in operands if o is not None))
        if result is None or result.shape != shape:
            return call
        if name in _SPREADING and keeps_spread(result.nbytes > allowed):
            return call
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
            ends = split.attrs.indices_or_sections
            ends = int(ends) if isinstance(ends, tvm.tirx.IntImm) else [int(end) for end in ends]
            part = np.array_split(whole, ends, int(split.attrs.axis))[int(item.index)]
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
        rows = scale.reshape(-1, *(1,) * (weights.ndim - 1))
        folded = _const(weights.astype(np.float64) * rows, str(convolution.args[1].ty.dtype))
        # The unscaled convolution stays for other readers; without any it is dead code.
        return relax.Call(convolution.op, [convolution.args[0], folded], convolution.attrs)

    def _definition(self, value: relax.Expr) -> Any:
        return self.lookup_binding(value) if isinstance(value, relax.Var) else value

    def _constant(self, value: relax.Expr) -> np.ndarray | None:
        value = self._definition(value)
        if is_transposition(value):  # one that is kept
            source = self._constant(value.args[0])
            return None if source is None else source.T
        if not isinstance(value, tvm.ir.GenericConst) or not hasattr(value.value, "numpy"):
            return None
        array: np.ndarray = value.value.numpy()
        return array


@np.errstate(all="ignore")  # NaN and infinities are meant
def evaluate(
    name: str,
    call: relax.Call,
    operands: list[np.ndarray | None],
    shape: tuple[int, ...],
    dtype: str,
) -> np.ndarray | None:
    """The result of one operator; ``None`` where it is not known here or not constant.

    Args:
        name: of the operator, ``relax.add``.
        call: of it.
        operands: arguments that are constants; ``None`` of any other.
        shape: of the result.
        dtype: of the result.
    """
    if 0 in shape:  # TVM reads no constants without elements back
        return None
    if name == "relax.full" and operands[1] is not None:
        return np.full(shape, operands[1])
    if name == "relax.zeros":
        return np.zeros(shape)
    if name == "relax.shape_to_tensor":
        return _extents(call.args[0].ty)
    if name == "relax.arange":
        bounds = _integers(call.args)
        return None if bounds is None or "int" not in dtype else np.arange(*bounds, dtype=dtype)
    first = operands[0]
    if first is None or not first.size:
        return None
    if name == "relax.astype":
        return first.astype(np.dtype(dtype)) if _numpy_knows(dtype) else None
    moved = _moved(name, call, first, shape)
    if name in _TRIANGLES:
        return _TRIANGLES[name](first, int(call.args[1]))
    known = [operand for operand in operands if operand is not None]
    if moved is not None or len(known) < len(operands):
        return moved
    if name == "relax.take" and call.attrs.axis is not None and call.attrs.mode in _PICKS:
        return np.take(first, known[1], int(call.attrs.axis), mode=_PICKS[call.attrs.mode])
    if name == "relax.gather_elements":
        return _gathered(first, known[1], int(call.attrs.axis))
    if name == "relax.where":
        condition, yes, no = known
        return np.where(condition, yes, no)
    if name == "relax.matmul" and all(operand.dtype.kind == "f" for operand in known):
        return np.matmul(*(operand.astype(np.float64) for operand in known))
    return _ELEMENTWISE[name](*known) if name in _ELEMENTWISE else None


def _moved(
    name: str, call: relax.Call, source: np.ndarray, shape: tuple[int, ...]
) -> np.ndarray | None:
    """The elements of one constant, elsewhere."""
    if name.removeprefix("relax.") in _RESHAPES:
        return source.reshape(shape)
    if name == "relax.broadcast_to":
        return np.broadcast_to(source, shape)
    if name == "relax.permute_dims":
        axes = call.attrs.axes
        return np.transpose(source, None if axes is None else [int(axis) for axis in axes])
    if name == "relax.strided_slice":
        return _slice(source, *map(_integers, call.args[1:]))
    if name == "relax.nn.pad" and call.attrs.pad_mode == "constant":
        width = np.reshape([int(count) for count in call.attrs.pad_width], (-1, 2))
        return np.pad(source, width, constant_values=float(call.attrs.pad_value))
    return None


def _gathered(source: np.ndarray, numbers: np.ndarray, axis: int) -> np.ndarray | None:
    """For each place the element of that number along an axis; ``None`` where there is none."""
    others = [np.delete(array.shape, axis).tolist() for array in (source, numbers)]
    is_within = bool(np.all((numbers >= 0) & (numbers < source.shape[axis])))
    return (
        np.take_along_axis(source, numbers, axis) if is_within and others[0] == others[1] else None
    )


def _slice(source: np.ndarray, *places: tuple[int, ...] | None) -> np.ndarray | None:
    """A tensor's part, by axes, their begins, their ends, and perhaps their strides."""
    known = [place for place in places if place is not None]
    if len(known) < len(places):
        return None
    parts = [slice(None)] * source.ndim
    for axis, *part in zip(*known, strict=True):
        parts[axis] = slice(*part)
    return source[tuple(parts)]


def _integers(values: Any) -> tuple[int, ...] | None:
    """Constants of an operator's arguments, or of one that is a tuple."""
    values = values.fields if isinstance(values, relax.Tuple) else values
    if isinstance(values, relax.Expr) or not all(isinstance(v, tvm.tirx.IntImm) for v in values):
        return None
    return tuple(int(value) for value in values)


def _extents(shape: Any) -> np.ndarray | None:
    """A static shape as a tensor of int64."""
    values = shape.values if isinstance(shape, relax.ShapeType) else None
    if values is None or not all(isinstance(extent, tvm.tirx.IntImm) for extent in values):
        return None
    return np.array([int(extent.value) for extent in values], "int64")


def _numpy_knows(dtype: str) -> bool:
    try:
        np.dtype(dtype)
    except TypeError:
        return False
    return True


def _is_call(value: Any, *names: str) -> bool:
    return isinstance(value, relax.Call) and getattr(value.op, "name", "") in names


def static_shape(ty: Any) -> tuple[int, ...] | None:
    """Extents of a tensor type; ``None`` of any other, and where one is open."""
    # A shape that is computed is a variable.
    if not isinstance(ty, relax.TensorType) or not isinstance(ty.shape, relax.ShapeExpr):
        return None
    if not all(isinstance(extent, tvm.tirx.IntImm) for extent in ty.shape):
        return None
    return tuple(int(extent.value) for extent in ty.shape)


def _const(value: np.ndarray, dtype: str) -> Any:
    return relax.const(np.asarray(value, order="C"), dtype)
