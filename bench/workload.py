"""What is measured: workloads as data, and how each becomes a module with inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from bench.gpu import Stage

    Look = Callable[[Callable[[], Any], Stage], "Findings"]
    Examine = Callable[[torch.nn.Module, tuple[Any, ...]], Look]

BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "bool": 1}


@dataclass(frozen=True, slots=True)
class Workload:
    """One thing to measure, as its source names it.

    Attributes:
        suite: the suite it belongs to.
        name: the source's own id, such as ``"C0"`` or ``"square_4096"``; unique in the suite
            together with ``dtype`` and ``batch``.
        family: conv, matmul, depthwise, elementwise, pooling, reduce, ...
        dtype: of the floating-point inputs and outputs.
        batch: of a model; None where it means nothing.
        sizes: the source's facts (extents, strides ...), as sorted (key, value) pairs.
    """

    suite: str
    name: str
    family: str
    dtype: str
    batch: int | None
    sizes: tuple[tuple[str, int | str], ...]

    def size(self, key: str) -> Any:
        """One of ``sizes``; KeyError where it is not there."""
        return dict(self.sizes)[key]

    def __str__(self) -> str:
        batch = "" if self.batch is None else f" batch {self.batch}"
        return f"{self.suite} {self.name} {self.dtype}{batch}"


@dataclass(frozen=True, slots=True)
class Input:
    """An input to draw at random: normal of unit variance, or integers below ``below``; or one
    that is ``value`` everywhere."""

    shape: tuple[int, ...]
    dtype: str
    below: int = 0
    value: int | None = None

    @property
    def bytes(self) -> int:
        """Its size in memory."""
        total = BYTES[self.dtype]
        for extent in self.shape:
            total *= extent
        return total


@dataclass(frozen=True, slots=True)
class Findings:
    """What is found of a decoder's steps besides times and the error of the first.

    Attributes:
        steps: whose tokens were compared, of all sequences.
        same_tokens: of these, that are the reference's.
        calls: of one step, whose results were compared.
        differing_calls: of these, with any bit that is another than the first call's.
        chained_ms: of a step, behind others whose tokens it takes on the device.
    """

    steps: int
    same_tokens: int
    calls: int
    differing_calls: int
    chained_ms: float


@dataclass(frozen=True, slots=True)
class Case:
    """A workload that can be run.

    Attributes:
        module: on the CPU, in evaluation mode, its parameters already in the workload's dtype.
            An operator takes all its operands as inputs and has no parameters.
        inputs: what ``module.forward`` takes, in order.
        flops: multiplications and additions of products, convolutions and sums (an FMA is two).
        bytes: the least global-memory traffic: inputs and parameters read once, outputs written
            once.
        reference: dtype in which the reference outputs are computed.
        tolerance: the largest relative error (norm of the difference over norm of the
            reference) that counts as right.
        is_operator: measured with a cold second-level cache and launches hidden; a model is
            measured from an idle device, launches included.
        loop: for workloads of loops, makes the same computation in JAX: a jittable function
            of the same inputs that holds the module's parameters.
        compared: so many outputs, the first, are compared with the reference; None: all.
        examine: of the module in the reference's dtype and the inputs, both on the device, makes
            what looks at a system's runs besides: at a function that enqueues one run on these
            very inputs, which may be written to.
    """

    module: torch.nn.Module
    inputs: tuple[Input, ...]
    flops: float
    bytes: float
    reference: str
    tolerance: float
    is_operator: bool = True
    loop: Callable[[], Callable[..., Any]] | None = None
    compared: int | None = None
    examine: Examine | None = None
