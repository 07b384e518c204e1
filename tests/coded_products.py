"""Products with matrices of codes, as one function each."""

from __future__ import annotations

from dataclasses import dataclass

from emulated import all_built
from tvm import tirx

from bench.coded_tiles.measure import with_decoded
from tvm_tile.device import Device, find_device
from tvm_tile.graph.extract import extract
from tvm_tile.graph.tensor_format import Code, Entries, Floats, Integers, Shared, TensorFormat
from tvm_tile.schedule.coded import schedule_coded
from tvm_tile.schedule.rule import Choice, Task

A100, H200 = (find_device(f"nvidia/{name}") for name in ("a100", "h200"))
SIGNED = Integers(4, is_signed=True)


@dataclass(frozen=True, slots=True)
class Case:
    """A product, a bias and an activation; of gated ones SwiGLU of the columns' halves, of normed
    ones of vectors behind a norm.

    The vectors are elements of longer ones: some are skipped before them, and some lie behind. Of
    two scales, the second one is the whole matrix'. Of several matrices each vector has one, which
    a parameter tells.
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
    scales: int = 1
    skipped: int = 0
    behind: int = 0
    gated: bool = False
    normed: bool = False
    matrices: int = 1

    @property
    def width(self) -> int:
        """Of the longer vectors."""
        return self.skipped + self.depth + self.behind

    @property
    def format(self) -> TensorFormat:
        """Of the matrix."""
        outer = (1,) * (self.matrices > 1)
        box = (*outer, self.rows_group, self.group)
        zeros = (*outer, 1, self.zero_group or self.group)
        zero = Shared(zeros, self.zero, self.dtype) if self.zero else None
        is_other = self.scale is not None and self.scale != self.dtype
        step = "float32" if is_other else self.dtype
        scale = Shared(box, self.scale or self.dtype, step)
        entry = "int32" if isinstance(self.code, Integers) else "float32"
        entry = self.dtype if isinstance(self.code, Entries) else entry
        whole = Shared((*outer, self.rows, self.depth), "float32", "float32")
        return TensorFormat(self.code, entry, self.dtype, zero, (scale, whole)[: self.scales])


def choices(case: Case, device: Device = H200) -> tuple[tirx.PrimFunc, tuple[Choice, ...]]:
    """The function, and what the rule offers for it, of both kernels."""
    stack = (case.matrices,) * (case.matrices > 1)
    shape, vectors = (*stack, case.rows, case.depth), (case.vectors, case.width)
    kinds = {"gated": case.gated, "normed": case.normed}
    func = with_decoded(case.format, shape, vectors, case.skipped, **kinds)
    graph = extract(func)
    assert graph is not None
    return func, tuple(schedule_coded(Task(func, graph, device), 1000))


def assert_builds(case: Case, device: Device) -> None:
    """The best choice becomes machine code."""
    _, found = choices(case, device)
    scheduled = found[0]()
    assert scheduled is not None
    (kernel,) = all_built(scheduled, device)
    assert kernel.binary
