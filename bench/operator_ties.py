"""Operators of which PyTorch leaves open which of equal elements they name.

Of ``max``, ``min``, ``argmax`` and ``argmin`` it documents the first, so they are not among these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

# Operator -> where among the arguments behind its input the dimension is, and its default; without
# one, the operator has no indices among its results.
_DIMENSIONS: dict[str, tuple[int, int | None]] = {
    "argsort": (0, -1),
    "kthvalue": (1, -1),
    "median": (0, None),
    "mode": (0, -1),
    "nanmedian": (0, None),
    "sort": (0, -1),
    "topk": (1, -1),
}


@dataclass(frozen=True, slots=True)
class Ties:
    """The last result of a call names elements of its input, and of equal ones any.

    Attributes:
        source: the input.
        dim: along which elements are named.
    """

    source: torch.Tensor
    dim: int

    def allow(self, found: torch.Tensor, wanted: torch.Tensor) -> bool:
        """Whether other indices (int64, of the same shape) name equal elements, none twice."""
        source = torch.atleast_1d(self.source)
        found, wanted = (self._indices(indices) for indices in (found, wanted))
        extent = source.shape[self.dim]
        if ((found < 0) | (found >= extent)).any():
            return False
        places = torch.sort(found, self.dim).values
        if (places.diff(dim=self.dim) == 0).any():
            return False
        named, expected = (source.gather(self.dim, indices) for indices in (found, wanted))
        return torch.equal(named, expected) or torch.allclose(named, expected, 0, 0, equal_nan=True)

    def _indices(self, indices: torch.Tensor) -> torch.Tensor:
        """With the dimension that the operator left out, perhaps."""
        indices = torch.atleast_1d(indices)
        return indices if indices.ndim == max(1, self.source.ndim) else indices.unsqueeze(self.dim)


def ties_of(
    operator: str, source: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Ties | None:
    """What is open in a call of an operator of the database; None where nothing is."""
    if operator not in _DIMENSIONS or kwargs.get("stable"):
        return None
    place, dim = _DIMENSIONS[operator]
    dim = kwargs.get("dim", args[place] if len(args) > place else dim)
    return None if dim is None else Ties(source, dim)
