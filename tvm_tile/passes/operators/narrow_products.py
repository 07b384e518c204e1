"""Products of 8-bit codes that importers decode first, in the 8 bits that matrix units take."""

from __future__ import annotations

from dataclasses import dataclass

import tvm

from tvm_tile.frontend.narrow_products import narrow_products


@tvm.transform.module_pass(opt_level=0, name="NarrowProducts")
@dataclass(frozen=True, slots=True)
class NarrowProducts:
    """Quantized products, with their zero points and their scales out of the sum.

    before: ``matmul(astype(x, "int32") - zero, w)`` with 32-bit ``w`` that fits into 8
    after:  ``matmul(x, w', out_dtype="int32") - zero * sum(w', axis=-2)``, the last factor known

    Front doors have done it before they fold constants; this is for modules that come from
    elsewhere. :func:`~tvm_tile.frontend.narrow_products.narrow_products` says what is narrowed.
    """

    matrix_dtypes: frozenset[str] = frozenset()

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        return narrow_products(mod, self.matrix_dtypes)
