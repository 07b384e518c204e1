"""A recursive autoencoder: recursion over a tree."""

from __future__ import annotations

import torch
from torch import nn


class RecursiveAutoencoder(nn.Module):
    """Vectors of the nodes (nodes, hidden), of which the leaves' are used, to the root's (hidden).

    Socher et al., "Semi-Supervised Recursive Autoencoders for Predicting Sentiment
    Distributions", 2011. The tree is on the device, as in the source: every node is asked for
    its children there. It joins random neighbours, as a sentence's does.
    """

    def __init__(self, nodes: int, hidden: int) -> None:
        super().__init__()
        self.encode = nn.Linear(2 * hidden, hidden)
        left, right = _random_tree(nodes)
        self.register_buffer("left", left)
        self.register_buffer("right", right)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._encoded(x, len(self.left) - 1)

    def _encoded(self, x: torch.Tensor, node: int) -> torch.Tensor:
        left = int(self.left[node].item())
        if left < 0:
            return x[node]
        right = int(self.right[node].item())
        children = torch.cat([self._encoded(x, left), self._encoded(x, right)])
        return torch.tanh(self.encode(children))


def _random_tree(nodes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Children of each node, -1 at leaves; the last node is the root.

    The first (nodes + 1) / 2 nodes are leaves, in order; ``nodes`` is odd.
    """
    leaves = (nodes + 1) // 2
    left = torch.full((nodes,), -1)
    right = torch.full((nodes,), -1)
    roots = list(range(leaves))
    for node in range(leaves, nodes):
        at = int(torch.randint(len(roots) - 1, ()))
        left[node], right[node] = roots[at], roots[at + 1]
        roots[at : at + 2] = [node]
    return left, right
