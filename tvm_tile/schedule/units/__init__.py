"""What multiplies, and how operands get there: what kernels for matrix units plug in.

``mma.py`` loads and multiplies fragments by NVIDIA's warp instructions, ``matrix_cores.py`` by
AMD's; ``wgmma.py`` multiplies by Hopper's, a warpgroup at a time. ``asynchronous_copies.py`` and
``register_copies.py`` bring an operand's chunks to shared memory.
"""
