"""Reductions that end within a step, of what is not nothing where zeros stand for operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scan_cases import module_of, results
from tvm import te, tirx

import tvm_tile

torch = pytest.importorskip("torch")
pytest.importorskip("pyopencl")


def table(reduce: Any, term: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """``y[m, n]``: a reduction over all ``k`` of a term of ``x[m, k]`` and ``w[n, k]``."""

    def loops(x: te.Tensor, w: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((0, x.shape[1]), "k")
        shape = (x.shape[0], w.shape[0])
        return te.compute(shape, lambda m, n: reduce(term(x[m, k], w[n, k]), axis=k))

    return loops


@pytest.mark.parametrize("vectors", [1, 64])  # as products, one would go to each of two rules
@pytest.mark.parametrize("name", ["largest sum", "sum of exponentials"])
def test_terms_that_are_no_products(name: str, vectors: int) -> None:
    loops, expected = {
        "largest sum": (table(te.max, lambda a, b: a + b), lambda a, b: (a + b).max(-1)),
        "sum of exponentials": (
            table(te.sum, lambda a, b: tirx.exp(a + b)),
            lambda a, b: np.exp(a + b).sum(-1),
        ),
    }[name]
    rng = np.random.default_rng(0)
    x, w = (-1 - rng.random((rows, 131), "float32") for rows in (vectors, 300))
    mod = module_of(
        [(x.shape, "float32"), (w.shape, "float32")],
        lambda builder, inputs: [builder.emit_te(loops, *inputs)],
    )
    model = tvm_tile.compile(mod, "emulated", options=tvm_tile.Options(cache=False))
    (found,) = results(model, [x, w])
    np.testing.assert_allclose(found, expected(x[:, None], w[None]), 1e-5)


@pytest.mark.parametrize("reduction", ["sum", "prod"])
def test_updates_read_at_a_clamped_place(reduction: str) -> None:
    class Scattered(torch.nn.Module):
        def forward(self, x: Any, index: Any, source: Any) -> Any:
            return x.scatter_reduce(0, index, source, reduction)

    generator = torch.Generator().manual_seed(0)
    x, source = (torch.randn(10, n, generator=generator) for n in (5, 2))
    index = torch.stack([torch.randperm(10, generator=generator) for _ in range(2)], 1)
    module = Scattered().eval()
    model = tvm_tile.compile(module, "emulated", example_inputs=(x, index, source))
    np.testing.assert_allclose(model(x, index, source), module(x, index, source), 1e-5)
