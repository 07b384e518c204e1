"""Products on tensor cores, a warp at a time: cp.async in, ldmatrix, mma, any epilogue behind.

``rule.py`` offers tiles, ``kernel.py`` writes the kernel: ``copies.py`` brings its operands,
``fragments.py`` multiplies them. ``tensor_cores/`` finds the product and stores it.
"""

from tvm_tile.schedule.mma.rule import least_seconds, schedule_mma

__all__ = ["least_seconds", "schedule_mma"]
