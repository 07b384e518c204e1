"""A layer of a mixture of experts as transformers writes it (``grouped_mm_experts_forward``), with
weights that are numbers, or codes of 4 bits as published models keep them."""

from __future__ import annotations

import math

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


class CodedWeights(Module):
    """Random matrices of codes of 4 bits, two of a row in a byte, the first in the low half.

    Numbers are those of bfloat16, whatever they are wanted in.
    """

    group: int  # elements of a row that share a scale

    def __init__(self, experts: int, rows: int, depth: int, random: torch.Generator) -> None:
        super().__init__()
        codes = torch.empty((experts, rows, depth // 2), dtype=torch.uint8)
        scale = self.drawn_scale((experts, rows, depth // self.group, 1), depth, random)
        self.register_buffer("codes", codes.random_(generator=random))
        self.register_buffer("scale", scale)

    def forward(self) -> Tensor:
        """The matrices, (experts, rows, depth), bfloat16."""
        codes = torch.stack((self.codes & 15, self.codes >> 4), -1)
        numbers = self.scaled(codes.flatten(-2).unflatten(-1, (-1, self.group)))
        return numbers.flatten(-2)

    @staticmethod
    def drawn_scale(shape: tuple[int, ...], depth: int, random: torch.Generator) -> Tensor:
        """Scales by which sums of ``depth`` products are about one."""
        raise NotImplementedError

    def scaled(self, codes: Tensor) -> Tensor:
        """The numbers of codes, (experts, rows, groups, elements)."""
        raise NotImplementedError


class Int4Weights(CodedWeights):
    """Integers less 8, a scale of bfloat16 for 128 (compressed-tensors' ``W4A16``)."""

    group, bytes = 128, 0.5 + 2 / 128

    @staticmethod
    def drawn_scale(shape: tuple[int, ...], depth: int, random: torch.Generator) -> Tensor:
        return ((torch.rand(shape, generator=random) + 0.5) / (5 * depth**0.5)).bfloat16()

    def scaled(self, codes: Tensor) -> Tensor:
        return (codes.to(torch.int8) - 8).bfloat16() * self.scale.bfloat16()


class Mxfp4Weights(CodedWeights):
    """e2m1, a power of two for 32 (GPT-OSS, as transformers unpacks it)."""

    group, bytes = 32, 0.5 + 1 / 32
    entries = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)

    def __init__(self, *sizes: int | torch.Generator) -> None:
        super().__init__(*sizes)
        table = torch.tensor([*self.entries, *(-own for own in self.entries)])
        self.register_buffer("table", table.bfloat16())

    @staticmethod
    def drawn_scale(shape: tuple[int, ...], depth: int, random: torch.Generator) -> Tensor:
        exponent = 127 - round(math.log2(3 * depth**0.5))
        return torch.randint(exponent - 1, exponent + 2, shape, generator=random).byte()

    def scaled(self, codes: Tensor) -> Tensor:
        return torch.ldexp(self.table.bfloat16()[codes.int()], self.scale.int() - 127)


CODED_WEIGHTS: dict[str, type[Int4Weights | Mxfp4Weights]] = {
    "int4": Int4Weights,
    "mxfp4": Mxfp4Weights,
}


class CodedExpertLayer(ExpertLayer):
    """The layer with weights that are computed of codes.

    Args:
        chosen: experts of a token.
        kind: name of the codes.
        sizes: experts, inner size, hidden size.
    """

    def __init__(self, chosen: int, kind: str, sizes: tuple[int, int, int]) -> None:
        super().__init__(chosen, is_skewed=False)
        experts, inner, hidden = sizes
        random, weights = torch.Generator().manual_seed(0), CODED_WEIGHTS[kind]
        self.first = weights(experts, 2 * inner, hidden, random)
        self.second = weights(experts, hidden, inner, random)

    def forward(self, x: Tensor, router: Tensor) -> Tensor:
        """The layer's result, (tokens, hidden)."""
        return super().forward(x, router, self.first().to(x.dtype), self.second().to(x.dtype))


def _products(x: Tensor, w: Tensor, ends: Tensor) -> Tensor:
    """Rows times their group's matrix; one by one in types that torch has no kernel for."""
    if x.dtype == torch.bfloat16:
        return torch._grouped_mm(x, w.transpose(-2, -1), offs=ends)
    starts = [0, *ends.tolist()]
    return torch.cat([x[a:b] @ own.T for a, b, own in zip(starts, ends.tolist(), w, strict=False)])
