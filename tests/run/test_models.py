"""Real models, compiled for the emulated device, against ONNX Runtime and PyTorch."""

from __future__ import annotations

import pytest

import tvm_tile
from tests.models import TEST_MODELS, Entry, relative_error

pytestmark = pytest.mark.bank(6)

pytest.importorskip("pyopencl")

LIMIT = 1e-4


@pytest.mark.parametrize("entry", TEST_MODELS, ids=lambda entry: entry.name)
def test_model(entry: Entry) -> None:
    if missing := entry.missing():
        pytest.skip(f"needs {', '.join(missing)}")
    case = entry.build()
    model = tvm_tile.compile(
        case.model,
        device="emulated",
        inputs=case.sizes or None,
        example_inputs=case.example_inputs,
    )
    outputs = model(*case.arrays)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    errors = [
        relative_error(output, reference)
        for output, reference in zip(outputs, case.reference, strict=True)
    ]
    assert max(errors) <= LIMIT, f"relative errors {errors}"
