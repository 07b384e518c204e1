"""Weights that arrive as codes of a few bits: which of them stay codes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import ir, relax
from tvm.relax.expr_functor import mutator

from tvm_tile.device.device import Device, MemoryLevel
from tvm_tile.frontend.evaluate import static_shape
from tvm_tile.frontend.fold import folded
from tvm_tile.frontend.transposed_weights import ReadWeights, weights_of
from tvm_tile.graph.codes import Coded
from tvm_tile.graph.tensor_format import TensorFormat
from tvm_tile.loops.decoding import (
    constant_format,
    decode,
    decoded_by,
    decoding_loops,
    has_codes,
    kept_constants,
    values_of,
)
from tvm_tile.passes.ir.rewriter import ModuleRewriter, size_of
from tvm_tile.report.coded_weights import CodedWeight
from tvm_tile.tile.coded.choice import CodedUse, CodesChoice, LowBit, choose_codes
from tvm_tile.tile.weld.side_by_side import Cost

_MATRIX = 2  # dimensions

Predict = Callable[[tvm.IRModule], Cost | None]
"""The cost of a module's ``main``; ``None`` where no rule takes one of its kernels."""

RecordCoded = Callable[[CodedWeight], None]


@tvm.transform.module_pass(opt_level=0, name="ChooseCodes")
@dataclass(frozen=True, slots=True)
class ChooseCodes:
    """Fold codes to numbers where products are faster so; decode the others before each product.

    before: ``w = call_tir(decode, (packed codes, scales)); y = matmul(x, w)``
    after:  ``w`` a constant, or ``w = call_tir(decode, ...); wt = permute_dims(w); y = matmul(x,
            wt)``, the codes turned

    Each product has its matrix decoded just before it, wherever the model does that: so not all
    weights are in memory at once. A matrix that products read as it is has its codes stored turned,
    those that are summed up side by side, as kernels read them that multiply codes. So have stacks
    of matrices that products look their own up in. Products are compared as they are by themselves,
    with their matrix as codes and as numbers that lie either way, by the model of time; those of
    one value together, as they may become one product. Where their shape is not known the matrix is
    folded.

    Args:
        device: the device that the model is compiled for.
        low_bit: whether all stay codes, none, or what is no slower so.
        cost: function that predicts a product; see :func:`tvm_tile.passes.fused_cost`.
        record: called with the decision on each matrix, for ``explain()``.
    """

    device: Device
    low_bit: LowBit
    cost: Predict
    record: RecordCoded | None = None

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        if not has_codes(mod):
            return mod
        matrices, others = _matrices(mod)
        groups = _groups(matrices)
        decisions = list(self._decisions(groups, others))
        pairs = zip(groups, decisions, strict=True)
        decided = [(own, decision) for group, decision in pairs for own in group]
        if self.record is not None:
            for own, decision in decided:
                form = own.format if decision.is_kept else None
                dtype = own.format.dtype
                self.record(CodedWeight(own.shape, dtype, form, decision.reason))
        kept = [own for own, decision in decided if decision.is_kept]
        rest = [own for own, decision in decided if not decision.is_kept]
        return folded(mod, _Chosen(mod, kept, rest))

    def _decisions(self, groups: Sequence[Sequence[_Matrix]], others: int) -> Iterator[CodesChoice]:
        """What becomes of each group; ``others`` are bytes of constants that are no codes."""
        if self.low_bit != "auto":
            reason = "" if self.low_bit else "as low_bit=False says"
            yield from (CodesChoice(self.low_bit, reason) for _ in groups)
            return
        times = _Times(self.cost)
        capacity = self.device.memory(MemoryLevel.GLOBAL).capacity
        yield from choose_codes([times.use(group) for group in groups], others, capacity)


@dataclass(frozen=True, slots=True)
class _Matrix:
    """A matrix of codes, or a stack of matrices.

    Attributes:
        format: how it is kept.
        shape: shape of its values.
        calls: calls that decode it.
        products: products that read it, and how.
    """

    format: TensorFormat
    shape: tuple[int, ...]
    calls: list[relax.Call] = field(default_factory=list)
    products: dict[Any, ReadWeights] = field(default_factory=dict)

    @property
    def is_stored_turned(self) -> bool:
        """Whether no product sums up along its last axis, so that its codes are stored turned."""
        return not any(reading.is_by_depth for reading in self.products.values())


