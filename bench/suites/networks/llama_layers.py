"""A step of a Llama-shaped decoder for one token: layers only, behind each other."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class LlamaLayers(nn.Module):
    """Hidden states (1, 1, hidden) to hidden states, by layers with ``cached`` tokens each.

    The shapes of Touvron et al., "LLaMA: Open and Efficient Foundation Language Models", 2023, with
    grouped queries; keys and values of earlier tokens are constants, and rotations are left out.
    """

    def __init__(
        self, layers: int, hidden: int, ffn: int, heads: int, groups: int, cached: int
    ) -> None:
        super().__init__()
        sizes = hidden, ffn, heads, groups, cached
        self.layers = nn.Sequential(*(_Layer(*sizes) for _ in range(layers)))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.layers(hidden)


class _Layer(nn.Module):
    def __init__(self, hidden: int, ffn: int, heads: int, groups: int, cached: int) -> None:
        super().__init__()
        self.groups, self.size = groups, hidden // heads
        self.before, self.behind = nn.RMSNorm(hidden), nn.RMSNorm(hidden)
        self.query = nn.Linear(hidden, hidden, bias=False)
        self.key = nn.Linear(hidden, groups * self.size, bias=False)
        self.value = nn.Linear(hidden, groups * self.size, bias=False)
        self.output = nn.Linear(hidden, hidden, bias=False)
        self.gate, self.up = (nn.Linear(hidden, ffn, bias=False) for _ in range(2))
        self.down = nn.Linear(ffn, hidden, bias=False)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.randn(1, groups, cached, self.size))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        own = self.before(hidden)
        # A group's queries are rows of one product: they share keys and values.
        queries = self.query(own).view(1, self.groups, -1, self.size)
        shape = (1, self.groups, 1, self.size)
        keys = torch.cat([self.keys, self.key(own).view(shape)], 2)
        values = torch.cat([self.values, self.value(own).view(shape)], 2)
        found = functional.scaled_dot_product_attention(queries, keys, values)
        hidden = hidden + self.output(found.reshape(hidden.shape))
        own = self.behind(hidden)
        return hidden + self.down(functional.silu(self.gate(own)) * self.up(own))
