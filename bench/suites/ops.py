"""Roller's 119 operators, in float32 as there and in float16."""

from __future__ import annotations

from bench.suites.facts import read_facts, sizes
from bench.workload import Case, Workload

SOURCE = (
    "Zhu et al., ROLLER: Fast and Efficient Tensor Compilation for Deep Learning (OSDI 2022), "
    "Table 1's operators of ResNet-50, NASNet, BERT-Large and LSTM at batch 128; "
    "github.com/microsoft/nnfusion, branch osdi22_artifact"
)
DTYPES = ("float32", "float16")


def workloads() -> tuple[Workload, ...]:
    """All operators in float32, then all in float16."""
    operators = read_facts("roller_ops")["operators"]
    return tuple(
        Workload("ops", o["id"], o["family"], dtype, None, sizes(o["sizes"]))
        for dtype in DTYPES
        for o in operators
    )


def case(workload: Workload) -> Case:
    """The operator; of any sizes."""
    from bench.suites import operators

    build = {
        "conv": operators.convolution,
        "matmul": operators.product,
        "depthwise": operators.depthwise,
        "elementwise": operators.relu,
        "pooling": operators.pooling,
        "reduce": operators.row_sum,
    }
    return build[workload.family](workload)
