"""Products on Hopper's tensor cores: TMA in, warpgroup instructions, any epilogue behind.

``rule.py`` finds the product in a function, ``epilogue.py`` what follows it, ``kernel.py`` writes
both roles of the kernel: ``operand.py`` what the producer copies, ``walk.py`` in which order,
``store.py`` what the consumers do with their sums.
"""

from tvm_tile.schedule.wgmma.rule import schedule_wgmma

__all__ = ["schedule_wgmma"]
