"""What counts on how PyTorch's attention lies in memory, and what nobody needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cpu_build import run

from tvm_tile.errors import UnsupportedOperatorError
from tvm_tile.frontend import import_model

torch = pytest.importorskip("torch")


class Attention(torch.nn.Module):
    """Attention between tensors of ``[batch, tokens, heads, channels]``, and something behind."""

    def __init__(self, behind: Callable[[Any], Any], *, writes: bool) -> None:
        super().__init__()
        self.behind, self.writes = behind, writes

    def forward(self, q: Any, k: Any, v: Any) -> Any:
        if self.writes:
            q = q.clone().mul_(2)
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        return self.behind(torch.nn.functional.scaled_dot_product_attention(q, k, v))


def heads_together(x: Any) -> Any:
    return x.permute(0, 2, 1, 3).view(2, 9, 32)


def written_into(x: Any) -> Any:
    heads_together(x).mul_(3)
    return x


def inputs() -> tuple[Any, ...]:
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(2, 9, 4, 8, generator=generator) for _ in range(3))


@pytest.mark.parametrize("writes", [False, True])  # PyTorch itself breaks down what writes
@pytest.mark.parametrize("behind", [heads_together, written_into])
def test_views_behind_attention(behind: Callable[[Any], Any], *, writes: bool) -> None:
    module, given = Attention(behind, writes=writes), inputs()
    (found,) = run(import_model(module, example_inputs=given), *(t.numpy() for t in given))
    np.testing.assert_allclose(found, module(*given).numpy(), 1e-4, 1e-5)


@pytest.mark.parametrize("writes", [False, True])
def test_strides_of_attention_are_refused(*, writes: bool) -> None:
    module = Attention(lambda x: x.as_strided((2, 20), (100, 3), 5), writes=writes)
    with pytest.raises(UnsupportedOperatorError, match="as_strided"):
        import_model(module, example_inputs=inputs())


class Asserting(torch.nn.Module):
    def forward(self, x: Any, lengths: Any) -> Any:
        torch._check(lengths.max().item() <= 5)
        return x * lengths


def test_assertions_about_data_are_left_out() -> None:
    x, lengths = torch.ones(3), torch.tensor([1, 5, 2])
    imported = import_model(Asserting(), example_inputs=(x, lengths))
    for given in (lengths, lengths + 1):
        (found,) = run(imported, x.numpy(), given.numpy())
        np.testing.assert_array_equal(found, given.float().numpy())
