"""Attention of (B, H, S, D) queries, keys and values, plain and in one call."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn import functional as F


class PlainAttention(Module):
    """Two products and a softmax; a causal one masks the keys after each query."""

    def __init__(self, is_causal: bool) -> None:
        super().__init__()
        self.is_causal = is_causal

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = torch.matmul(q, k.transpose(-2, -1)) * q.size(-1) ** -0.5
        if self.is_causal:
            place = torch.arange(q.size(-2), device=q.device)
            scores = scores.masked_fill(place[None, :] > place[:, None], -torch.inf)
        return torch.matmul(torch.softmax(scores, -1), v)


class FusedAttention(PlainAttention):
    """The same as one operator of torch."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=self.is_causal)
