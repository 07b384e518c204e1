"""Every operator that has a converter; no other is imported.

An operator in this table is never broken down, an operator that is not there always is, as far as
PyTorch can: see :mod:`tvm_tile.frontend.torch.decompose`.
"""

from __future__ import annotations

from tvm_tile.frontend.torch import (
    creation,
    elementwise,
    functions,
    products,
    reductions,
    views,
)
from tvm_tile.frontend.torch.convert import Converters, joined

CONVERTERS: Converters = joined(
    elementwise.CONVERTERS,
    functions.CONVERTERS,
    reductions.CONVERTERS,
    views.CONVERTERS,
    creation.CONVERTERS,
    products.CONVERTERS,
)
