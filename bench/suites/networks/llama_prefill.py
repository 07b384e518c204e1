"""Layers of a Llama-shaped decoder over a whole prompt."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class LlamaPrefill(nn.Module):
    """Hidden states (1, tokens, hidden) to hidden states, each token seeing those before it.

    The layers of Grattafiori et al., "The Llama 3 Herd of Models", 2024: norms of root mean
    squares, grouped queries, rotary positions, gated products; embeddings and logits are left out.

    Args:
        layers: how many.
        hidden: width of a token.
        ffn: width between the gated products.
        heads: of queries.
        groups: of keys and values.
        tokens: of the longest prompt.
    """

    def __init__(
        self, layers: int, hidden: int, ffn: int, heads: int, groups: int, tokens: int
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_Layer(hidden, ffn, heads, groups) for _ in range(layers))
        self.norm = nn.RMSNorm(hidden, eps=1e-5)
        size = hidden // heads
        rates = 500000.0 ** (-torch.arange(0, size, 2) / size)
        angles = torch.arange(tokens)[:, None] * rates.repeat(2)
        self.register_buffer("cosines", angles.cos())
        self.register_buffer("sines", angles.sin())

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        tokens = hidden.shape[1]
        rotation = self.cosines[:tokens], self.sines[:tokens]
        for layer in self.layers:
            hidden = layer(hidden, *rotation)
        return self.norm(hidden)


class _Layer(nn.Module):
    def __init__(self, hidden: int, ffn: int, heads: int, groups: int) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, hidden // heads
        self.before, self.behind = nn.RMSNorm(hidden, eps=1e-5), nn.RMSNorm(hidden, eps=1e-5)
        self.query = nn.Linear(hidden, hidden, bias=False)
        self.key = nn.Linear(hidden, groups * self.size, bias=False)
        self.value = nn.Linear(hidden, groups * self.size, bias=False)
        self.output = nn.Linear(hidden, hidden, bias=False)
        self.gate, self.up = (nn.Linear(hidden, ffn, bias=False) for _ in range(2))
        self.down = nn.Linear(ffn, hidden, bias=False)

    def forward(
        self, hidden: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor
    ) -> torch.Tensor:
        own = self.before(hidden)
        queries = _rotated(self._apart(self.query(own), self.heads), cosines, sines)
        keys = _rotated(self._apart(self.key(own), self.groups), cosines, sines)
        values = self._apart(self.value(own), self.groups)
        repeats = self.heads // self.groups
        found = functional.scaled_dot_product_attention(
            queries,
            keys.repeat_interleave(repeats, 1),
            values.repeat_interleave(repeats, 1),
            is_causal=True,
        )
        hidden = hidden + self.output(found.transpose(1, 2).reshape(hidden.shape))
        own = self.behind(hidden)
        return hidden + self.down(functional.silu(self.gate(own)) * self.up(own))

    def _apart(self, values: torch.Tensor, heads: int) -> torch.Tensor:
        return values.view(1, values.shape[1], heads, self.size).transpose(1, 2)


def _rotated(values: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    low, high = values.chunk(2, -1)
    return values * cosines + torch.cat([-high, low], -1) * sines
