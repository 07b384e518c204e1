"""The recursive autoencoder as a Relax module, whose function calls itself for each child."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tvm import ir, relax
from tvm.relax import op

from bench.suites.networks.recursive_autoencoder import RecursiveAutoencoder
from tvm_tile.frontend.loops import either


def recursive_module(module: RecursiveAutoencoder) -> ir.IRModule:
    """The same function of the same inputs, with the module's weights and its tree.

    Node after node is asked on the device whether it is a leaf: how deep the tree is, and what it
    looks like, the kernels do not know. In Relax::

        encode(node, x) = if left[node] < 0: x[node]
                          else: tanh([encode(left[node], x), encode(right[node], x)] @ w + b)
        main(x) = encode(root, x)
    """
    left, right = (relax.const(tree.cpu().numpy(), "int64") for tree in (module.left, module.right))
    nodes, hidden = len(module.left), module.encode.out_features
    vectors = relax.TensorType((nodes, hidden), "float32")
    builder = relax.BlockBuilder()
    encode = _encode(builder, module, (left, right), vectors)
    x = relax.Var("x", vectors)
    with builder.function("main", [x]):
        made = builder.emit(relax.Call(encode, [relax.const(nodes - 1, "int64"), x]))
        builder.emit_func_output(builder.emit(op.reshape(made, (hidden,))))
    return builder.get()


def _encode(
    builder: relax.BlockBuilder,
    module: RecursiveAutoencoder,
    trees: tuple[Any, Any],
    vectors: relax.TensorType,
) -> ir.GlobalVar:
    """Write the function that calls itself."""
    weight, bias = (_constant(p) for p in (module.encode.weight.t(), module.encode.bias))
    node, x = relax.Var("node", relax.TensorType((), "int64")), relax.Var("x", vectors)
    result = relax.TensorType((1, module.encode.out_features), "float32")
    encode = ir.GlobalVar("encode")
    relax.expr._update_type(encode, relax.FuncType([node.ty, x.ty], result))
    left, right = trees

    def leaf() -> Any:
        return op.reshape(builder.emit(op.take(x, node, axis=0)), result.shape)

    def inner() -> Any:
        second = builder.emit(op.take(right, node, axis=0))
        parts = [builder.emit(relax.Call(encode, [child, x])) for child in (first, second)]
        product = builder.emit(op.matmul(builder.emit(op.concat(parts, axis=1)), weight))
        return op.tanh(builder.emit(op.add(product, bias)))

    builder.begin_scope([node, x])
    builder._begin_binding_block()
    first = builder.emit(op.take(left, node, axis=0))
    is_leaf = builder.emit(op.less(first, relax.const(0, "int64")))
    made = either(builder, is_leaf, leaf, inner)
    body = builder.normalize(relax.SeqExpr([builder._end_block()], made))
    builder.end_scope()
    builder.update_func(encode, relax.Function([node, x], body, result))
    return encode


def _constant(tensor: torch.Tensor) -> Any:
    return relax.const(np.ascontiguousarray(tensor.detach().cpu().numpy()))
