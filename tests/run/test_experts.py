"""Experts of a mixture, as transformers writes them and in other ways, next to PyTorch."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import tvm_tile
from tvm_tile.frontend.torch.sorted_rows import is_grouped_product, with_rows_as_given

TOKENS, HIDDEN, INNER, EXPERTS, CHOSEN = 7, 32, 16, 5, 3
Parts = tuple[torch.Tensor, ...]


class Layer(torch.nn.Module):
    """Tokens sorted by expert, multiplied in groups, and put back; as a variant has it."""

    def __init__(self, variant: Callable[..., Any]) -> None:
        super().__init__()
        self.variant = variant

    def forward(self, x: Any, router: Any, first: Any, second: Any) -> Any:
        weights, ids = torch.topk(torch.softmax(F.linear(x, router).float(), -1), CHOSEN)
        return self.variant(x, weights.to(x.dtype).reshape(-1), ids.reshape(-1), (first, second))


def experts(rows: Any, both: Parts, ends: Any) -> Any:
    first, second = both
    gate, up = torch._grouped_mm(rows, first.transpose(-2, -1), offs=ends).chunk(2, -1)
    return torch._grouped_mm(F.silu(gate) * up, second.transpose(-2, -1), offs=ends)


def ends_of(ids: Any, bins: int = EXPERTS) -> Any:
    counts = torch.histc(ids.float(), bins=bins, min=0, max=bins - 1)
    return torch.cumsum(counts, 0, dtype=torch.int32)


def inverse_of(order: Any) -> Any:
    inverse = torch.empty_like(order)
    inverse[order] = torch.arange(len(order), device=order.device)
    return inverse


def plain(x: Any, weights: Any, ids: Any, both: Parts) -> Any:
    ids, order = torch.sort(ids)
    out = experts(x[order // CHOSEN], both, ends_of(ids)) * weights[order].unsqueeze(-1)
    return out[inverse_of(order)].view(TOKENS, CHOSEN, -1).sum(1)


def by_argsort(x: Any, weights: Any, ids: Any, both: Parts) -> Any:
    own, order = torch.sort(ids, stable=True)
    out = experts(x.repeat_interleave(CHOSEN, 0)[order], both, ends_of(own))
    out = out.masked_fill((own >= EXPERTS).unsqueeze(-1), 0.0) * weights[order, None]
    return out[torch.argsort(order)].view(TOKENS, CHOSEN, -1).sum(1)


def unsorted_result(x: Any, weights: Any, ids: Any, both: Parts) -> Any:
    ids, order = torch.sort(ids)
    out = experts(x[order // CHOSEN], both, ends_of(ids))
    return out[inverse_of(order)].view(TOKENS, CHOSEN, -1).sum(1), ids


def summed_rows(x: Any, weights: Any, ids: Any, both: Parts) -> Any:
    ids, order = torch.sort(ids, stable=True)
    out = experts(x[order // CHOSEN], both, ends_of(ids))
    out = out - out.cumsum(0)
    return out[inverse_of(order)].view(TOKENS, CHOSEN, -1).sum(1)


def numbered_rows(x: Any, weights: Any, ids: Any, both: Parts) -> Any:
    ids, order = torch.sort(ids, stable=True)
    number = torch.arange(len(ids), device=ids.device, dtype=x.dtype)[:, None]
    out = experts(x[order // CHOSEN], both, ends_of(ids)) * number
    return out[inverse_of(order)].view(TOKENS, CHOSEN, -1).sum(1)


def counted(x: Any, weights: Any, ids: Any, both: Parts) -> Any:
    ids, order = torch.sort(ids)
    counts = torch.histc(ids.float(), bins=EXPERTS, min=0, max=EXPERTS - 1).int()
    out = experts(x[order // CHOSEN], both, counts)  # which are no ends of groups
    return out[inverse_of(order)].view(TOKENS, CHOSEN, -1).sum(1)


def added_up_twice(x: Any, weights: Any, ids: Any, both: Parts) -> Any:
    ids, order = torch.sort(ids)
    ends = torch.cumsum(ends_of(ids), 0, dtype=torch.int32)
    out = experts(x[order // CHOSEN], both, ends)
    return out[inverse_of(order)].view(TOKENS, CHOSEN, -1).sum(1)


def falling(x: Any, weights: Any, ids: Any, both: Parts) -> Any:
    ids, order = torch.sort(ids, descending=True)
    out = experts(x[order // CHOSEN], both, ends_of(ids))
    return out[inverse_of(order)].view(TOKENS, CHOSEN, -1).sum(1)


def half_of_them(x: Any, weights: Any, ids: Any, both: Parts) -> Any:
    ids, order = torch.sort(ids)
    ends = ends_of(ids, EXPERTS - 1)
    ends = torch.cat([ends, ends[-1:]])
    out = experts(x[order // CHOSEN], both, ends)
    kept = (ids < EXPERTS - 1).unsqueeze(-1)
    out = torch.where(kept, out, torch.zeros_like(out))
    return out[inverse_of(order)].view(TOKENS, CHOSEN, -1).sum(1)


def every_expert(x: Any, weights: Any, ids: Any, both: Parts) -> Any:
    """All experts on all tokens, as transformers exports them for OpenVINO."""
    first, second = both
    rows = x.repeat(EXPERTS, 1).view(EXPERTS, TOKENS, HIDDEN)
    gate, up = (torch.bmm(rows, own.transpose(1, 2)) for own in first.chunk(2, -2))
    out = torch.bmm(F.silu(gate) * up, second.transpose(1, 2))
    shape = TOKENS, CHOSEN
    shares = torch.zeros(TOKENS, EXPERTS, dtype=x.dtype, device=x.device)
    shares = shares.scatter(1, ids.view(shape), weights.view(shape))
    return (out * shares.transpose(0, 1)[..., None]).sum(0)


def exported(variant: Callable[..., Any]) -> tuple[Any, Parts, Any]:
    """A variant as a program, its inputs, and what eager PyTorch makes of these."""
    drawn = torch.Generator().manual_seed(0)
    shapes = (TOKENS, HIDDEN), (EXPERTS, HIDDEN), (EXPERTS, 2 * INNER, HIDDEN)
    inputs = tuple(
        torch.randn(shape, generator=drawn).bfloat16()
        for shape in (*shapes, (EXPERTS, HIDDEN, INNER))
    )
    module = Layer(variant)
    return torch.export.export(module, inputs), inputs, module(*inputs)


def nodes_of(program: Any) -> list[Any]:
    """The program's nodes, behind the look at its rows."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # deprecations inside torch's own decompositions
        return list(with_rows_as_given(program).graph.nodes)


