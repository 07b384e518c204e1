"""A layer of a mixture of experts as transformers writes it (``grouped_mm_experts_forward``)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn import functional as F

_FAR = 1e4  # above all scores


class ExpertLayer(Module):
    """Router, gated experts, and the weighted sum over each token's."""

    def __init__(self, chosen: int, *, is_skewed: bool) -> None:
        super().__init__()
        self.chosen, self.is_skewed = chosen, is_skewed

    def forward(self, x: Tensor, router: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """The layer's result, (tokens, hidden).

        Args:
            x: (tokens, hidden).
            router: (experts, hidden).
            first: of each expert its gate and what that lets through, (experts, 2 inner, hidden).
            second: (experts, hidden, inner).
        """
        halves = (own.to(torch.bfloat16) for own in (x, router))  # of the reference's, too
        scores = F.linear(*halves).float()
        if self.is_skewed:
            tokens = torch.arange(len(x), device=x.device)[:, None] < len(x) // 2
            expert = torch.arange(len(router), device=x.device)[None, :] == 0
            scores = torch.where(tokens & expert, _FAR, scores)
        weights, ids = torch.topk(torch.softmax(scores, -1), self.chosen)
        weights = (weights / weights.sum(-1, keepdim=True)).to(x.dtype).reshape(-1)
        ids, order = torch.sort(ids.reshape(-1))
        rows = x[order // self.chosen]
        counts = torch.histc(ids.float(), bins=len(router), min=0, max=len(router) - 1)
        ends = torch.cumsum(counts, 0, dtype=torch.int32)
        gate, up = _products(rows, first, ends).chunk(2, -1)
        out = _products(F.silu(gate) * up, second, ends) * weights[order].unsqueeze(-1)
        inverse = torch.empty_like(order)
        inverse[order] = torch.arange(len(order), device=order.device)
        return out[inverse].view(len(x), self.chosen, -1).sum(1).to(x.dtype)


def _products(x: Tensor, w: Tensor, ends: Tensor) -> Tensor:
    """Rows times their group's matrix; one by one in types that torch has no kernel for."""
    if x.dtype == torch.bfloat16:
        return torch._grouped_mm(x, w.transpose(-2, -1), offs=ends)
    starts = [0, *ends.tolist()]
    return torch.cat([x[a:b] @ own.T for a, b, own in zip(starts, ends.tolist(), w, strict=False)])
