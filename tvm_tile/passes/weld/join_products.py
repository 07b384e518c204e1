"""Products of one value become one product, where the model says that it pays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax
from tvm_ffi import StructuralKey

from tvm_tile.graph.constant_tensors import elements_of
from tvm_tile.passes.ir.rewriter import with_dataflow_blocks
from tvm_tile.passes.weld.fuse_tiles import Record
from tvm_tile.passes.weld.parallel_products import ConstantProduct, is_static, parallel_products
from tvm_tile.passes.weld.product_weights import side_by_side
from tvm_tile.tile.weld.connect import Decision, decide
from tvm_tile.tile.weld.side_by_side import (
    Cost,
    Joint,
    Members,
    ProgramNode,
    affected,
    align,
    choose,
    compare,
)

Predict = Callable[[tvm.IRModule], Cost | None]
"""The cost of a module's ``main``, whose operators are not yet fused; ``None`` where no rule takes
one of its kernels."""

_PRODUCTS = frozenset({"relax.matmul", "relax.nn.conv1d", "relax.nn.conv2d", "relax.nn.conv3d"})


@tvm.transform.module_pass(opt_level=0, name="JoinProducts")
@dataclass(frozen=True, slots=True)
class JoinProducts:
    """Join products of one left operand, their constant weights side by side.

    before: ``q = add(matmul(x, w1), b1); k = matmul(x, w2); v = add(matmul(x, w3), b3)``
    after:  ``y = add(matmul(x, [w1 w2 w3]), [b1 -0 b3])`` and ``q``, ``k``, ``v`` slices of ``y``

    Weights that all are transposed first are so side by side, too. Codes of one format become one
    matrix of codes, which decodes to the same bits.

    Each element is the sum of the same products as before. What is behind products and treats
    columns one by one is joined as far as it is the same operator, a constant for each column
    aside; a product without it gets the constant that changes nothing. A scalar's operator is found
    behind reshapes and permutations, too, as an attention's scale is.

    Whether products become one is a matter of time: these and all that read their values, up to
    where they have met, are fused both ways, and the model compares.

    Args:
        cost: function that predicts a part of a module; see :func:`tvm_tile.passes.fused_cost`.
        record: called with the decision on products of the same value, for ``explain()``.
    """

    cost: Predict
    record: Record | None = None

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        for var, func in mod.functions_items():
            if isinstance(func, relax.Function):
                mod = _Joiner(mod, self.cost, self.record or (lambda _: None)).rewritten(mod, var)
        return mod


class _Joiner:
    """Joins products of one function of a module."""

    def __init__(self, mod: tvm.IRModule, cost: Predict, record: Record) -> None:
        self._builder = relax.BlockBuilder(mod)
        self._mod = mod
        self._cost = cost
        self._record = record
        # The layers of a model are alike.
        self._apart: dict[Any, Cost | None] = {}
        self._known: dict[Any, Decision] = {}
        self._weights: dict[Any, tuple[Any, bool]] = {}  # parts -> these side by side

    def rewritten(self, mod: tvm.IRModule, var: Any) -> tvm.IRModule:
        """``mod`` with products of the function at ``var`` joined."""
        changed = with_dataflow_blocks(self._builder, var, self._joined)
        return mod if changed is None else changed

    def _joined(self, block: relax.DataflowBlock) -> relax.DataflowBlock:
        """A block with products of one value joined where that pays."""
        bindings, graph = list(block.bindings), _Dataflow(block)
        is_joined = False
        for products in parallel_products(block, self._mod):
            part = _Cut.of(products, graph)
            asked: dict[Members, Decision] = {}
            chosen = choose(len(products), partial(self._gain, part, asked))
            for decision in decide(asked, chosen):
                self._record(decision)
            for members in chosen:
                bindings = self._side_by_side(bindings, [products[n] for n in members])
                is_joined = True
        return relax.DataflowBlock(bindings) if is_joined else block

    def _gain(self, part: _Cut, asked: dict[Members, Decision], members: Members) -> float | None:
        """Predicted seconds that some products save as one; the answer is kept in ``asked``."""
        if (part.key, members) not in self._known:
            self._known[part.key, members] = self._compared(part, members)
        asked[members] = self._known[part.key, members]
        return asked[members].gain

    def _compared(self, part: _Cut, members: Members) -> Decision:
        """The decision on products alone and as one, with what reads the values of all."""
        products = [part.products[n] for n in members]
        names = tuple(f"matmul_{product.columns}" for product in products)
        if len({product.weights.kind for product in products}) > 1:
            return Decision(names, (), reason="their weights are not kept in one format")
        if not all(is_static(binding.var.ty) for binding in part.bindings):
            return Decision(names, (), reason="a shape that depends on them is not known")
        if part.key not in self._apart:
            self._apart[part.key] = self._predicted(part.bindings, part.outputs)
        joined = self._side_by_side(part.bindings, products)
        weights = sum(product.weights.bytes for product in products)
        together = self._predicted(joined, part.outputs)
        return compare(names, self._apart[part.key], together, weights)

    def _predicted(self, bindings: Sequence[Any], outputs: Sequence[Any]) -> Cost | None:
        """Predicted cost of bindings as a module."""
        return self._cost(self._module(_function(bindings, outputs)))

    def _module(self, main: relax.Function) -> tvm.IRModule:
        """A function with those that it calls."""
        known = self._builder.get()
        functions: dict[Any, Any] = {tvm.ir.GlobalVar("main"): main}
        waiting = [main]
        while waiting:
            func = waiting.pop()
            called = (
                relax.analysis.all_global_vars(func) if isinstance(func, relax.Function) else ()
            )
            found = {var: known[var] for var in called if var not in functions}
            functions |= found
            waiting += found.values()
        return tvm.IRModule(functions)

    def _side_by_side(
        self, bindings: Sequence[Any], products: Sequence[ConstantProduct]
    ) -> list[Any]:
        """``bindings`` with some of their products as one, each result a slice of it."""
        joints = align([[o.step for o in product.operations] for product in products])
        made = self._whole(products, joints)
        whole, replaced = made[-1].var, {products[0].binding.var: made}
        start = 0
        for number, product in enumerate(products):
            count = sum(joint[number] is not None for joint in joints)
            taken = product.operations[:count]
            inner = [product.binding, *(o.binding for o in taken if not o.is_moved)]
            for binding in inner[:-1]:
                replaced.setdefault(binding.var, [])
            end = start + product.columns
            axis = whole.ty.ndim - 1
            part = relax.op.strided_slice(whole, [axis], [start], [end])
            replaced.setdefault(inner[-1].var, []).append(self._bound(inner[-1].var, part))
            for operation in taken:
                if operation.is_moved:
                    var = operation.binding.var
                    value = relax.analysis.free_vars(operation.binding.value)[0]
                    replaced[var] = [self._bound(var, value)]
            start = end
        return [new for old in bindings for new in replaced.get(old.var, [old])]

    def _whole(self, products: Sequence[ConstantProduct], joints: Sequence[Joint]) -> list[Any]:
        """The joined product, and the operators behind it."""
        call = products[0].binding.value
        made = []
        weights, is_turned = self._joined_weights(products)
        if isinstance(weights, relax.Call):
            made.append(self._bound(None, weights))
            weights = made[-1].var
        if is_turned:
            made.append(self._bound(None, relax.op.permute_dims(weights)))
            weights = made[-1].var
        made.append(self._bound(None, relax.Call(call.op, [call.args[0], weights], call.attrs)))
        for joint in joints:
            steps = [
                None if n is None else p.operations[n] for p, n in zip(products, joint, strict=True)
            ]
            old = next(step for step in steps if step is not None)
            args = [made[-1].var]
            if old.constant is not None:
                dtype = str(old.constant.ty.dtype)
                args.append(_columns(products, steps, old.step.neutral, dtype))
            made.append(
                self._bound(None, relax.Call(old.binding.value.op, args, old.binding.value.attrs))
            )
        return made

    def _joined_weights(self, products: Sequence[ConstantProduct]) -> tuple[Any, bool]:
        """The weights side by side, and whether that is all columns by depth; one constant for the
        same parts."""
        parts = tuple(product.weights for product in products)
        if parts not in self._weights:
            self._weights[parts] = side_by_side(parts, self._builder)
        return self._weights[parts]

    def _bound(self, var: Any, value: Any) -> relax.VarBinding:
        """A binding of a value, to a new variable if there is none."""
        value = self._builder.normalize(value)
        return relax.VarBinding(relax.DataflowVar("y", value.ty) if var is None else var, value)


def _columns(
    products: Sequence[ConstantProduct], steps: Sequence[Any], neutral: Any, dtype: str
) -> Any:
    """The constants of a step of each product, side by side."""
    arrays = [
        np.full(product.columns, neutral) if step is None else step.columns(product.columns)
        for product, step in zip(products, steps, strict=True)
    ]
    like = elements_of(next(step for step in steps if step is not None).constant).dtype
    return relax.const(np.concatenate([array.astype(like) for array in arrays]), dtype)


class _Dataflow:
    """A dataflow block, whose parts are asked for."""

    def __init__(self, block: relax.DataflowBlock) -> None:
        self._bindings = list(block.bindings)
        self._number = {binding.var: n for n, binding in enumerate(self._bindings)}
        self._reads = [
            tuple(self._number[v] for v in relax.analysis.free_vars(b.value) if v in self._number)
            for b in self._bindings
        ]
        self._readers: list[set[int]] = [set() for _ in self._bindings]
        for number, reads in enumerate(self._reads):
            for read in reads:
                self._readers[read].add(number)
        self._nodes = [
            ProgramNode(reads, getattr(getattr(b.value, "op", None), "name", "") in _PRODUCTS)
            for b, reads in zip(self._bindings, self._reads, strict=True)
        ]

    def part(self, products: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Bindings that change as products become one, and values of these that others read.

        What constants alone make is among the bindings, so that it is one there, too.
        """
        changed = affected(self._nodes, [self._number[binding.var] for binding in products])
        inside = set(changed)
        outputs = [
            self._bindings[n].var
            for n in changed
            if not self._readers[n] <= inside
            or not self._readers[n]
            or not isinstance(self._bindings[n].var, relax.DataflowVar)
        ]
        known = set(inside)
        for number in reversed(range(max(changed))):
            is_read = number not in known and self._readers[number] & known
            if is_read and not relax.analysis.free_vars(self._bindings[number].value):
                known.add(number)
        return [self._bindings[n] for n in sorted(known)], outputs


