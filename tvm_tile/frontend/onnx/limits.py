"""Refuse ONNX models that a few bytes make huge, before anything huge is made.

A function that calls itself through others can stand for any number of nodes, and one node for a
tensor of any size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import onnx

from tvm_tile.errors import ModelError, ModelFileError
from tvm_tile.frontend.onnx.kept import MAX_BYTES
from tvm_tile.frontend.onnx.rewrite import walk_nodes
from tvm_tile.frontend.onnx.types import static_extents

#: Nodes of a model once its functions are written out.
MAX_NODES = 200_000
#: Levels of functions that call others.
MAX_DEPTH = 100


def require_few_nodes(model: onnx.ModelProto) -> None:
    """Count the nodes that a model has once its functions are written out.

    Raises:
        ModelFileError: a function calls itself.
        ModelError: there are more than ``MAX_NODES``.
    """
    functions = {(f.domain, f.name): f for f in model.functions}
    counts: dict[tuple[str, str], int] = {}
    path: set[tuple[str, str]] = set()

    def count_function(key: tuple[str, str]) -> int:
        if key in path:
            raise ModelFileError(
                "a function of an ONNX model must not call itself",
                f"{key[1]} does",
                "write the function out without a cycle",
            )
        if len(path) >= MAX_DEPTH:
            raise ModelError(
                f"functions of a model may call each other {MAX_DEPTH} levels deep",
                f"{key[1]} is called deeper",
                "write some of the functions out",
            )
        if key not in counts:
            path.add(key)
            counts[key] = count_nodes(functions[key])
            path.remove(key)
        return counts[key]

    def count_nodes(body: onnx.GraphProto | onnx.FunctionProto) -> int:
        total = 0
        for node in walk_nodes(body):
            key = node.domain, node.op_type
            total += count_function(key) if key in functions else 1
        return total

    total = count_nodes(model.graph)
    if total > MAX_NODES:
        raise ModelError(
            f"a model may have {MAX_NODES:,} nodes once its functions are written out",
            f"{total:.4g} nodes" if total > 10 * MAX_NODES else f"{total:,} nodes",
            "compile the model in parts",
        )


def require_bounded(types: Mapping[str, onnx.TypeProto.Tensor]) -> None:
    """Look at the shape of every tensor, as far as ONNX infers them.

    Args:
        types: from :func:`tvm_tile.frontend.onnx.types.inferred_types`.

    Raises:
        ModelError: a tensor is larger than ``MAX_BYTES``.
    """
    for name, tensor in types.items():
        extents = static_extents(tensor)
        if extents is None:
            continue
        size = math.prod(extents) * _bytes_per_element(tensor.elem_type)
        if size > MAX_BYTES:
            raise ModelError(
                f"every tensor of a model must be at most {MAX_BYTES >> 30} GiB",
                f"{name!r} of shape {extents} has {size / 2**30:.4g} GiB",
                "give smaller inputs, or compute this tensor in parts",
            )


def _bytes_per_element(code: int) -> int:
    try:
        return int(onnx.helper.tensor_dtype_to_np_dtype(code).itemsize)
    except KeyError:
        return 1
