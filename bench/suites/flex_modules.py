"""FlexAttention of (B, H, S, D) queries, keys and values under masks of indices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

_DOCUMENTS, _PREFIX, _WINDOW, _CAP = 8, 1024, 1024, 20.0


class MaskedAttention(Module):
    """Attention whose mask is said by a function of indices, and in blocks.

    Args:
        kind: kind of the mask; ``"softcap"``: causal, with scores that are bent, too.
        tokens: queries, and keys.
        block: extent of a block.
        share: share of blocks that are kept, in percent, where ``kind`` is ``"blocks"``.
    """

    def __init__(self, kind: str, tokens: int, block: int, share: int) -> None:
        super().__init__()
        rng = torch.Generator().manual_seed(0)
        ends = torch.randint(tokens, (_DOCUMENTS - 1,), generator=rng).sort().values
        self.register_buffer(
            "documents", torch.searchsorted(ends, torch.arange(tokens), right=True)
        )
        count = tokens // block
        kept = torch.rand((count, count), generator=rng) * 100 < share
        self.register_buffer("kept", kept | torch.eye(count, dtype=torch.bool))
        self._kind, self._block = kind, block
        self._mask = create_block_mask(self._seen(), None, None, tokens, tokens, device="cpu")

    def _seen(self) -> Callable[..., Any]:
        """Whether a query sees a key."""
        documents, kept, block = self.documents, self.kept, self._block
        return {
            "documents": lambda b, h, i, j: (i >= j) & (documents[i] == documents[j]),
            "prefix": lambda b, h, i, j: (i >= j) | (j < _PREFIX),
            "window": lambda b, h, i, j: (i >= j) & (i - j < _WINDOW),
            "softcap": lambda b, h, i, j: i >= j,
            "blocks": lambda b, h, i, j: kept[i // block, j // block],
        }[self._kind]

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        """The mask goes where the module goes."""
        moved = super()._apply(fn, recurse)
        self._mask = self._mask.to(self.kept.device)
        self._mask.mask_mod = self._seen()
        return moved

    def pairs(self) -> int:
        """Queries and keys that see one another."""
        tokens, seen = len(self.documents), self._seen()
        keys = torch.arange(tokens)
        rows = (torch.arange(first, first + 1024)[:, None] for first in range(0, tokens, 1024))
        return sum(int(seen(0, 0, own, keys).sum()) for own in rows)

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        bent = {"score_mod": _bent} if self._kind == "softcap" else {}
        made: Tensor = flex_attention(q, k, v, block_mask=self._mask, **bent)
        return made


def _bent(score: Tensor, *_: Tensor) -> Tensor:
    return _CAP * torch.tanh(score / _CAP)
