"""Which Relax operators have loops of ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from tvm_tile.loops.arithmetic import product_of_two, quotient_of_two, sum_of_two
from tvm_tile.loops.choice import choice
from tvm_tile.loops.extremes import argument_of_largest, argument_of_smallest
from tvm_tile.loops.gather import gather_elements, gather_nd, index_tensor, take
from tvm_tile.loops.norms import group_norm, instance_norm
from tvm_tile.loops.pooling import windows_of_maxima
from tvm_tile.loops.scans import products, sums
from tvm_tile.loops.scatter import index_put, scatter_elements, scatter_nd
from tvm_tile.loops.sorting import argsort, sort, topk
from tvm_tile.loops.transposed import transposed_convolution

Legalization = Callable[[Any, Any], Any]
"""``(relax.BlockBuilder, relax.Call) -> relax.Expr``: what a call of an operator becomes."""

LEGALIZATIONS: Mapping[str, Legalization] = MappingProxyType(
    {
        "relax.add": sum_of_two,
        "relax.argmax": argument_of_largest,
        "relax.argmin": argument_of_smallest,
        "relax.argsort": argsort,
        "relax.cumprod": products,
        "relax.cumsum": sums,
        "relax.divide": quotient_of_two,
        "relax.gather_elements": gather_elements,
        "relax.gather_nd": gather_nd,
        "relax.index_put": index_put,
        "relax.index_tensor": index_tensor,
        "relax.multiply": product_of_two,
        "relax.nn.conv1d_transpose": transposed_convolution,
        "relax.nn.conv2d_transpose": transposed_convolution,
        "relax.nn.conv3d_transpose": transposed_convolution,
        "relax.nn.group_norm": group_norm,
        "relax.nn.instance_norm": instance_norm,
        "relax.nn.max_pool1d": windows_of_maxima,
        "relax.nn.max_pool2d": windows_of_maxima,
        "relax.nn.max_pool3d": windows_of_maxima,
        "relax.scatter_elements": scatter_elements,
        "relax.scatter_nd": scatter_nd,
        "relax.sort": sort,
        "relax.take": take,
        "relax.topk": topk,
        "relax.where": choice,
    }
)
"""Name of a Relax operator -> its legalization, for ``LegalizeOps``; TVM has the others'."""
