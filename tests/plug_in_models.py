"""Small models of the kinds that people compile, for the pipelines that TVM knows by name."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class ResidualBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(channels) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norms[0](self.first(x)))
        return F.relu(x + self.norms[1](self.second(y)))


class ResNet(nn.Module):
    """(batch, 3, 32, 32) to 10 scores."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 32, 7, 2, 3, bias=False), nn.BatchNorm2d(32)
        self.block, self.scores = ResidualBlock(32), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.stem(x))), 3, 2, 1)
        return self.scores(self.block(x).mean((2, 3)))


class TransformerLayer(nn.Module):
    """(batch, tokens, channels), heads of 64 channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
        self.up, self.down = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)
        self.norms = nn.ModuleList(nn.LayerNorm(channels) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        heads = x.shape[-1] // 64
        q, k, v = (
            part.unflatten(-1, (heads, 64)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1)
        )
        seen = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = self.norms[0](x + self.out(seen))
        return self.norms[1](x + self.down(F.gelu(self.up(x))))


class Bert(nn.Module):
    """(batch, tokens) of words to (batch, tokens, 128)."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.layer = nn.Embedding(100, 128), TransformerLayer(128)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.layer(self.words(tokens))


class Cell(nn.Module):
    """One step of an LSTM."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.input, self.state = (nn.Linear(size, 4 * size) for _ in range(2))

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        enter, keep, new, leave = (self.input(x) + self.state(h)).chunk(4, dim=-1)
        c = torch.sigmoid(keep) * c + torch.sigmoid(enter) * torch.tanh(new)
        return torch.sigmoid(leave) * torch.tanh(c), c


class Mixed(nn.Module):
    """An image of (1, 16, 4, 4) through a convolution and attention, then, four times, a recurrent
    network, whose steps are so many that they share a kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.layer = nn.Conv2d(16, 128, 3, 2, 1), TransformerLayer(128)
        self.cells = nn.ModuleList(Cell(128) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        words = self.layer(F.silu(self.convolution(x)).flatten(2).transpose(1, 2))
        states = [(x.new_zeros(1, 128), x.new_zeros(1, 128))] * len(self.cells)
        for word in words.unbind(1) * 4:
            h = word
            for number, cell in enumerate(self.cells):
                states[number] = cell(h, *states[number])
                h = states[number][0]
        return h


def models(
    dtype: torch.dtype = torch.float16,
) -> dict[str, tuple[nn.Module, tuple[Tensor, ...]]]:
    """Name -> a model with random weights, and example inputs; the mixed one is of float32."""
    torch.manual_seed(0)
    found: dict[str, tuple[nn.Module, tuple[Tensor, ...]]] = {
        "resnet": (ResNet().to(dtype), (torch.randn(2, 3, 32, 32).to(dtype),)),
        "bert": (Bert().to(dtype), (torch.randint(0, 100, (2, 64)),)),
        "mixed": (Mixed(), (torch.randn(1, 16, 4, 4),)),
    }
    return {name: (model.eval(), inputs) for name, (model, inputs) in found.items()}
