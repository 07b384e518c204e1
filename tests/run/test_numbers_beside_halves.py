"""Python's numbers beside tensors of half precision, which PyTorch does not round."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import pytest
import torch

import tvm_tile

pytestmark = pytest.mark.skipif(not find_spec("pyopencl"), reason="needs pyopencl")

FORMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "product": lambda x: x * 0.7978845608,
    "large factor": lambda x: x * 1e-3 * 1e5,
    "sum": lambda x: x + 0.1,
    "difference": lambda x: 0.1 - x,
    "quotient": lambda x: 0.1 / (x * x + 1),
    "held": lambda x: x * 0.125 + 2,
}


class Form(torch.nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.form = FORMS[name]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.form(x)


@pytest.mark.parametrize("name", FORMS)
def test_they_are_what_they_are(name: str) -> None:
    """Within a rounding of what is exact: a number off by a part in 800 shows in the mean."""
    x = torch.randn(1 << 12, generator=torch.Generator().manual_seed(0)).bfloat16()
    form, exact = Form(name), FORMS[name](x.double())
    found = tvm_tile.compile(form, device="emulated", example_inputs=(x,))(x)
    assert found.dtype == form(x).dtype == x.dtype
    unit = torch.finfo(x.dtype).eps
    assert torch.allclose(found.double(), exact, rtol=2 * unit, atol=2 * unit)
    sizes = exact.abs()
    bias = ((found.double() - exact) * exact.sign()).sum() / sizes.sum()
    assert abs(bias) < unit / 20
