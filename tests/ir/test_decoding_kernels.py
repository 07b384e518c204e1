"""The CUDA text of kernels that decode in half precision, run on the CPU: right to the last bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from coded import CODES, formats, random_coded
from emulated import Arguments, emulated_error

from tvm_tile.device import find_device
from tvm_tile.graph.tensor_format import Entries, Floats
from tvm_tile.loops.decoding import decoding_loops
from tvm_tile.schedule import schedule

H200 = find_device("nvidia/h200")
SHAPE = (16, 64)
# Each kind of code once, and all kinds of steps.
KINDS = [5, *(n for n, code in enumerate(CODES) if isinstance(code, Entries | Floats))]
FORMS = [*KINDS, *range(len(CODES), len(formats("float32")))]


def differences(found: np.ndarray, expected: np.ndarray) -> float:
    """How many elements have other bits; NaN is NaN."""
    bits = f"uint{expected.itemsize * 8}"
    is_same = found.view(bits) == expected.view(bits)
    return float(np.sum(~(is_same | (np.isnan(found) & np.isnan(expected)))))


@pytest.mark.parametrize("number", FORMS, ids=lambda number: str(formats("float16")[number]))
def test_kernels_of_half_precision(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emulated.relative_difference", differences)
    form = formats("float16")[number]
    coded = random_coded(form, SHAPE, seed=number)
    func = decoding_loops(form, SHAPE)
    *names, output = (str(param.name) for param in func.params)
    given = dict(zip(names, coded.arrays, strict=True))
    values = coded.values()
    of = Arguments({**given, output: np.zeros_like(values)}, {output: values}, frozenset({output}))
    (choice, *_) = schedule(func, H200)
    assert emulated_error(choice, of, H200, tmp_path, late=True) == 0
