"""Operators that are computed by others of PyTorch's, in our formulas where it has none that do.

Each is a function of the operator's arguments that PyTorch traces, on tensors without data. Where
it returns ``NotImplemented`` an operator stays whole, for its converter.
"""

from __future__ import annotations

from tvm_tile.frontend.torch.decompositions import (
    formulas,
    masks,
    order,
    random,
    scattering,
    special,
    sums,
)
from tvm_tile.frontend.torch.decompositions.formulas import Decompositions

DECOMPOSITIONS: Decompositions = {
    **formulas.DECOMPOSITIONS,
    **special.DECOMPOSITIONS,
    **masks.DECOMPOSITIONS,
    **order.DECOMPOSITIONS,
    **scattering.DECOMPOSITIONS,
    **sums.DECOMPOSITIONS,
    **random.DECOMPOSITIONS,
}
