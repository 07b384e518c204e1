"""Products whose operands' rows begin anywhere read copies with aligned rows, where that pays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import ir, relax, te, tirx
from tvm.relax.expr_functor import mutator
from tvm.s_tir import SBlock, SBlockRealize

from tvm_tile.device.device import VECTOR_BYTES, Device
from tvm_tile.graph.constant_tensors import constant_of_parts, elements_of
from tvm_tile.graph.extract import extract, nodes_in
from tvm_tile.graph.tile_graph import Access, Operator
from tvm_tile.passes.ir.rewriter import ModuleRewriter, is_call_tir
from tvm_tile.passes.scheduling.first_choices import FirstChoices, content_of
from tvm_tile.passes.weld.fuse_tiles import Predict
from tvm_tile.schedule.s_tir.steps import replace_parts
from tvm_tile.tile.classify import is_product

_WORTHWHILE = 0.9  # of what the product takes as it is
_HALVES = ("float16", "bfloat16")
_CHUNK = (
    64  # elements of a sum that come at once: of shorter ones the store takes most, which stays
)


@tvm.transform.module_pass(opt_level=0, name="AlignRows")
@dataclass(frozen=True, slots=True)
class AlignRows:
    """Give products operands whose rows are whole vectors, where that takes less time.

    before: ``y = call_tir(product, (x, w))`` of ``x[m, 4071]`` and ``w[n, 4071]``
    after:  ``x' = call_tir(padded, (x,))``, ``w' = call_tir(padded, (w,))``, with zeros behind
            ``y = call_tir(product', (x', w'))`` of ``x'[m, 4072]`` and ``w'[n, 4072]``

    The tensor memory accelerator, and with it the fastest instructions, takes tensors whose rows
    begin at whole 16 bytes; other copies take several times the instructions where they do not.
    Constants are padded once, when the model is compiled. What is computed stays the same: zeros
    are added to sums. Whether the copies pay, the model of time says; of sums shorter than a chunk,
    which last as long as their store does, it is not asked (measured, H200: 11 deep, 2 x slower).

    Args:
        device: the device that the kernels are made for.
        predict: scheduler of functions, shared with whoever schedules them afterwards.
        refused: why functions must not be made of others, by their contents.
    """

    device: Device
    predict: Predict | None = None
    refused: Mapping[Any, str] | None = None

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        found = {
            var: product
            for var, func in mod.functions_items()
            if isinstance(func, tirx.PrimFunc) and (product := Misaligned.of(func)) is not None
        }
        if not found:
            return mod
        predict = self.predict or FirstChoices(self.device)
        changed = _Aligning(mod, found, predict, self.refused or {}).rewritten(mod)
        return relax.transform.DeadCodeElimination()(changed)


@dataclass(frozen=True, slots=True)
class Misaligned:
    """A product in halves, some of whose operands have rows that begin anywhere.

    Attributes:
        func: the function that it is in.
        shapes: places of parameters -> the extents that they are to have.
        depth: the extent of the sum, and what it is to be.
    """

    func: tirx.PrimFunc
    shapes: dict[int, tuple[int, ...]]
    depth: tuple[int, int]

    @classmethod
    def of(cls, func: tirx.PrimFunc) -> Misaligned | None:
        """The product of a function; ``None`` where it has none, or where all rows are aligned."""
        graph = extract(func)
        if graph is None or len(graph.reductions) != 1:
            return None
        (product,) = graph.reductions
        summed = [axis for axis in product.reduce_axes if axis.extent > 1]
        others = {r.tensor.name for o in graph.operators if o is not product for r in o.reads}
        plain = all(_is_plain(r, product) and r.tensor.name not in others for r in product.reads)
        if not (is_product(product) and len(summed) == 1 and plain):
            return None
        (depth,) = summed
        if depth.extent < _CHUNK:
            return None
        rows = [read.indices[-1].terms for read in product.reads]
        is_deeper = any(terms == ((depth.name, 1),) for terms in rows)
        extent = _whole(depth.extent) if is_deeper else depth.extent
        names = [str(param.name) for param in func.params]
        shapes = {}
        for read in product.reads:
            own = [
                extent if index.terms == ((depth.name, 1),) else size
                for index, size in zip(read.indices, read.tensor.shape, strict=True)
            ]
            own[-1] = _whole(own[-1])
            if tuple(own) == read.tensor.shape:
                continue
            if read.tensor.name not in names:
                return None  # the function makes it itself
            shapes[names.index(read.tensor.name)] = tuple(own)
        return cls(func, shapes, (depth.extent, extent)) if shapes else None

    def aligned(self) -> tirx.PrimFunc:
        """The function that takes the operands with the extents that they are to have."""
        params, before = list(self.func.params), self.func.params
        for place, shape in self.shapes.items():
            old = before[place]
            kinds = [str(extent.ty.dtype) for extent in old.ty.shape]  # no index has two of them
            extents = [tirx.const(own, kind) for own, kind in zip(shape, kinds, strict=True)]
            params[place] = tirx.decl_buffer(extents, str(old.ty.dtype), str(old.name))

        def renewed(buffer: Any) -> Any:
            return next((params[p] for p in self.shapes if buffer.same_as(before[p])), buffer)

        def load(node: ir.TensorLoad) -> ir.TensorLoad:
            return tirx.BufferLoad(renewed(node.source), list(node.indices))

        def block(node: SBlock) -> SBlock:
            reads = [tirx.BufferRegion(renewed(r.source), list(r.region)) for r in node.reads]
            axes = [self._deeper(axis) for axis in node.iter_vars]
            return replace_parts(node, reads=reads, iter_vars=axes)

        deep = self._loops()

        def loop(node: tirx.For) -> tirx.For:
            if not any(node.loop_var.same_as(own) for own in deep):
                return node
            extent = tirx.const(self.depth[1], str(node.extent.ty.dtype))
            return tirx.For(node.loop_var, node.min, extent, node.kind, node.body)

        entries = [(ir.TensorLoad, load), (SBlock, block), (tirx.For, loop)]
        body = tvm_ffi.structural_map(self.func.body, entries, order="post")
        return tirx.PrimFunc(params, body, self.func.ret_type, self.func.attrs)

    def _deeper(self, axis: Any) -> Any:
        """A block's axis, as long as the sum is to be if it is summed."""
        if not self._is_summed(axis):
            return axis
        extent = tirx.const(self.depth[1], str(axis.dom.extent.ty.dtype))
        dom = ir.Range.from_min_extent(axis.dom.min, extent)
        return tirx.IterVar(dom, axis.var, axis.iter_type)

    def _loops(self) -> list[Any]:
        """The variables of loops along the sum."""
        return [
            value
            for realize in nodes_in(self.func.body, SBlockRealize)
            for axis, value in zip(realize.block.iter_vars, realize.iter_values, strict=True)
            if self._is_summed(axis)
        ]

    def _is_summed(self, axis: Any) -> bool:
        """Whether a block's axis is the sum's."""
        is_reduced = axis.iter_type == tirx.IterVar.CommReduce
        return is_reduced and int(axis.dom.extent) == self.depth[0]


def _is_plain(read: Access, product: Operator) -> bool:
    """Whether a read is a whole tensor of halves, each of whose dimensions is an axis."""
    extents = {axis.name: axis.extent for axis in product.axes}
    whole = all(
        not index.offset
        and (size == 1 or [(extents[name], c) for name, c in index.terms] == [(size, 1)])
        for index, size in zip(read.indices, read.tensor.shape, strict=True)
    )
    return whole and not read.is_computed and read.tensor.dtype in _HALVES


def _whole(extent: int) -> int:
    """An extent of halves, up to whole vectors."""
    lanes = VECTOR_BYTES // 2
    return -(-extent // lanes) * lanes


def padding(param: Any, shape: tuple[int, ...]) -> tirx.PrimFunc:
    """The function that copies a tensor into a larger one, with zeros behind each dimension."""
    extents = [int(extent) for extent in param.ty.shape]
    source = te.placeholder(extents, str(param.ty.dtype), "source")

    def element(*place: Any) -> Any:
        tests = [i < old for i, old, new in zip(place, extents, shape, strict=True) if old < new]
        return tirx.if_then_else(tirx.all(*tests), source(*place), tirx.const(0, source.dtype))

    padded = te.compute(shape, element, "padded")
    return te.create_prim_func([source, padded]).without_attr("global_symbol")


@dataclass(frozen=True, slots=True)
class _Aligned:
    """Functions that take the place of a product's, in the module that is made.

    Attributes:
        var: variable of the product of aligned operands.
        copies: places of operands that are copied at each call -> variable of what copies them.
    """

    var: Any
    copies: dict[int, Any]


@mutator
class _Aligning(ModuleRewriter):
    """Pads what products read."""

    def __init__(
        self,
        mod: tvm.IRModule,
        products: Mapping[Any, Misaligned],
        predict: Predict,
        refused: Mapping[Any, str],
    ) -> None:
        super().__init__(mod)
        self._products, self._predict, self._refused = products, predict, refused
        self._constants: dict[Any, relax.Expr] = {}
        self._aligned: dict[Any, _Aligned | None] = {}

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        product = self._products.get(call.args[0]) if is_call_tir(call) else None
        if product is None or not isinstance(call.args[1], relax.Tuple):
            return call
        args = list(call.args[1].fields)
        places = tuple(p for p in product.shapes if not isinstance(args[p], ir.Constant))
        key = call.args[0], places
        if key not in self._aligned:
            self._aligned[key] = self._faster(*key)
        aligned = self._aligned[key]
        if aligned is None:
            return call
        for place, shape in product.shapes.items():
            if place in aligned.copies:
                ty = relax.TensorType(list(shape), str(product.func.params[place].ty.dtype))
                copy = relax.call_tir(aligned.copies[place], [args[place]], ty)
                args[place] = self.builder_.emit(copy)
            else:
                args[place] = self._padded(args[place], shape)
        return relax.call_tir(aligned.var, args, call.ty_args[0])

    def _faster(self, var: Any, places: tuple[int, ...]) -> _Aligned | None:
        """The functions that take a product's place, where they take less time.

        Args:
            var: variable of the product's function.
            places: positions of those operands that are copied at each call.
        """
        product, name = self._products[var], str(var.name_hint)
        aligned = product.aligned()
        copies = {p: padding(product.func.params[p], product.shapes[p]) for p in places}
        if content_of(aligned) in self._refused or not self._pays(product, aligned, copies):
            return None
        own = {p: self.builder_.add_func(f, f"{name}_padded") for p, f in copies.items()}
        return _Aligned(self.builder_.add_func(aligned, name), own)

    def _pays(
        self, product: Misaligned, aligned: tirx.PrimFunc, copies: Mapping[int, tirx.PrimFunc]
    ) -> bool:
        """Whether copies and the aligned product are predicted to take clearly less time."""
        now = self._predict(product.func, None)
        if now is None or now.rule.is_timed_inside:
            return False
        left = _WORTHWHILE * now.seconds
        for func in (aligned, *copies.values()):
            own = self._predict(func, None)
            if own is None or own.seconds >= left:
                return False
            left -= own.seconds
        return True

    def _padded(self, constant: Any, shape: tuple[int, ...]) -> relax.Expr:
        """A constant with zeros behind each of its dimensions."""
        if (constant, shape) not in self._constants:
            elements = elements_of(constant)
            whole = np.zeros(shape, elements.dtype)
            whole[tuple(slice(extent) for extent in elements.shape)] = elements
            padded = constant_of_parts([whole], 0, str(constant.ty.dtype))
            self._constants[constant, shape] = padded
        return self._constants[constant, shape]