@dataclass(frozen=True, slots=True)
class _Cut:
    """The part of a dataflow block that changes when products of one value are joined.

    Attributes:
        products: the products of the value.
        bindings: their bindings and those that read their values, as far as joining affects them.
        outputs: values of these bindings that others read.
        key: equal for parts that compute the same with other constants.
    """

    products: Sequence[ConstantProduct]
    bindings: Sequence[Any]
    outputs: Sequence[Any]
    key: Any

    @classmethod
    def of(cls, products: Sequence[ConstantProduct], graph: _Dataflow) -> _Cut:
        """Cut out all products of one value, so that times with and without joining compare."""
        own = [product.binding for product in products]
        bindings, outputs = graph.part(own)
        places = tuple(n for n, b in enumerate(bindings) if any(b.same_as(o) for o in own))
        kinds = tuple(product.weights.kind for product in products)
        key = StructuralKey(_function(bindings, outputs, with_constants=False)), places, kinds
        return cls(products, bindings, outputs, key)


def _function(
    bindings: Sequence[Any], outputs: Sequence[Any], *, with_constants: bool = True
) -> relax.Function:
    """Bindings as a function of what they read, with variables of its own.

    Without constants these are parameters, but for scalars: so functions are equal that compute
    the same.
    """
    made = [binding.var for binding in bindings]
    params: dict[Any, Any] = {}
    # FuseTIR names buffers after variables, and the schedule rules know buffers by their names.
    renamed = {var: relax.DataflowVar(f"v{n}", var.ty) for n, var in enumerate(made)}

    def parameter(value: Any) -> Any:
        return params.setdefault(value, relax.Var(f"p{len(params)}", value.ty))

    def constant(value: Any) -> Any:
        is_tensor = isinstance(value.ty, relax.TensorType) and value.ty.ndim > 0
        return value if with_constants or not is_tensor else parameter(value)

    def variable(var: Any) -> Any:
        return renamed[var] if var in renamed else parameter(var)

    ends = [relax.Var("out", output.ty) for output in outputs]
    results = [relax.VarBinding(end, var) for end, var in zip(ends, outputs, strict=True)]
    renamed |= {end: end for end in ends}
    block = relax.DataflowBlock([*bindings, *results])
    seq = relax.SeqExpr([block], relax.Tuple(ends))
    entries = [(relax.Var, variable), (relax.DataflowVar, variable), (tvm.ir.Constant, constant)]
    body = relax.BlockBuilder().normalize(tvm_ffi.structural_map(seq, entries, order="post"))
    func = relax.Function(list(params.values()), body, body.ty, is_pure=True)
    return func.with_attr("global_symbol", "main")
