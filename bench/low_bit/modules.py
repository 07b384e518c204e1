"""The products as Relax modules whose weights are inputs, codes already.

So nothing depends on what codes there are: a module takes a second to compile and saved models are
small, however large the matrix. ``tests/ir/test_bench_low_bit_run.py`` checks that the kernel is
the same as where a model's weights are constants.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax

from bench.low_bit.formats import LowBit
from tvm_tile.graph.tensor_format import Integers
from tvm_tile.loops.decoding import decoding_loops

_HALF, _FLOAT = "float16", "float32"


def float_module(vectors: int, rows: int, depth: int) -> tuple[tvm.IRModule, int]:
    """The product of halves, and how many of its last inputs are weights.

    Inputs are the vectors and the matrix, (rows, depth).
    """
    builder = relax.BlockBuilder()
    x, w = _var("x", (vectors, depth), _HALF), _var("w", (rows, depth), _HALF)
    with builder.function("main", [x, w]):
        with builder.dataflow():
            output = builder.emit_output(_product(builder, x, w, None))
        builder.emit_func_output(output)
    return builder.get(), 1


def coded_module(low: LowBit, vectors: int, rows: int, depth: int) -> tuple[tvm.IRModule, int]:
    """The product with codes, and how many of its last inputs are weights.

    Inputs are the vectors, then, unless these are halves, their scales (vectors, 1), then what is
    kept of the matrix, and at last, unless the vectors are halves, the rows' scales (1, rows).
    """
    builder = relax.BlockBuilder()
    x = _var("x", (vectors, depth), low.vectors)
    own, of_rows = _var("own", (vectors, 1), _FLOAT), _var("of_rows", (1, rows), _FLOAT)
    given, matrix, decode = _matrix(low, rows, depth)
    last = [] if low.is_weight_only else [of_rows]
    first = [x] if low.is_weight_only else [x, own]
    with builder.function("main", [*first, *given, *last]):
        with builder.dataflow():
            w = given[0]
            if decode is not None:
                function = builder.add_func(decode, "decode")
                w = builder.emit(relax.call_tir(function, list(given), matrix))
            if low.is_weight_only:
                result = _product(builder, x, w, None)
            else:
                wide = "int32" if isinstance(low.code, Integers) else _FLOAT
                sums = relax.op.astype(_product(builder, x, w, wide), _FLOAT)
                scaled = relax.op.multiply(relax.op.multiply(sums, own), of_rows)
                result = relax.op.astype(scaled, _HALF)
            output = builder.emit_output(result)
        builder.emit_func_output(output)
    return builder.get(), len(given) + len(last)


def _matrix(low: LowBit, rows: int, depth: int) -> tuple[Sequence[Any], Any, Any]:
    """The inputs that are kept of a matrix; its type, and the function that decodes it, if any."""
    if not low.is_decoded:
        return [_var("w", (rows, depth), low.vectors)], None, None
    decode = decoding_loops(low.format(depth), (rows, depth))
    types = [relax.TensorType([int(e) for e in p.ty.shape], str(p.ty.dtype)) for p in decode.params]
    *kept, matrix = types
    return [relax.Var(f"w{place}", ty) for place, ty in enumerate(kept)], matrix, decode


def _var(name: str, shape: Sequence[int], dtype: str) -> relax.Var:
    return relax.Var(name, relax.TensorType(list(shape), dtype))


def _product(builder: relax.BlockBuilder, x: Any, w: Any, dtype: str | None) -> Any:
    return relax.op.matmul(x, builder.emit(relax.op.permute_dims(w)), out_dtype=dtype)
