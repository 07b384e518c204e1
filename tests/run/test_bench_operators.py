"""Small operators of the bench's suites, compiled for the emulated device."""

from __future__ import annotations

import numpy as np
import pytest

import tvm_tile
from bench.suites.tolerance import tolerance
from tests.small_operators import KINDS, small_case

torch = pytest.importorskip("torch")

from bench.operator_cases import judge, operators, run_compiled, samples  # noqa: E402

pytestmark = pytest.mark.bank(4)


@pytest.mark.parametrize("kind", KINDS)
def test_a_small_one_runs_right(kind: str) -> None:
    case = small_case(kind, "float32")
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(i.shape).astype("float32") for i in case.inputs]
    example = tuple(map(torch.from_numpy, arrays))
    compiled = tvm_tile.compile(case.module, "emulated", example_inputs=example)
    expected = KINDS[kind](*(array.astype("float64") for array in arrays))
    difference = np.linalg.norm(np.asarray(compiled(*arrays)) - expected)
    assert difference < tolerance("float32") * np.linalg.norm(expected)


def test_results_that_numpy_has_no_type_for() -> None:
    (sample, *_) = samples(operators()["bfloat16"], torch.float32)
    (verdict,) = judge([sample], run_compiled("emulated"))
    assert verdict.status == "right", verdict.detail
