"""Stacked LSTMs, cell by cell, and the same as cuDNN and JAX run them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from bench.suites.networks.jax_arrays import exact_matmul, jax_array, jax_weight


class Cell(nn.Module):
    """One step: x (B, inputs), h and c (B, hidden) to the new h and c.

    The gates are those of :class:`torch.nn.LSTM`, in its order.
    """

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.input = nn.Linear(inputs, 4 * hidden)
        self.state = nn.Linear(hidden, 4 * hidden)

    def forward(
        self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        gates = (self.input(x) + self.state(h)).chunk(4, dim=-1)
        enter, keep, leave = (torch.sigmoid(gates[i]) for i in (0, 1, 3))
        c = keep * c + enter * torch.tanh(gates[2])
        return leave * torch.tanh(c), c


class StackedLSTM(nn.Module):
    """A sequence (steps, B, inputs) to the hidden states of the last layer (steps, B, hidden)."""

    def __init__(self, layers: int, inputs: int, hidden: int) -> None:
        super().__init__()
        widths = [inputs] + [hidden] * (layers - 1)
        self.hidden = hidden
        self.cells = nn.ModuleList(Cell(width, hidden) for width in widths)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack(self.steps(x))

    def steps(self, x: torch.Tensor) -> list[torch.Tensor]:
        """The hidden states (B, hidden) of the last layer, step by step."""
        zeros = x.new_zeros(x.shape[1], self.hidden)
        states = [(zeros, zeros) for _ in self.cells]
        outputs = []
        for value in x.unbind(0):
            for i, cell in enumerate(self.cells):
                states[i] = cell(value, *states[i])
                value = states[i][0]
            outputs.append(value)
        return outputs


class VendorLSTM(nn.Module):
    """A :class:`StackedLSTM` as :class:`torch.nn.LSTM`, with the same weights: cuDNN's form."""

    def __init__(self, stacked: StackedLSTM) -> None:
        super().__init__()
        self.lstm = vendor_lstm(stacked.cells)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.steps(x)

    def steps(self, x: torch.Tensor) -> torch.Tensor:
        """Of :meth:`StackedLSTM.steps`, in one tensor."""
        return self.lstm(x)[0]


class LastState(nn.Module):
    """The last step of a stacked LSTM: (steps, B, inputs) to (B, hidden)."""

    def __init__(self, sequence: StackedLSTM | VendorLSTM) -> None:
        super().__init__()
        self.sequence = sequence

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.sequence.steps(x)[-1]


def vendor_lstm(cells: Sequence[Cell]) -> nn.LSTM:
    """The layers as one :class:`torch.nn.LSTM`."""
    first = cells[0]
    lstm = nn.LSTM(first.input.in_features, first.state.in_features, len(cells))
    for i, cell in enumerate(cells):
        for name, layer in (("ih", cell.input), ("hh", cell.state)):
            getattr(lstm, f"weight_{name}_l{i}").data.copy_(layer.weight)
            getattr(lstm, f"bias_{name}_l{i}").data.copy_(layer.bias)
    return lstm.to(first.input.weight.dtype).eval().requires_grad_(False)


def vendor_last_state(module: LastState) -> nn.Module:
    """A :class:`LastState` in cuDNN's form."""
    assert isinstance(module.sequence, StackedLSTM)
    return LastState(VendorLSTM(module.sequence)).eval()


def jax_last_state(module: LastState) -> Callable[..., Any]:
    """A :class:`LastState` as a scan over the steps, in JAX."""
    import jax
    import jax.numpy as jnp

    assert isinstance(module.sequence, StackedLSTM)
    cells = [jax_cell(cell) for cell in module.sequence.cells]
    hidden = module.sequence.hidden

    def step(states: Any, value: Any) -> tuple[Any, None]:
        new = []
        for cell, state in zip(cells, states, strict=True):
            new.append(cell(value, *state))
            value = new[-1][0]
        return tuple(new), None

    def run(x: Any) -> Any:
        zeros = jnp.zeros((x.shape[1], hidden), x.dtype)
        states, _ = jax.lax.scan(step, tuple((zeros, zeros) for _ in cells), x)
        return states[-1][0]

    return run


def jax_cell(cell: Cell) -> Callable[..., Any]:
    """A cell in JAX, without TF32."""
    import jax
    import jax.numpy as jnp

    input_weight, state_weight = jax_weight(cell.input), jax_weight(cell.state)
    bias = jax_array(cell.input.bias) + jax_array(cell.state.bias)

    def run(x: Any, h: Any, c: Any) -> tuple[Any, Any]:
        summed = exact_matmul(x, input_weight) + exact_matmul(h, state_weight) + bias
        gates = jnp.split(summed, 4, -1)
        enter, keep, leave = (jax.nn.sigmoid(gates[i]) for i in (0, 1, 3))
        c = keep * c + enter * jnp.tanh(gates[2])
        return leave * jnp.tanh(c), c

    return run
