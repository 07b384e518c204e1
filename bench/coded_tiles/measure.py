"""Builds every tile of a product with codes, and measures it beside others' kernels."""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
import tvm
from tvm import relax, te, tirx

from bench.coded_tiles.record import MeasuredTile, shape_of
from bench.functions import build_functions
from bench.gpu import Stage
from bench.open_shapes.record import Provenance
from bench.protocol import relative_error
from tvm_tile.device import Device
from tvm_tile.graph.extract import extract
from tvm_tile.graph.tensor_format import Integers, Shared, TensorFormat
from tvm_tile.loops.decoding import decoding_loops
from tvm_tile.loops.rows import number
from tvm_tile.passes.operators.group_products import own_matrices
from tvm_tile.passes.weld.one_function import one_function
from tvm_tile.schedule.coded.find import find_coded
from tvm_tile.schedule.coded.kernel import write_coded
from tvm_tile.schedule.rule import Task, as_written
from tvm_tile.tile.coded.few_vectors import CodedProduct, CodedTile, construct_coded
from tvm_tile.tile.rules import CODED

_DTYPE, _WIDE = "float16", "float32"
_MATRIX = 2  # dimensions
_REPEATS, _PEER_REPEATS = 9, 15
_BITS = 4  # of what PyTorch's product takes; two such codes are a byte
_INNER_TILES = 8  # of PyTorch's layout of codes


@dataclass(frozen=True, slots=True)
class Operands:
    """A product's inputs, as torch tensors of one device.

    Attributes:
        packed: codes, uint8, shape (rows, depth / 2); the even element is in the low bits.
        scale: float16, shape (rows, depth / group).
        vectors: float16, shape (vectors, depth).
        bias: float16, shape (rows,).
    """

    packed: Any
    scale: Any
    vectors: Any
    bias: Any

    @property
    def matrix(self) -> Any:
        """What the codes stand for, float16, shape (rows, depth)."""
        rows, groups = self.scale.shape
        codes = torch.stack((self.packed & 15, self.packed >> _BITS), -1).reshape(rows, groups, -1)
        return (codes.half() * self.scale.unsqueeze(-1)).reshape(rows, -1)