def _matrices(mod: tvm.IRModule) -> tuple[list[_Matrix], int]:
    """The matrices of codes of a module, one that is decoded several times once; and the bytes of
    its other constants."""
    found: dict[Any, _Matrix] = {}
    sizes: dict[Any, int] = {}
    for func in mod.functions.values():
        if not isinstance(func, relax.Function):
            continue
        made = _bindings(func, sizes)
        decoded = {}
        for var, call in made.items():
            form = constant_format(call, mod)
            if form is None:
                continue
            matrix = _Matrix(form, tuple(map(int, call.ty.shape)))
            decoded[var] = found.setdefault((call.args[0], *call.args[1].fields), matrix)
            decoded[var].calls.append(call)
            sizes |= dict.fromkeys(call.args[1].fields, 0)
        for call in made.values():
            reading = weights_of(call, made.get)
            if reading is not None and reading.weights in decoded:
                decoded[reading.weights].products[call] = reading
    return list(found.values()), sum(sizes.values())


def _groups(matrices: Sequence[_Matrix]) -> list[list[_Matrix]]:
    """Matrices that are kept alike, if at all: of one format, and first multiplied by one value."""
    found: dict[Any, list[_Matrix]] = {}
    for number, own in enumerate(matrices):
        products = own.products.items()
        left = next((call.args[1 - reading.side] for call, reading in products), number)
        found.setdefault((left, own.format.by_row()), []).append(own)
    return list(found.values())


def _bindings(func: relax.Function, sizes: dict[Any, int]) -> dict[Any, Any]:
    """What the variables of a function are bound to, in whatever branch; ``sizes`` is given the
    bytes of its constants."""
    made: dict[Any, Any] = {}

    def visit(value: Any) -> None:
        if isinstance(value, ir.GenericConst) and isinstance(value.ty, relax.TensorType):
            sizes[value] = size_of(value.ty)
        if isinstance(value, relax.SeqExpr):
            made.update((one.var, one.value) for block in value.blocks for one in block.bindings)

    relax.analysis.post_order_visit(func, visit)
    return made


@dataclass(frozen=True, slots=True)
class _Times:
    """Predicted times of products of matrices; the layers of a model are alike.

    Attributes:
        cost: function that predicts a module.
        known: a product and how its matrix lies -> seconds, as far as was asked.
    """

    cost: Predict
    known: dict[Any, float | None] = field(default_factory=dict)

    def use(self, group: Sequence[_Matrix]) -> CodedUse:
        """What all products of some matrices take, from codes and from numbers."""
        size = sum(own.format.bytes(own.shape) for own in group)
        folded_size = sum(own.format.value_bytes(own.shape) for own in group)
        times = [self._both(own, *product) for own in group for product in own.products.items()]
        coded = [own for own, _ in times if own is not None]
        values = [own for _, own in times if own is not None]
        is_known = bool(times) and len(coded) == len(values) == len(times)
        seconds, folded_seconds = (sum(coded), sum(values)) if is_known else (None, None)
        return CodedUse(size, folded_size, seconds, folded_seconds, len(group))

    def _both(
        self, matrix: _Matrix, call: relax.Call, reading: ReadWeights
    ) -> tuple[float | None, float | None]:
        """Seconds of a product from codes, and from numbers that lie as is faster."""
        other = call.args[1 - reading.side]
        rows = static_shape(other.ty)
        if rows is None:
            return None, None
        # What is looked up may be the left operand: its time is that of the right one.
        rows = rows if reading.side else (*rows[:-2], rows[-1], rows[-2])
        types = rows, str(other.ty.dtype), str(call.ty.dtype)
        form, shape = matrix.format, matrix.shape
        is_by_depth = matrix.is_stored_turned or reading.is_by_depth
        if matrix.is_stored_turned:
            form, shape = form.turned(), _turned(shape)
        coded = self._seconds(*types, form, shape, is_by_depth)
        if coded is None:
            return None, None
        by_depth = shape if is_by_depth else _turned(shape)
        lying = [(by_depth, True), (_turned(by_depth), False)]
        values = [self._seconds(*types, form.dtype, *how) for how in lying]
        return coded, min((own for own in values if own is not None), default=None)

    def _seconds(self, *product: Any) -> float | None:
        """Seconds of a product that :func:`_module` writes; ``None`` where no rule takes it."""
        if product not in self.known:
            cost = self.cost(_module(*product))
            self.known[product] = None if cost is None else cost.seconds
        return self.known[product]


