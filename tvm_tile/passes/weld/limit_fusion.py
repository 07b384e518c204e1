"""Bounds on what stock fusion puts into one function: expressions that compilers can take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import ir, relax, tirx
from tvm.relax.expr_functor import mutator

from tvm_tile.build.exact.integer_types import is_integer
from tvm_tile.graph.extract import blocks_in, loads_in
from tvm_tile.passes.ir.op_pattern import OpPattern, pattern_of, with_pattern
from tvm_tile.passes.ir.rewriter import ModuleRewriter, is_call_tir

# Of one element's expression. TVM's passes and the kernels' compilers walk through it by calls of
# functions; clang takes 256 brackets within another.
_DEEPEST = 100
_LARGEST = 2000
_LARGEST_SHARED = 200  # of what several functions take, each of which would compute it again


@dataclass(frozen=True, slots=True)
class Size:
    """How many operations the expression of an element from memory has, and how deep they nest."""

    operations: int = 0
    depth: int = 0

    def __add__(self, inner: Size) -> Size:
        """The size of an expression which takes ``inner`` for an operand."""
        return Size(self.operations + inner.operations, self.depth + inner.depth)

    @property
    def is_too_large(self) -> bool:
        """Whether no kernel should compute it at once."""
        return self.operations > _LARGEST or self.depth > _DEEPEST


@tvm.transform.module_pass(opt_level=0, name="LimitFusion")
@dataclass(frozen=True, slots=True)
class LimitFusion:
    """Tell FuseOps where a long chain of element-wise functions is to be cut.

    before: ``y1 = f(x); y2 = f(y1); ...; y800 = f(y799)``, all of which become one function
    after:  every hundredth call is of a copy of ``f`` that is marked as a reduction: what feeds it
            is fused into it, and nothing goes on from it

    A function is written as one expression an element. Its size is bounded, and so is how deeply it
    nests: a value that is used twice in each of thirty functions would be computed 2**30 times.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        sizes: dict[Any, tuple[Size, tuple[int, ...]]] = {}
        last: list[Any] = []
        for func in mod.functions.values():
            if isinstance(func, relax.Function) and isinstance(func.body, relax.SeqExpr):
                for block in func.body.blocks:
                    last += _cuts(mod, block, sizes)
        return _Marking(mod, last).rewritten(mod) if last else mod


def _cuts(
    mod: tvm.IRModule, block: Any, sizes: dict[Any, tuple[Size, tuple[int, ...]]]
) -> list[Any]:
    """The calls of a block behind which to cut."""
    inlined: dict[Any, tuple[Size, Any]] = {}  # what an element of a value takes, and its call
    cuts: list[Any] = []
    # One of several outputs is computed where its call is.
    calls = {
        binding.var: binding.value.tuple_value
        for binding in block.bindings
        if isinstance(binding.value, relax.TupleGetItem)
    }
    takers = Counter(
        value
        for binding in block.bindings
        if is_call_tir(binding.value)
        for value in {calls.get(field, field) for field in binding.value.args[1].fields}
    )
    for binding in block.bindings:
        call = binding.value
        pattern = pattern_of(mod[call.args[0]]) if is_call_tir(call) else None
        if pattern is None or pattern is OpPattern.OPAQUE:
            continue
        var = call.args[0]
        if var not in sizes:
            sizes[var] = expression_size(mod[var])
        own, uses = sizes[var]
        fields = [calls.get(field, field) for field in call.args[1].fields]
        arguments = [
            (value, times) for value, times in zip(fields, uses, strict=False) if value in inlined
        ]
        size = _together(own, arguments, inlined)
        # The largest go first, until what is left can be one expression.
        for value, _ in sorted(arguments, key=lambda a: -inlined[a[0]][0].depth):
            if not size.is_too_large:
                break
            if value in inlined:  # not another output of a call that is cut already
                cuts.append(inlined.pop(value)[1])
            arguments = [a for a in arguments if a[0] in inlined]
            size = _together(own, arguments, inlined)
        if pattern <= OpPattern.INJECTIVE:
            inlined[binding.var] = size, call
            if takers[binding.var] > 1 and size.operations > _LARGEST_SHARED:
                cuts.append(inlined.pop(binding.var)[1])
    return cuts


