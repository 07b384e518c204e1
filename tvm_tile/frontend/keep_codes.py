"""Weights that arrive as codes of a few bits are constants of codes, and calls that decode them.

This is done behind an importer, where what a model computes of constants is still operators, and
ahead of :func:`~tvm_tile.frontend.fold.fold_constants`, behind which codes are lost. (The ONNX
front door leaves the operators that make numbers of codes to this, see
:mod:`tvm_tile.frontend.onnx.codes`.) No later stage could do it, as passes fold what is left; no
earlier one would do it for all formats of models alike. Which of them stay codes is decided when
it is known what their products take: :class:`~tvm_tile.passes.ChooseCodes`.

What a weight is computed by is evaluated as it would be folded, and followed from where integers
become floating-point numbers (see :mod:`tvm_tile.graph.recognise`). Nothing depends on how codes
are unpacked or where they are scaled. The codes are kept only if they decode to the very bits of
the folded weight.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tvm_tile.frontend.evaluate import static_shape
from tvm_tile.frontend.fold import folded
from tvm_tile.frontend.trace_codes import Tracer
from tvm_tile.frontend.transposed_weights import (
    is_call,
    is_lookup,
    transposition_source,
    weights_of,
)
from tvm_tile.graph.codes import Coded
from tvm_tile.graph.recognise import encoded, is_exact
from tvm_tile.graph.tensor_format import bytes_of
from tvm_tile.loops.decoding import decode, decoded_by, has_codes, kept_constants, values_of
from tvm_tile.report.coded_weights import CodedWeight

_LEAST_BYTES = 1 << 14
_LEAST_CODES = 1 << 10
_NUMBERS = ("float16", "bfloat16", "float32")


def keep_codes(mod: tvm.IRModule) -> tuple[tvm.IRModule, tuple[CodedWeight, ...]]:
    """Replace what computes weights of codes by functions that decode these.

    before: ``w = multiply(astype(codes, "float16"), scales); y = matmul(x, w)``
    after:  ``w = call_tir(decode, (packed codes, scales)); y = matmul(x, w)``

    Args:
        mod: Relax operators as an importer made them.

    Returns:
        The module, and why others are folded of the matrices, and stacks of matrices, of 16 KiB or
        more that are computed of codes and that products read.
    """
    found: list[Coded] = []
    kept: dict[Any, Coded] = {}
    others: list[CodedWeight] = []
    functions = [func for func in mod.functions.values() if isinstance(func, relax.Function)]
    for bindings in map(_Bindings.of, functions):
        for var in bindings.weights():
            coded = _coded(var, bindings)
            if isinstance(coded, Coded):
                # One that is computed twice is kept once.
                known = next(filter(coded.equals, found), None)
                found += [coded] if known is None else []
                kept[bindings.made[var]] = known or coded
            elif coded is not None:
                shape = static_shape(var.ty)
                assert shape is not None
                others.append(CodedWeight(shape, str(var.ty.dtype), None, coded))
    return (folded(mod, _Decoding(mod, kept)) if kept else mod), tuple(others)


def fold_codes(mod: tvm.IRModule) -> tvm.IRModule:
    """Replace all calls that decode codes by their values, for pipelines that know no codes.

    before: ``w = call_tir(decode, (packed codes, scales))``   after: ``w`` is a constant
    """
    return folded(mod, _Folding(mod)) if has_codes(mod) else mod


def _coded(var: relax.Var, bindings: _Bindings) -> Coded | str | None:
    """A weight as it is kept, or why it is not; ``None`` of what is computed of no codes."""
    behind = bindings.behind(var)
    if behind is None:
        return None
    if not bindings.is_only_multiplied(var):
        return "others than products read it"
    value = Tracer(bindings.made).evaluated(behind)
    if value is None:
        return "it is computed by an operator whose results are not known while a model is imported"
    if value.traced is None:
        return "it is not computed by a zero point, scales and an offset, in this order"
    found = encoded(value.traced)
    if found is None:
        return "its codes have more than 8 bits"
    if found.nbytes >= found.format.value_bytes(found.shape):
        return f"kept as {found.format}, it would have {found.nbytes} bytes"
    if any(np.isinf(array.astype(np.float32)).any() for array in found.shared):
        return "a scale of it is infinite"  # sums of what is not yet scaled are no NaN
    if not is_exact(value.traced, found):
        return f"kept as {found.format}, it would have other values"
    return found


@relax.expr_functor.mutator
class _Decoding(relax.PyExprMutator):
    """Writes calls that decode in place of what computes weights."""

    def __init__(self, mod: tvm.IRModule, kept: Mapping[Any, Coded]) -> None:
        super().__init__(mod)
        self._kept = kept
        # The same ones for each, so that values that are equal are seen to be.
        unique = {id(coded): coded for coded in kept.values()}
        self._constants = {key: kept_constants(coded) for key, coded in unique.items()}

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        coded = self._kept.get(call)
        if coded is None:
            return self.visit_expr_post_order(call)
        return decode(self.builder_, coded, self._constants[id(coded)])


@relax.expr_functor.mutator
class _Folding(relax.PyExprMutator):
    """Writes values in place of calls that decode."""

    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self._mod = mod

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        coded = decoded_by(call, self._mod)
        return self.visit_expr_post_order(call) if coded is None else values_of(coded)


@dataclass(frozen=True, slots=True)
class _Bindings:
    """What the variables of a function are.

    Attributes:
        made: variable -> what it is bound to.
        readers: variable -> the variables whose values are computed of it; ``None`` among them
            where the function returns it.
        places: variable -> its number in the order of all that are bound.
    """

    made: dict[Any, Any]
    readers: dict[Any, list[Any]]
    places: dict[Any, int]

    @classmethod
    def of(cls, func: relax.Function) -> _Bindings:
        """Find all bindings of a function, whatever branches they are in."""
        made: dict[Any, Any] = {}
        readers: dict[Any, list[Any]] = {}

        def visit(value: Any) -> None:
            if not isinstance(value, relax.SeqExpr):
                return
            for block in value.blocks:
                for binding in block.bindings:
                    made[binding.var] = binding.value
                    for read in relax.analysis.free_vars(binding.value):
                        readers.setdefault(read, []).append(binding.var)
            for read in relax.analysis.free_vars(value.body):
                readers.setdefault(read, []).append(None)

        relax.analysis.post_order_visit(func, visit)
        return cls(made, readers, {var: place for place, var in enumerate(made)})

    def weights(self) -> list[Any]:
        """Matrices that are computed and that products read, or their transpositions, as second
        operands; and stacks of matrices that products look their own up in."""
        found: dict[Any, None] = {}
        for value in self.made.values():
            reading = weights_of(value, self.made.get)
            if reading is not None and isinstance(reading.weights, relax.Var):
                found[reading.weights] = None
        return list(filter(self._is_weight, found))

    def _is_weight(self, var: relax.Var) -> bool:
        shape, dtype = static_shape(var.ty), str(var.ty.dtype)
        if shape is None or dtype not in _NUMBERS:
            return False
        is_large = math.prod(shape) * bytes_of(dtype) >= _LEAST_BYTES
        is_call = isinstance(self.made.get(var), relax.Call)
        return is_large and is_call

    def is_only_multiplied(self, var: Any, weights: Any = None) -> bool:
        """Whether nothing reads it but products, as their weights, which are ``var`` itself unless
        it is made of other ``weights``."""
        weights = var if weights is None else weights

        def is_fit(reader: Any) -> bool:
            value: Any = self.made.get(reader)
            reading = weights_of(value, self.made.get)
            if reading is not None:
                is_other = not value.args[1 - reading.side].same_as(var)
                return reading.weights.same_as(weights) and is_other
            if is_call(value, "relax.shape_of"):
                return True
            is_moved = transposition_source(value) is not None or is_lookup(value)
            return is_moved and self.is_only_multiplied(reader, weights)

        return all(map(is_fit, self.readers.get(var, ())))

    def behind(self, var: relax.Var) -> list[Any] | None:
        """The variables that it is computed of, in their order, and itself.

        Returns:
            ``None`` where these are not all computed of constants, or of no codes.
        """
        waiting: list[Any] = [var]
        seen: set[Any] = set()
        has_codes = False
        while waiting:
            value = waiting.pop()
            if isinstance(value, relax.Var):
                if value in seen:
                    continue
                seen.add(value)
                value = self.made.get(value)
            if isinstance(value, tvm.ir.GenericConst):
                continue
            if isinstance(value, relax.Tuple):
                waiting.extend(value.fields)
            elif isinstance(value, relax.TupleGetItem):
                waiting.append(value.tuple_value)
            elif isinstance(value, relax.Call):
                has_codes |= _reads_codes(value)
                waiting += [arg for arg in value.args if not _is_setting(arg)]
            else:
                return None
        return sorted(seen, key=self.places.__getitem__) if has_codes else None


def _is_setting(argument: Any) -> bool:
    """Whether an operator's argument is no tensor, such as a shape."""
    is_numbers = isinstance(argument, relax.Tuple) and not any(
        isinstance(field.ty, relax.TensorType) for field in argument.fields
    )
    return is_numbers or isinstance(argument, relax.ShapeExpr) or tvm.ir.is_prim_expr(argument)


def _reads_codes(call: relax.Call) -> bool:
    """Whether it makes floating-point numbers of many codes."""
    name = getattr(call.op, "name", "")
    if name not in ("relax.astype", "relax.take") or str(call.ty.dtype) not in _NUMBERS:
        return False
    shape = static_shape(call.ty)
    if shape is None or int(np.prod(shape)) < _LEAST_CODES:
        return False
    return call.args[0].ty.ndim == 1 if name == "relax.take" else _is_code(call.args[0].ty.dtype)


def _is_code(dtype: Any) -> bool:
    """Whether numbers of an element type may be codes."""
    return str(dtype) == "bool" or str(dtype).startswith(("int", "uint", "float8", "float4"))
