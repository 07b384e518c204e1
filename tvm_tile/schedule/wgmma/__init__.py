"""Products on Hopper's tensor cores: TMA in, warpgroup instructions, any epilogue behind.

``rule.py`` offers tiles, ``kernel.py`` writes both roles of the kernel in the frame of
``schedule/pipelines/specialised.py``, ``sides.py`` says what a chunk is made of.
``schedule/tensor_cores/`` finds the product and stores it.
"""

from tvm_tile.schedule.wgmma.rule import schedule_wgmma, wgmma_over

__all__ = ["schedule_wgmma", "wgmma_over"]
