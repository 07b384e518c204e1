"""Products by the matrix instructions of a warp, NVIDIA's and AMD's, any epilogue behind.

``rule.py`` offers tiles, ``kernel.py`` writes the kernel around a pipeline of
``schedule/pipelines/`` that sums up; ``parts.py`` adds sums that are split. ``schedule/units/``
copies and multiplies, ``schedule/tensor_cores/`` finds the product and stores it.
"""

from tvm_tile.schedule.warp_products.rule import (
    least_seconds,
    mma_over,
    schedule_matrix_cores,
    schedule_mma,
)

__all__ = ["least_seconds", "mma_over", "schedule_matrix_cores", "schedule_mma"]