def product_of(vectors: int, rows: int, depth: int, group: int) -> CodedProduct:
    """With codes of 4 bits and scales of float16."""
    return CodedProduct(vectors, rows, depth, _BITS, group, rows * depth // group * 2)


def function_of(product: CodedProduct) -> tirx.PrimFunc:
    """What decodes the matrix, multiplies, adds a bias and clips at zero, as one function.

    Its parameters are those of :class:`Operands`, and the result: float16, (vectors, rows).
    """
    scale = Shared((1, product.group), _DTYPE, _DTYPE)
    form = TensorFormat(Integers(product.bits, False), "int32", _DTYPE, None, (scale,))
    shape = product.rows, product.depth
    return with_decoded(form, shape, (product.vectors, product.depth))


def with_decoded(
    form: TensorFormat,
    shape: tuple[int, ...],
    vectors: tuple[int, int],
    skipped: int = 0,
    *,
    gated: bool = False,
    normed: bool = False,
) -> tirx.PrimFunc:
    """A product with a matrix that is kept in a format, a bias and a ReLU, as one function.

    Args:
        form: how the matrix is kept; its values' type is that of all tensors.
        shape: of the matrix, (rows, depth); or of a stack of matrices, of which each vector has the
            one that a parameter more tells, its number.
        vectors: how many, and of how many elements each.
        skipped: elements of a vector ahead of those that the matrix is multiplied with.
        gated: SwiGLU of the columns' halves instead of the ReLU.
        normed: vectors are first divided by their root mean square, and weighed.
    """
    decode = decoding_loops(form, shape)
    types = [relax.TensorType([int(e) for e in p.ty.shape], str(p.ty.dtype)) for p in decode.params]
    *coded, matrix = types
    given = [relax.Var(f"p{place}", ty) for place, ty in enumerate(coded)]
    x = relax.Var("x", relax.TensorType(vectors, form.dtype))
    bias = relax.Var("bias", relax.TensorType(shape[-2:-1], form.dtype))
    ids = [relax.Var("ids", relax.TensorType(vectors[:1], "int64"))] * (len(shape) > _MATRIX)
    weighing = [relax.Var("g", relax.TensorType(vectors[1:], form.dtype))] if normed else []
    builder = relax.BlockBuilder()
    with builder.function("joined", [*given, x, *weighing, bias, *ids]):
        with builder.dataflow():
            w = builder.emit(relax.call_tir(builder.add_func(decode, "decode"), given, matrix))
            x = builder.emit_te(rms_normed, x, *weighing) if normed else x
            operands = x, w, bias, skipped, gated, *ids
            output = builder.emit_output(builder.call_te(multiplied, *operands))
        builder.emit_func_output(output)
    return one_function(builder.get(), "joined")


def operands_of(product: CodedProduct, where: str, seed: int = 0) -> Operands:
    """Random ones on a device of torch's."""
    random = torch.Generator(device=where).manual_seed(seed)
    rows, depth = product.rows, product.depth

    def normal(*shape: int) -> Any:
        return torch.randn(*shape, device=where, generator=random).half()

    bytes_of = (rows, depth * product.bits // 8)
    packed = torch.randint(0, 256, bytes_of, dtype=torch.uint8, device=where, generator=random)
    scale = torch.rand(rows, depth // product.group, device=where, generator=random)
    return Operands(packed, (scale * 0.02 + 0.001).half(), normal(product.vectors, depth),
                    normal(rows))  # fmt: skip


def measure(
    product: CodedProduct,
    device: Device,
    stage: Stage,
    origin: Provenance,
    where: str = "cuda",
    build: Callable[[Mapping[str, Any], Device], Any] = build_functions,
) -> Iterator[MeasuredTile]:
    """Every tile that builds, best ranked first.

    Args:
        product: with codes of 4 bits.
        device: that is built for.
        stage: where runs are timed.
        origin: for the records.
        where: torch's name of the device that has the operands.
        build: scheduled functions by name -> their kernels by name, with the ``names`` that build.
    """
    tiles, scheduled = _scheduled(product, device)
    built = build(scheduled, device)
    operands = operands_of(product, where)
    matrix = operands.matrix
    wanted = _reference(operands, matrix)
    cublas_us = _median_us(stage, lambda: torch.matmul(operands.vectors, matrix.T), _PEER_REPEATS)
    int4pack_us = _int4pack_us(product, operands, stage)
    output = torch.empty_like(wanted, dtype=torch.float16)
    inputs = operands.packed, operands.scale, operands.vectors, operands.bias
    arguments = [tvm.runtime.from_dlpack(tensor) for tensor in (*inputs, output)]
    sizes = product.vectors, product.rows, product.depth, product.bits, product.group
    for name, tile in tiles.items():
        if name not in built.names:
            print(f"does not build: {tile.describe()}", file=sys.stderr)
            continue
        kernel = built[name]
        output.fill_(float("nan"))
        kernel(*arguments)
        stage.synchronize()
        error = relative_error(output, wanted)
        yield MeasuredTile(
            device.name,
            *sizes,
            product.beside,
            *shape_of(tile),
            us=_median_us(stage, lambda kernel=kernel: kernel(*arguments), _REPEATS),
            repeats=_REPEATS,
            error=error if math.isfinite(error) else None,
            cublas_us=cublas_us,
            int4pack_us=int4pack_us,
            provenance=origin,
            instructions=product.instructions,
        )


def rms_normed(x: Any, g: Any) -> Any:
    """Rows divided by their root mean square, which is float32's, and weighed."""
    vectors, length = x.shape
    k, dtype = te.reduce_axis((number(0), length), "k"), str(x.dtype)

    def squared(m: Any) -> Any:
        return te.sum(x[m, k].astype(_WIDE) * x[m, k].astype(_WIDE), axis=k)

    squares = te.compute((vectors,), squared, name="squares")

    def divided(m: Any, i: Any) -> Any:
        mean = squares[m] / tirx.const(int(length), _WIDE) + tirx.const(1e-5, _WIDE)
        return (x[m, i].astype(_WIDE) * tirx.rsqrt(mean)).astype(dtype) * g[i]

    return te.compute(x.shape, divided, name="normed")


def multiplied(x: Any, w: Any, bias: Any, skipped: int, gated: bool, ids: Any = None) -> Any:
    *_, columns, depth = w.shape
    k, dtype = te.reduce_axis((number(0), depth), "k"), str(x.dtype)
    if ids is not None:
        own = own_matrices(w, ids)

    def summed(m: Any, n: Any) -> Any:
        weight = w[n, k] if ids is None else own[m, n, k]
        return te.sum(x[m, k + skipped].astype(_WIDE) * weight.astype(_WIDE), axis=k)

    sums = te.compute((x.shape[0], columns), summed, name="sums")

    def biased(m: Any, n: Any) -> Any:
        return sums[m, n].astype(dtype) + bias[n]

    def swiglu(m: Any, n: Any) -> Any:
        gate, up = biased(m, n).astype(_WIDE), biased(m, n + columns // 2).astype(_WIDE)
        return (gate * tirx.sigmoid(gate) * up).astype(dtype)

    if gated:
        return te.compute((x.shape[0], columns // number(2)), swiglu, name="out")
    zero = tirx.const(0, dtype)
    return te.compute(sums.shape, lambda m, n: tirx.max(biased(m, n), zero), name="out")


def _scheduled(
    product: CodedProduct, device: Device
) -> tuple[dict[str, CodedTile], dict[str, tirx.PrimFunc]]:
    """Tiles, and their scheduled functions, by names that they share."""
    func = function_of(product)
    graph = extract(func)
    found = graph and find_coded(Task(func, graph, device))
    # Of tiles that scale weights there are no records.
    if not found or found.sizes not in (product, replace(product, may_scale_weights=True)):
        raise ValueError(f"the rule finds another product than {product}")
    tiles = {f"tile{rank}": tile for rank, tile in enumerate(construct_coded(product, device))}
    made = {
        name: as_written(write_coded(found, tile, device), CODED, tile).func.with_attr(
            "tirx.is_scheduled", True
        )
        for name, tile in tiles.items()
    }
    return tiles, made


def _reference(operands: Operands, matrix: Any) -> Any:
    """In float64."""
    return torch.relu(operands.vectors.double() @ matrix.double().T + operands.bias.double())


def _int4pack_us(product: CodedProduct, operands: Operands, stage: Stage) -> float | None:
    """Of PyTorch's product with codes of 4 bits; ``None`` where there is none."""
    packed = operands.packed
    try:
        codes = torch._convert_weight_to_int4pack((packed & 15) << _BITS | packed >> _BITS,
                                                  _INNER_TILES)  # fmt: skip
        scale = operands.scale.bfloat16()
        both = torch.stack((scale, torch.zeros_like(scale)), -1).transpose(0, 1).contiguous()
        x = operands.vectors.bfloat16()

        def run() -> Any:
            return torch._weight_int4pack_mm(x, codes, product.group, both)

        return _median_us(stage, run, _PEER_REPEATS)
    except (RuntimeError, NotImplementedError) as error:
        print(f"no int4pack: {error}", file=sys.stderr)
        return None


def _median_us(stage: Stage, run: Callable[[], Any], repeats: int) -> float:
    return round(statistics.median(stage.time(run, repeats, cold=True)) * 1e6, 3)
