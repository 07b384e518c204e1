"""Table of the Relax operators that have loops of ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from tvm import relax

from tvm_tile.graph.arrays import known_extents
from tvm_tile.loops.arithmetic import (
    division,
    negated,
    power,
    product_of_two,
    shift,
    sign,
    sum_of_two,
)
from tvm_tile.loops.choice import choice
from tvm_tile.loops.extremes import argument_of_largest, argument_of_smallest
from tvm_tile.loops.filling import filled
from tvm_tile.loops.gather import gather_elements, gather_nd, index_tensor, take
from tvm_tile.loops.norms import group_norm, instance_norm
from tvm_tile.loops.pooling import windows_of_maxima
from tvm_tile.loops.scans import products, sums
from tvm_tile.loops.scatter import index_put, scatter_elements, scatter_nd
from tvm_tile.loops.sorting import argsort, sort, topk
from tvm_tile.loops.transposed import transposed_convolution

Legalization = Callable[[Any, Any], Any]
"""``(relax.BlockBuilder, relax.Call) -> relax.Expr``: what a call of an operator becomes."""


def has_open_extents(call: Any) -> bool:
    """Whether an extent of an operator's tensors is known only when it runs."""
    return any(not _is_static(arg.ty) for arg in (call, *call.args))


def _is_static(ty: Any) -> bool:
    """Whether all extents of a type are known."""
    if isinstance(ty, relax.TupleType):
        return all(map(_is_static, ty.fields))
    if not isinstance(ty, relax.TensorType):
        return True
    return known_extents(ty.shape) is not None


def _unless_open(own: Legalization) -> Legalization:
    """Loops of ours for tensors of known extents, else TVM's."""

    def legalized(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        loops = call.op.get_attr("FLegalize") if has_open_extents(call) else own
        return loops(builder, call)

    return legalized


LEGALIZATIONS: Mapping[str, Legalization] = MappingProxyType(
    {
        "relax.add": sum_of_two,
        "relax.argmax": _unless_open(argument_of_largest),
        "relax.argmin": _unless_open(argument_of_smallest),
        "relax.argsort": argsort,
        "relax.cumprod": products,
        "relax.cumsum": sums,
        "relax.divide": division,
        "relax.floor_divide": division,
        "relax.floor_mod": division,
        "relax.full": filled,
        "relax.full_like": filled,
        "relax.gather_elements": gather_elements,
        "relax.gather_nd": gather_nd,
        "relax.index_put": _unless_open(index_put),
        "relax.index_tensor": index_tensor,
        "relax.mod": division,
        "relax.left_shift": shift,
        "relax.multiply": product_of_two,
        "relax.negative": negated,
        "relax.nn.conv1d_transpose": transposed_convolution,
        "relax.nn.conv2d_transpose": transposed_convolution,
        "relax.nn.conv3d_transpose": transposed_convolution,
        "relax.nn.group_norm": _unless_open(group_norm),
        "relax.nn.instance_norm": _unless_open(instance_norm),
        "relax.nn.max_pool1d": _unless_open(windows_of_maxima),
        "relax.nn.max_pool2d": _unless_open(windows_of_maxima),
        "relax.nn.max_pool3d": _unless_open(windows_of_maxima),
        "relax.power": power,
        "relax.right_shift": shift,
        "relax.scatter_elements": _unless_open(scatter_elements),
        "relax.scatter_nd": scatter_nd,
        "relax.sign": sign,
        "relax.sort": sort,
        "relax.take": take,
        "relax.topk": topk,
        "relax.where": choice,
    }
)
"""Name of a Relax operator -> its legalization, for ``LegalizeOps``; TVM has the others'."""