@pytest.mark.parametrize("variant", [plain, by_argsort])
def test_rows_are_multiplied_where_they_are(variant: Callable[..., Any]) -> None:
    program, inputs, wanted = exported(variant)
    nodes = nodes_of(program)
    assert not any(map(is_grouped_product, nodes))
    assert not any("sort" in str(node.target) for node in nodes)
    compiled = tvm_tile.compile(program, "emulated")
    assert _error(compiled(*inputs), wanted) < 1e-2
    assert compiled.report.traffic < 4 * sum(own.nbytes for own in inputs)


@pytest.mark.parametrize(
    "variant", [unsorted_result, summed_rows, numbered_rows, falling, half_of_them]
)
def test_what_depends_on_the_order_keeps_it(variant: Callable[..., Any]) -> None:
    program, inputs, wanted = exported(variant)
    assert any(map(is_grouped_product, nodes_of(program)))
    found = tvm_tile.compile(program, "emulated")(*inputs)
    if variant is unsorted_result:
        assert torch.equal(torch.as_tensor(found[1]), wanted[1])
        found, wanted = found[0], wanted[0]
    if variant is not falling:  # whose groups are not those that lie side by side
        assert _error(found, wanted) < 2e-2


@pytest.mark.parametrize("variant", [counted, added_up_twice])
def test_other_numbers_are_no_ends_of_groups(variant: Callable[..., Any]) -> None:
    shapes = (TOKENS, HIDDEN), (EXPERTS, HIDDEN), (EXPERTS, 2 * INNER, HIDDEN)
    inputs = (torch.zeros(own).bfloat16() for own in (*shapes, (EXPERTS, HIDDEN, INNER)))
    program = torch.export.export(Layer(variant), tuple(inputs))
    assert any(map(is_grouped_product, nodes_of(program)))


def test_every_expert_on_every_token() -> None:
    program, inputs, wanted = exported(every_expert)
    assert _error(tvm_tile.compile(program, "emulated")(*inputs), wanted) < 1e-2


def test_groups_of_one_size_are_a_batch() -> None:
    x, w = (torch.randn(EXPERTS, 8, HIDDEN).bfloat16() for _ in range(2))

    class Batch(torch.nn.Module):
        def forward(self, x: Any, w: Any) -> Any:
            return torch._grouped_mm(x, w.transpose(-2, -1))

    compiled = tvm_tile.compile(torch.export.export(Batch(), (x, w)), "emulated")
    assert _error(compiled(x, w), Batch()(x, w)) < 1e-2


def _error(found: Any, wanted: Any) -> float:
    """The largest difference, relative to the largest element."""
    found = torch.as_tensor(found).float()
    return float((found - wanted.float()).abs().max() / wanted.float().abs().max())
