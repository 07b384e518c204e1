"""What a warp multiplies with, and how operands get there: what kernels for matrix units plug in.

``mma.py`` loads and multiplies fragments by NVIDIA's warp instructions, ``matrix_cores.py`` by
AMD's. ``asynchronous_copies.py`` and ``register_copies.py`` bring an operand's chunks to shared
memory.
"""
