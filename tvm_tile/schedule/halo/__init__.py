"""Products and the windows over their values in one kernel: inverted bottlenecks, feed-forwards.

``find.py`` finds the order of products and windows in a function, ``step.py`` reads the arithmetic
between them, and ``tile/products/halo.py`` ranks tiles; ``kernel.py`` writes the kernel, with the
copies of ``copies.py``, the products of ``multiply.py`` and the windows' sums of ``windows.py``.
"""

from tvm_tile.schedule.halo.rule import schedule_halo

__all__ = ["schedule_halo"]
