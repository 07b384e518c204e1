"""Models with PyTorch's FlexAttention: functions of scores, masks of indices, and tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

Score = Callable[..., Tensor]
ROWS = 200
_BLOCK = 128
_DOCUMENTS = torch.tensor([0] * 61 + [1] * 30 + [2] * 109)


class Flex(nn.Module):
    """FlexAttention with tensors that its functions may capture.

    Args:
        score: function of a module, a score and its indices.
        mask: function of a module and a score's indices, or a mask in blocks.
        rows: queries.
        keys: keys.
        batch: batches of the mask in blocks; ``None``: it is the same for all.
        in_forward: whether the mask in blocks is made at each call.
        options: of ``flex_attention``.
    """

    def __init__(
        self,
        score: Score | None = None,
        mask: Score | BlockMask | None = None,
        rows: int = ROWS,
        keys: int = ROWS,
        *,
        batch: int | None = None,
        in_forward: bool = False,
        **options: Any,
    ) -> None:
        super().__init__()
        self.register_buffer("documents", _DOCUMENTS)
        self.register_buffer("slopes", torch.tensor([0.5, 0.25, 0.125, 0.0625]))
        self.register_buffer("bias", torch.linspace(-1, 1, 8).reshape(2, 4))
        self.score, self.options, self.sizes = score, options, (batch, None, rows, keys)
        self.function = mask if callable(mask) else None
        self.mask = self.blocks() if callable(mask) and not in_forward else mask

    def blocks(self) -> BlockMask:
        """The mask in blocks that a function of indices says."""
        function: Any = self.function

        def of_indices(b: Any, h: Any, i: Any, j: Any) -> Tensor:
            made: Tensor = function(self, b, h, i, j)
            return made

        return create_block_mask(of_indices, *self.sizes, device="cpu")

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Any:
        def score(x: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return x if self.score is None else self.score(self, x, b, h, i, j)

        how = {"score_mod": score} if self.score is not None else {}
        mask = self.blocks() if callable(self.mask) else self.mask
        return flex_attention(q, k, v, block_mask=mask, **how, **self.options)


@dataclass(frozen=True, slots=True)
class FlexCase:
    """A model, and the shapes of its queries and keys; whether halves of them make one kernel."""

    make: Callable[[], Flex]
    queries: tuple[int, ...] = (2, 4, ROWS, 32)
    keys: tuple[int, ...] = (2, 4, ROWS, 32)
    is_one: bool = True

    def inputs(self, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
        """Random queries, keys and values."""
        rng = torch.Generator().manual_seed(5)
        shapes = (self.queries, self.keys, self.keys)
        q, k, v = (torch.randn(shape, generator=rng).to(dtype) for shape in shapes)
        return q, k, v


def causal(_: Flex, b: Any, h: Any, i: Any, j: Any) -> Any:
    return i >= j


def window(_: Flex, b: Any, h: Any, i: Any, j: Any) -> Any:
    return (i >= j) & (i - j < 40)


def prefix(_: Flex, b: Any, h: Any, i: Any, j: Any) -> Any:
    return (i >= j) | (j < 30)


def sinks(_: Flex, b: Any, h: Any, i: Any, j: Any) -> Any:
    return ((i - j < 50) | (j < 4)) & (i >= j)


def documents(model: Flex, b: Any, h: Any, i: Any, j: Any) -> Any:
    return (model.documents[i] == model.documents[j]) & (i >= j)


def later(_: Flex, b: Any, h: Any, i: Any, j: Any) -> Any:
    return i + 50 < j


def of_heads(_: Flex, b: Any, h: Any, i: Any, j: Any) -> Any:
    return (i >= j) & (i - j < 16 * (h + 1))


def softcap(_: Flex, x: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
    return 2 * torch.tanh(x / 2)


def alibi(model: Flex, x: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
    return x + model.slopes[h] * (j - i)


def biased(model: Flex, x: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
    return x + model.bias[b][h] + torch.tensor([0.5, 1.5])[h % 2]


def hiding(_: Flex, x: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
    return torch.where(i >= j, x, -float("inf"))


def tables(counts: list[int], indices: list[list[int]]) -> BlockMask:
    """A mask that tables alone say."""
    own = torch.tensor([[counts]], dtype=torch.int32), torch.tensor([[indices]], dtype=torch.int32)
    return BlockMask.from_kv_blocks(*own, BLOCK_SIZE=_BLOCK, seq_lengths=(ROWS, ROWS))


_SHARED = (2, 2, ROWS, 32)
CASES = {
    "plain": FlexCase(Flex),
    "scale": FlexCase(lambda: Flex(scale=0.5)),
    "causal": FlexCase(lambda: Flex(mask=causal)),
    "window": FlexCase(lambda: Flex(mask=window)),
    "prefix": FlexCase(lambda: Flex(mask=prefix)),
    "sinks": FlexCase(lambda: Flex(mask=sinks)),
    "documents": FlexCase(lambda: Flex(mask=documents)),
    "documents in forward": FlexCase(lambda: Flex(mask=documents, in_forward=True)),
    "of heads": FlexCase(lambda: Flex(mask=of_heads)),
    "softcap": FlexCase(lambda: Flex(softcap, causal)),
    "alibi": FlexCase(lambda: Flex(alibi, causal)),
    "alibi in groups": FlexCase(lambda: Flex(alibi, causal, enable_gqa=True), keys=_SHARED),
    "biased": FlexCase(lambda: Flex(biased)),
    "score hides": FlexCase(lambda: Flex(hiding)),
    "rows without a key": FlexCase(lambda: Flex(mask=later)),
    "keys of one batch": FlexCase(lambda: Flex(mask=prefix, batch=2), keys=(1, 4, ROWS, 32)),
    "more keys": FlexCase(lambda: Flex(mask=prefix, rows=72), queries=(2, 4, 72, 32)),
    "logarithms": FlexCase(lambda: Flex(softcap, causal, return_lse=True), is_one=False),
    "logarithms without a key": FlexCase(lambda: Flex(mask=later, return_lse=True), is_one=False),
}
