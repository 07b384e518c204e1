"""The multilayer perceptron of a neural radiance field."""

from __future__ import annotations

from itertools import pairwise

from torch import nn


class NeRF(nn.Sequential):
    """Encoded points (N, inputs) to (N, outputs): narrow layers on very many rows.

    Mildenhall et al., "NeRF: Representing Scenes as Neural Radiance Fields for View Synthesis",
    2020, in the small form of Müller et al., "Instant Neural Graphics Primitives", 2022.

    Args:
        inputs: width of the encoding.
        hidden: width of the layers.
        layers: layers with ReLU before the linear output.
        outputs: such as 3 for a colour.
    """

    def __init__(self, inputs: int, hidden: int, layers: int, outputs: int) -> None:
        widths = [inputs] + [hidden] * layers
        hidden_layers = [part for i, o in pairwise(widths) for part in (nn.Linear(i, o), nn.ReLU())]
        super().__init__(*hidden_layers, nn.Linear(hidden, outputs))
