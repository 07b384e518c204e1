"""BERT's encoder, from the transformers library."""

from __future__ import annotations

import torch
import transformers
from torch import nn


class Bert(nn.Module):
    """Token numbers (B, tokens) to hidden states (B, tokens, hidden).

    Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers for Language
    Understanding", 2019.
    """

    def __init__(self, layers: int, hidden: int, heads: int, ffn: int, vocabulary: int) -> None:
        super().__init__()
        config = transformers.BertConfig(
            vocab_size=vocabulary,
            hidden_size=hidden,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            intermediate_size=ffn,
        )
        self.encoder = transformers.BertModel(config, add_pooling_layer=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.encoder(input_ids=tokens).last_hidden_state
