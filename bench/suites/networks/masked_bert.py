"""BERT's encoder for tokens some of which are padding."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class MaskedBert(nn.Module):
    """Token numbers (B, tokens) and a mask (B, 1, 1, tokens) to hidden states.

    Args:
        bert: a :class:`bench.suites.networks.bert.Bert`, whose weights it has.
    """

    def __init__(self, bert: Any) -> None:
        super().__init__()
        self.encoder = bert.encoder

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.encoder(input_ids=tokens, attention_mask=mask).last_hidden_state
