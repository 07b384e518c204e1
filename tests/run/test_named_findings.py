"""Forms that were silently wrong, or did not compile, when models of users were first run."""

from __future__ import annotations

import numpy as np
import pytest

import tvm_tile

torch = pytest.importorskip("torch")


@pytest.mark.parametrize(("kernel", "padding"), [(4, 2), (128, 64)])
def test_convolution_without_its_last_element(kernel: int, padding: int) -> None:
    """The product is wider than what is kept of it."""
    pytest.importorskip("pyopencl")

    class Causal(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.convolution = torch.nn.Conv1d(64, 64, kernel, padding=padding, groups=1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.convolution(x)[..., :-1]

    module, x = Causal().eval(), torch.randn(1, 64, 40)
    model = tvm_tile.compile(module, "emulated", example_inputs=(x,))
    expected = module.double()(x.double()).detach().numpy()
    np.testing.assert_allclose(model(x).numpy(), expected, rtol=1e-4, atol=1e-5)


class Clamped(torch.nn.Module):
    """As in transformers: infinities become the largest number, where there are any."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        largest = torch.finfo(x.dtype).max - 1000
        is_any = torch.isinf(x).any()
        return torch.where(is_any, torch.clamp(x, -largest, largest), x)


class Masked(torch.nn.Module):
    """A mask whose constant is infinite."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.where(x > 0, x, -torch.inf)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("module", [Clamped(), Masked()], ids=lambda m: type(m).__name__)
def test_halves_compile(module: torch.nn.Module, dtype: torch.dtype) -> None:
    x = torch.randn(8, 64).to(dtype)
    model = tvm_tile.compile(module, "nvidia/h200", example_inputs=(x,))
    assert not [kernel.fallback for kernel in model.report.kernels if kernel.fallback]


class ByStrides(torch.nn.Module):
    """Places that are counted in what a tensor is a view of."""

    def forward(self, x: torch.Tensor, updates: torch.Tensor) -> torch.Tensor:
        behind = torch.as_strided_scatter(x.t()[1:], updates, (2, 2), (1, 3), 2)
        return torch.as_strided_scatter(x, updates, (2, 2), (1, 3), 2) + behind.sum()


@pytest.mark.parametrize("form", ["dense", "turned", "sliced", "every_other"])
def test_strides_count_in_memory(form: str) -> None:
    pytest.importorskip("pyopencl")
    x, updates = torch.rand(6, 7), torch.rand(2, 2)
    given = {"dense": x, "turned": x.t(), "sliced": x[1:], "every_other": x[:, ::2]}[form], updates
    model = tvm_tile.compile(ByStrides(), "emulated", example_inputs=given)
    np.testing.assert_allclose(model(*given).numpy(), ByStrides()(*given).numpy(), rtol=1e-6)
