"""Attention that writes its own keys and values: a loop of generation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from bench.suites.networks.jax_arrays import exact_matmul, jax_array


class KVAttention(nn.Module):
    """Generates the rest of the keys and values, and the last output.

    x (B, heads, 1, size), the first keys and values (B, heads, start, size), to the keys and
    values (B, heads, length, size) and x after the last step. Positions not yet generated are
    zero and, as in the source, are attended to.
    """

    def __init__(self, heads: int, size: int, start: int, length: int) -> None:
        super().__init__()
        self.start, self.length, self.scale = start, length, size**-0.5
        for name in ("query", "key", "value", "output"):
            weight = torch.randn(heads, size, size) * size**-0.5
            self.register_parameter(name, nn.Parameter(weight))

    def forward(
        self, x: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        missing = (0, 0, 0, self.length - self.start)
        keys, values = F.pad(keys, missing), F.pad(values, missing)
        for position in range(self.start, self.length):
            query = x @ self.query
            keys[:, :, position] = (x @ self.key).squeeze(2)
            values[:, :, position] = (x @ self.value).squeeze(2)
            weights = (query @ keys.transpose(2, 3) * self.scale).softmax(-1)
            x = weights @ values @ self.output
        return keys, values, x


def jax_kv_attention(module: KVAttention) -> Callable[..., Any]:
    """The same as a counted loop, in JAX."""
    import jax
    import jax.numpy as jnp

    query, key, value, output = (
        jax_array(getattr(module, name)) for name in ("query", "key", "value", "output")
    )
    scale, missing = module.scale, ((0, 0), (0, 0), (0, module.length - module.start), (0, 0))

    def step(position: Any, state: Any) -> Any:
        x, keys, values = state
        asked = exact_matmul(x, query)
        keys = jax.lax.dynamic_update_slice_in_dim(keys, exact_matmul(x, key), position, 2)
        values = jax.lax.dynamic_update_slice_in_dim(values, exact_matmul(x, value), position, 2)
        scores = exact_matmul(asked, jnp.swapaxes(keys, 2, 3)) * scale
        x = exact_matmul(exact_matmul(jax.nn.softmax(scores, axis=-1), values), output)
        return x, keys, values

    def run(x: Any, keys: Any, values: Any) -> Any:
        start = (x, jnp.pad(keys, missing), jnp.pad(values, missing))
        x, keys, values = jax.lax.fori_loop(module.start, module.length, step, start)
        return keys, values, x

    return run
