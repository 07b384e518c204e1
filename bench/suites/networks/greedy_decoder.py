"""A decoder that takes the likeliest word until every sentence of the batch has ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from bench.suites.networks.jax_arrays import exact_matmul, jax_array, jax_weight
from bench.suites.networks.lstm import Cell, jax_cell

END, START = 0, 1


class GreedyDecoder(nn.Module):
    """States h and c (B, hidden) to words (max_length, B), 0 after the end, and the last h.

    Random weights end no sentence. As in the source, an addend of the logits steers the decoder
    through given sentences; here they are random, of 6 to 14 words.
    """

    def __init__(self, hidden: int, vocabulary: int, max_length: int, batch: int) -> None:
        super().__init__()
        self.max_length = max_length
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.cell = Cell(hidden, hidden)
        self.output = nn.Linear(hidden, vocabulary)
        ends = torch.randint(min(6, max_length), min(15, max_length + 1), (batch,))
        steps = min(int(ends.max()) + 1, max_length)
        words = torch.randint(START + 1, vocabulary, (steps, batch))
        words[torch.arange(steps)[:, None] >= ends] = END
        steering = torch.zeros(steps, batch, vocabulary).scatter_(2, words[:, :, None], 30.0)
        self.register_buffer("steering", steering)

    def forward(self, h: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        batch = h.shape[0]
        words = torch.full((self.max_length, batch), END, dtype=torch.int64, device=h.device)
        word = torch.full((batch,), START, dtype=torch.int64, device=h.device)
        step = 0
        while word.max() > END and step < self.max_length:
            h, c = self.cell(self.embedding(word), h, c)
            word = (self.output(h) + self.steering[step]).argmax(1)
            words[step] = word
            step += 1
        return words, h


def jax_greedy_decoder(module: GreedyDecoder) -> Callable[..., Any]:
    """The same as a while loop, in JAX; the words are of type int32."""
    import jax
    import jax.numpy as jnp

    cell = jax_cell(module.cell)
    table, steering = jax_array(module.embedding.weight), jax_array(module.steering)
    weight, bias = jax_weight(module.output), jax_array(module.output.bias)

    def goes_on(state: Any) -> Any:
        step, word, *_ = state
        return (word.max() > END) & (step < module.max_length)

    def body(state: Any) -> Any:
        step, word, words, h, c = state
        h, c = cell(table[word], h, c)
        word = jnp.argmax(exact_matmul(h, weight) + bias + steering[step], axis=1)
        return step + 1, word, words.at[step].set(word), h, c

    def run(h: Any, c: Any) -> Any:
        word = jnp.full(h.shape[0], START)
        words = jnp.full((module.max_length, h.shape[0]), END)
        state = jax.lax.while_loop(goes_on, body, (0, word, words, h, c))
        return state[2], state[3]

    return run
