"""Products on AMD's matrix cores: loads to registers, shared memory, MFMA or WMMA, any epilogue.

``rule.py`` offers tiles, ``kernel.py`` writes the kernel: ``copies.py`` brings its operands,
``fragments.py`` multiplies them, ``parts.py`` adds sums that are split. ``tensor_cores/`` finds the
product and stores it.
"""

from tvm_tile.schedule.matrix_cores.rule import schedule_matrix_cores

__all__ = ["schedule_matrix_cores"]