def _turned(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of matrices with their axes exchanged."""
    *outer, rows, columns = shape
    return *outer, columns, rows


def _module(
    rows: tuple[int, ...],
    dtype: str,
    sums: str,
    kept: TensorFormat | str,
    shape: tuple[int, ...],
    is_turned: bool,
) -> tvm.IRModule:
    """A product by itself.

    Args:
        rows: shape of the left operand.
        dtype: its element type, which is the result's.
        sums: element type in which is added up.
        kept: how the matrix is kept, or of what element type it is.
        shape: shape of the matrix, or of the stack in which each product has its own.
        is_turned: whether it is transposed before it is multiplied.
    """
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(rows, dtype))
    ids = [relax.Var("ids", relax.TensorType(rows[:1], "int64"))] * (len(shape) > _MATRIX)
    if isinstance(kept, str):
        weights = [relax.Var("w", relax.TensorType(shape, kept))]
    else:
        loops = decoding_loops(kept, shape)
        types = [(list(own.ty.shape), str(own.ty.dtype)) for own in loops.params[:-1]]
        weights = [relax.Var(f"w{n}", relax.TensorType(*ty)) for n, ty in enumerate(types)]
    with builder.function("main", [x, *weights, *ids]):
        with builder.dataflow():
            matrix: Any = weights[0]
            if not isinstance(kept, str):
                decoded = relax.TensorType(shape, kept.dtype)
                function = builder.add_func(loops, "decode")
                matrix = builder.emit(relax.call_tir(function, list(weights), decoded))
            matrix = _read(builder, matrix, ids[0] if ids else None, is_turned)
            result = builder.emit(relax.op.matmul(x, matrix, out_dtype=sums))
            if sums != dtype:
                result = builder.emit(relax.op.astype(result, dtype))
            result = builder.emit_output(result)
        builder.emit_func_output(result)
    return builder.get()


def _read(builder: relax.BlockBuilder, matrix: Any, ids: Any | None, is_turned: bool) -> Any:
    """A decoded matrix as a product takes it: looked up, if ``ids`` say so, or transposed."""
    if ids is not None:
        matrix = builder.emit(relax.op.take(matrix, ids, axis=0, mode="clip"))
    if not is_turned:
        return matrix
    order = list(range(matrix.ty.ndim))
    return builder.emit(relax.op.permute_dims(matrix, [*order[:-2], order[-1], order[-2]]))


@mutator
class _Chosen(ModuleRewriter):
    """Writes matrices as they are chosen to be."""

    def __init__(self, mod: tvm.IRModule, kept: Sequence[_Matrix], rest: Sequence[_Matrix]) -> None:
        super().__init__(mod)
        self._mod = mod
        self._products = {call: own for own in kept for call in own.products}
        self._values = {call: own for own in rest for call in own.calls}
        self._known: dict[int, Any] = {}

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        folding, matrix = self._values.get(call), self._products.get(call)
        if folding is not None:
            return self._made(folding, values_of)
        if matrix is None:
            return super().visit_call_(call)
        is_stored_turned, reading = matrix.is_stored_turned, matrix.products[call]
        coded, constants = self._made(matrix, lambda own: _stored(own, is_stored_turned))
        own = self.builder_.emit(decode(self.builder_, coded, constants))
        ids = None if reading.ids is None else self.visit_expr(reading.ids)
        is_turned = (is_stored_turned or reading.is_by_depth) == (reading.side == 1)
        operands = [self.visit_expr(operand) for operand in call.args]
        operands[reading.side] = _read(self.builder_, own, ids, is_turned)
        return relax.Call(call.op, operands, call.attrs)

    def _made(self, matrix: _Matrix, make: Callable[[Coded], Any]) -> Any:
        """What is made of a matrix, once, so that values that are equal are seen to be."""
        if id(matrix) not in self._known:
            coded = decoded_by(matrix.calls[0], self._mod)
            assert coded is not None
            self._known[id(matrix)] = make(coded)
        return self._known[id(matrix)]


def _stored(coded: Coded, is_turned: bool) -> tuple[Coded, list[relax.Expr]]:
    """A matrix as it is stored, and its constants."""
    own = coded.turned() if is_turned else coded
    return own, kept_constants(own)
