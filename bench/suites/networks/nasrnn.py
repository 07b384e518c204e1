"""The recurrent cell that architecture search found, as a loop over time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from bench.suites.networks.jax_arrays import exact_matmul, jax_weight


class NASRNN(nn.Module):
    """A sequence (steps, B, hidden) to the sum of the last two states (B, hidden).

    Zoph and Le, "Neural Architecture Search with Reinforcement Learning", 2017: eight gates,
    combined in a tree.
    """

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.input = nn.Linear(hidden, 8 * hidden, bias=False)
        self.state = nn.Linear(hidden, 8 * hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        cell = memory = x.new_zeros(x.shape[1], self.hidden)
        for value in x.unbind(0):
            cell, memory = self.step(value, cell, memory)
        return cell + memory

    def step(
        self, value: torch.Tensor, cell: torch.Tensor, memory: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The next states (B, hidden)."""
        gates = (self.input(value) + self.state(memory)).chunk(8, dim=-1)
        return _combine(gates, cell, torch.sigmoid, torch.relu, torch.tanh)


def _combine(gates: Any, cell: Any, sigmoid: Any, relu: Any, tanh: Any) -> tuple[Any, Any]:
    """The tree above the gates, with the functions of either library."""
    first = tanh(sigmoid(gates[0]) * relu(gates[1]))
    second = tanh(sigmoid(gates[2]) + relu(gates[3]))
    third = tanh(tanh(gates[4]) * sigmoid(gates[5]))
    fourth = sigmoid(tanh(gates[6]) + sigmoid(gates[7]))
    cell = tanh(first + cell) * second
    return cell, tanh(cell * tanh(third + fourth))


def jax_nasrnn(module: NASRNN) -> Callable[..., Any]:
    """The same as a scan, in JAX."""
    import jax
    import jax.numpy as jnp

    input_weight, state_weight = jax_weight(module.input), jax_weight(module.state)

    def step(states: Any, value: Any) -> tuple[Any, None]:
        cell, memory = states
        summed = exact_matmul(value, input_weight) + exact_matmul(memory, state_weight)
        gates = jnp.split(summed, 8, -1)
        return _combine(gates, cell, jax.nn.sigmoid, jax.nn.relu, jnp.tanh), None

    def run(x: Any) -> Any:
        zeros = jnp.zeros(x.shape[1:], x.dtype)
        (cell, memory), _ = jax.lax.scan(step, (zeros, zeros), x)
        return cell + memory

    return run
