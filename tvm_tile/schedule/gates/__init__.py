"""Several products of few rows, and what becomes of their sums, as one kernel.

``find.py`` finds the products in a function, ``cell.py`` reads what becomes of the sums,
``tile/few_rows/gates.py`` ranks tiles; ``kernel.py`` writes the kernel, with the sums of
``sums.py``.
"""

from tvm_tile.schedule.gates.rule import schedule_gates

__all__ = ["schedule_gates"]
