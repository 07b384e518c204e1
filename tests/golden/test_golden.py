"""Scheduled TensorIR of small functions, as text to review: what changes shows in a diff.

After a wanted change: ``pytest tests/golden --update-golden``, then read ``git diff``.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from chain_cases import CHAIN_CASES
from kernel_cases import CASES
from kernels import prim_functions
from mma_cases import MMA_CASES
from rowwise_cases import ROWWISE
from tvm import IRModule
from wgmma_cases import WGMMA_CASES

from tvm_tile.device import find_device
from tvm_tile.passes import schedule_module

A100, H200 = find_device("nvidia/a100"), find_device("nvidia/h200")
NAMES = (
    "mm_bias_relu",
    "mm_deep",
    "matvec_rows_bias_relu",
    "matvec_columns_bias_gelu",
    "conv_bias_relu",
    "softmax",
    "conv_depthwise",
    "sum_even_rows",
    "mean_of_channels",
    "transpose_large",
    "cumsum_rows",
    "cumsum_columns",
    "sort_rows",
)
ENTRIES = {
    **{entry.name: entry for entry in (*CASES, *ROWWISE) if entry.name in NAMES},
    "wgmma_bias_relu": next(entry for entry in WGMMA_CASES if entry.name == "bias_relu"),
    "mma_bias_relu": next(entry for entry in MMA_CASES if entry.name == "bias_relu"),
    "chain_biased": next(entry for entry in CHAIN_CASES if entry.name == "biased"),
}
# The same text at each of its calls.
_SOURCE_OF_HELPER = re.compile(r', source_code="(?:[^"\\]|\\.)*"')


@pytest.mark.parametrize("name", ENTRIES)
def test_scheduled_text(name: str, request: pytest.FixtureRequest) -> None:
    device = A100 if name.startswith("mma_") else H200
    scheduled, (report,) = schedule_module(IRModule(prim_functions(ENTRIES[name], device)), device)
    func = scheduled[report.name].without_attr("global_symbol")
    text = f"# {report.rule}: {report.tile}; grid {report.grid}, block {report.block}\n"
    text += _SOURCE_OF_HELPER.sub("", func.script()) + "\n"
    path = Path(__file__).with_name(f"{name}.py.txt")
    if request.config.getoption("--update-golden"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), "if wanted: pytest --update-golden"