def _together(
    own: Size, arguments: list[tuple[Any, int]], inlined: Mapping[Any, tuple[Size, Any]]
) -> Size:
    """The size of a function's expression with those of its arguments in place of these."""
    inner = [(inlined[value][0], times) for value, times in arguments]
    return own + Size(
        sum(size.operations * times for size, times in inner),
        max((size.depth for size, _ in inner), default=0),
    )


def expression_size(func: tirx.PrimFunc) -> tuple[Size, tuple[int, ...]]:
    """The size of the largest expression that a function's kernel computes at once.

    Blocks are computed where another block reads them, all but sums over loops of their own.

    Returns:
        The size, and how often an expression reads each of the function's parameters.
    """
    made: dict[Any, tuple[Size, dict[Any, int]]] = {}
    largest, reads = Size(), dict.fromkeys(func.params, 0)
    for block in blocks_in(func.body):
        if not isinstance(block.body, tirx.BufferStore):
            continue
        size, uses = _of_expression(block.body.value, made)
        is_sum = any(var.iter_type == tirx.IterVar.CommReduce for var in block.iter_vars)
        made[block.body.buffer] = (Size(), {}) if is_sum else (size, uses)
        largest = Size(max(largest.operations, size.operations), max(largest.depth, size.depth))
        for buffer, times in uses.items():
            if buffer in reads:
                reads[buffer] = max(reads[buffer], times)
    return largest, tuple(reads.values())


def _of_expression(
    value: Any, made: Mapping[Any, tuple[Size, dict[Any, int]]]
) -> tuple[Size, dict[Any, int]]:
    """The size of a stored value, and how often it reads each tensor in memory.

    Of the places where it reads, only those are counted that other tensors say.
    """
    if isinstance(value, ir.TensorLoad):
        places = [_of_expression(index, made) for index in value.indices if loads_in(index)]
        parts = [made.get(value.source, (Size(), {value.source: 1})), *places]
        one = 0
    else:
        parts = [_of_expression(part, made) for part in _operands(value)]
        one = 1
    operations = one + sum(size.operations for size, _ in parts)
    depth = one + max((size.depth for size, _ in parts), default=-one)
    uses: dict[Any, int] = {}
    for _, own in parts:
        for buffer, times in own.items():
            uses[buffer] = min(_LARGEST, uses.get(buffer, 0) + times)
    return Size(min(operations, 2 * _LARGEST), depth), uses


def _operands(value: Any) -> list[Any]:
    """Operands of an expression."""
    if isinstance(value, tirx.Cast | tirx.Not):
        return [value.value if isinstance(value, tirx.Cast) else value.a]
    if isinstance(value, tirx.Select):
        return [value.condition, value.true_value, value.false_value]
    if isinstance(value, ir.Call):
        return list(value.args)
    if isinstance(value, tirx.Div | tirx.FloorDiv) and is_integer(value):
        return [value.a, value.b, value.b]  # kernels ask an integer's divisor whether it is 0
    return [value.a, value.b] if hasattr(value, "a") and hasattr(value, "b") else []


@mutator
class _Marking(ModuleRewriter):
    """Calls of copies of functions, marked as the last ones of what they are fused with."""

    def __init__(self, mod: tvm.IRModule, last: list[Any]) -> None:
        super().__init__(mod)
        self._mod = mod
        self._last = set(last)
        self._copies: dict[Any, Any] = {}

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        if call not in self._last:
            return super().visit_call_(call)
        var = call.args[0]
        if var not in self._copies:
            marked = with_pattern(self._mod[var], OpPattern.COMM_REDUCE)
            self._copies[var] = self.builder_.add_func(marked, str(var.name_hint))
        arguments = self.visit_expr(call.args[1])
        return relax.Call(
            call.op, [self._copies[var], arguments, *call.args[2:]], call.attrs, call.ty_args
        )
