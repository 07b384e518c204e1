"""Products with matrices of codes: kernels' texts on the CPU, next to the function as it is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from emulated import all_built, arguments, emulated_error
from tvm import relax, te, tirx
from warp_emulator import COMPILER

from tvm_tile.device import find_device
from tvm_tile.graph.extract import extract
from tvm_tile.graph.tensor_format import Integers, Shared, TensorFormat
from tvm_tile.loops.decoding import decoding_loops
from tvm_tile.loops.rows import number
from tvm_tile.passes.one_function import one_function
from tvm_tile.schedule.coded import schedule_coded
from tvm_tile.schedule.rule import Choice, Task

A100, H200 = (find_device(f"nvidia/{name}") for name in ("a100", "h200"))
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")


SIGNED = Integers(4, is_signed=True)


@dataclass(frozen=True, slots=True)
class Case:
    """A product, a bias and an activation."""

    vectors: int
    rows: int
    depth: int
    code: Integers = SIGNED
    group: int = 128
    zero: str = ""
    zero_group: int = 0
    dtype: str = "float16"

    @property
    def format(self) -> TensorFormat:
        """Of the matrix."""
        zeros = (1, self.zero_group or self.group)
        zero = Shared(zeros, self.zero, self.dtype) if self.zero else None
        scale = Shared((1, self.group), self.dtype, self.dtype)
        return TensorFormat(self.code, "int32", self.dtype, zero, (scale,))


def function(case: Case) -> tirx.PrimFunc:
    """What decodes the matrix, and the product, as one function."""
    shape = (case.rows, case.depth)
    vectors, rows, depth = map(number, (case.vectors, case.rows, case.depth))
    decode = decoding_loops(case.format, shape)
    x = te.placeholder((vectors, depth), case.dtype, "x")
    w, bias = (
        te.placeholder((rows, depth), case.dtype, "w"),
        te.placeholder((rows,), case.dtype, "bias"),
    )
    k = te.reduce_axis((number(0), depth), "k")
    wide = "float32"
    sums = te.compute(
        (vectors, rows),
        lambda m, n: te.sum(x[m, k].astype(wide) * w[n, k].astype(wide), axis=k),
        name="sums",
    )
    out = te.compute(
        sums.shape,
        lambda m, n: tirx.max(sums[m, n].astype(case.dtype) + bias[n], tirx.const(0, case.dtype)),
        name="out",
    )
    product = te.create_prim_func([x, w, bias, out]).without_attr("global_symbol")
    builder = relax.BlockBuilder()
    types = [relax.TensorType([int(e) for e in p.ty.shape], str(p.ty.dtype)) for p in decode.params]
    *coded, matrix = types
    given = [relax.Var(f"p{i}", ty) for i, ty in enumerate(coded)]
    others = [
        relax.Var("x", relax.TensorType((case.vectors, case.depth), case.dtype)),
        relax.Var("bias", relax.TensorType((case.rows,), case.dtype)),
    ]
    with builder.function("joined", [*given, *others]):
        with builder.dataflow():
            var = builder.emit(relax.call_tir(builder.add_func(decode, "decode"), given, matrix))
            args = [others[0], var, others[1]]
            result = relax.TensorType((case.vectors, case.rows), case.dtype)
            made = relax.call_tir(builder.add_func(product, "product"), args, result)
            output = builder.emit_output(builder.emit(made))
        builder.emit_func_output(output)
    return one_function(builder.get(), "joined")


def choices(case: Case, device: object = H200) -> tuple[tirx.PrimFunc, tuple[Choice, ...]]:
    """The function, and what the rule offers for it."""
    func = function(case)
    graph = extract(func)
    assert graph is not None
    return func, tuple(schedule_coded(Task(func, graph, device), 1000))


CASES = [
    Case(1, 64, 512),
    Case(1, 64, 512, Integers(4, is_signed=False), zero="uint8"),
    Case(3, 32, 256, zero="int8"),
    Case(8, 32, 256, group=64),
    Case(9, 16, 128, group=32),
    Case(16, 32, 512, Integers(8, is_signed=True), group=512),
    Case(2, 32, 512, Integers(8, is_signed=False), group=64, zero="uint8"),
    Case(1, 32, 1024, Integers(2, is_signed=False), group=256),
    Case(31, 16, 512, Integers(2, is_signed=True), group=64),
    Case(5, 48, 384, group=384),
    Case(2, 16, 384, group=64, zero="int8", zero_group=96),
]


@needs_compiler
@pytest.mark.parametrize("case", CASES, ids=str)
def test_kernels_compute_what_the_function_does(case: Case, tmp_path: Path) -> None:
    func, found = choices(case)
    assert found
    of = arguments(func)
    for place in {0, len(found) // 2, len(found) - 1}:
        scheduled = found[place]()
        assert scheduled is not None
        folder = tmp_path / str(place)
        folder.mkdir()
        for late in (False, True):
            assert emulated_error(scheduled, of, H200, folder, late=late) < 2e-3, found[place].tile


@pytest.mark.parametrize("device", [A100, H200], ids=lambda d: d.name)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_kernels_build(dtype: str, device: object) -> None:
    _, found = choices(Case(4, 64, 512, zero="int8", dtype=dtype), device)
    scheduled = found[0]()
    assert scheduled is not None
    (kernel,) = all_built(scheduled, device)
    assert kernel.binary


@pytest.mark.parametrize(
    "case",
    [
        Case(33, 64, 512),
        Case(1, 60, 512),
        Case(1, 64, 512, group=16),
        Case(1, 64, 512, Integers(3, is_signed=False)),
        Case(1, 64, 512, Integers(8, is_signed=True), dtype="bfloat16"),
        Case(1, 64, 512, zero="uint8", dtype="bfloat16"),
        Case(1, 64, 512, zero="int32"),
    ],
    ids=str,
)
def test_others_are_left_alone(case: Case) -> None:
    assert not choices(case)[1]
