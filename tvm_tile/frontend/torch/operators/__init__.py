"""Every operator that has a converter; no other is imported.

An operator in this table is broken down only by :mod:`tvm_tile.frontend.torch.decompositions`, an
operator that is not there always is, as far as PyTorch can: see
:mod:`tvm_tile.frontend.torch.decompose`.
"""

from __future__ import annotations

from tvm_tile.frontend.torch.convert import Converters, joined
from tvm_tile.frontend.torch.operators import (
    creation,
    elementwise,
    embedding_bag,
    fourier,
    functions,
    indexing,
    normalization,
    pooling,
    products,
    quantized,
    random,
    reductions,
    resizing,
    scans,
    scattering,
    sorting,
    views,
)

CONVERTERS: Converters = joined(
    elementwise.CONVERTERS,
    functions.CONVERTERS,
    reductions.CONVERTERS,
    views.CONVERTERS,
    creation.CONVERTERS,
    products.CONVERTERS,
    quantized.CONVERTERS,
    normalization.CONVERTERS,
    pooling.CONVERTERS,
    resizing.CONVERTERS,
    indexing.CONVERTERS,
    embedding_bag.CONVERTERS,
    scattering.CONVERTERS,
    sorting.CONVERTERS,
    fourier.CONVERTERS,
    scans.CONVERTERS,
    random.CONVERTERS,
)
