"""Products with matrices of codes, as one function each."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import relax, te, tirx

from tvm_tile.device import find_device
from tvm_tile.graph.extract import extract
from tvm_tile.graph.tensor_format import Code, Floats, Integers, Shared, TensorFormat
from tvm_tile.loops.decoding import decoding_loops
from tvm_tile.loops.rows import number
from tvm_tile.passes.one_function import one_function
from tvm_tile.schedule.coded import schedule_coded
from tvm_tile.schedule.rule import Choice, Task

A100, H200 = (find_device(f"nvidia/{name}") for name in ("a100", "h200"))
SIGNED = Integers(4, is_signed=True)


@dataclass(frozen=True, slots=True)
class Case:
    """A product, a bias and an activation.

    The vectors are elements of longer ones: some are skipped before them, and some lie behind.
    """

    vectors: int
    rows: int
    depth: int
    code: Code = SIGNED
    group: int = 128
    zero: str = ""
    zero_group: int = 0
    rows_group: int = 1
    dtype: str = "float16"
    scale: str | Floats | None = None
    skipped: int = 0
    behind: int = 0

    @property
    def width(self) -> int:
        """Of the longer vectors."""
        return self.skipped + self.depth + self.behind

    @property
    def format(self) -> TensorFormat:
        """Of the matrix."""
        box = (self.rows_group, self.group)
        zeros = (1, self.zero_group or self.group)
        zero = Shared(zeros, self.zero, self.dtype) if self.zero else None
        is_other = self.scale is not None and self.scale != self.dtype
        step = "float32" if is_other else self.dtype
        scale = Shared(box, self.scale or self.dtype, step)
        entry = "int32" if isinstance(self.code, Integers) else "float32"
        return TensorFormat(self.code, entry, self.dtype, zero, (scale,))


def function(case: Case) -> tirx.PrimFunc:
    """What decodes the matrix, and the product, as one function."""
    shape = (case.rows, case.depth)
    vectors, rows, depth = map(number, (case.vectors, case.rows, case.depth))
    decode = decoding_loops(case.format, shape)
    x = te.placeholder((vectors, number(case.width)), case.dtype, "x")
    w, bias = (
        te.placeholder((rows, depth), case.dtype, "w"),
        te.placeholder((rows,), case.dtype, "bias"),
    )
    k = te.reduce_axis((number(0), depth), "k")
    wide = "float32"
    sums = te.compute(
        (vectors, rows),
        lambda m, n: te.sum(x[m, k + case.skipped].astype(wide) * w[n, k].astype(wide), axis=k),
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
        relax.Var("x", relax.TensorType((case.vectors, case.width), case.dtype)),
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
