"""What multiplies, and how operands get there: what kernels for matrix units plug in.

``mma.py`` loads and multiplies fragments by NVIDIA's warp instructions, ``matrix_cores.py`` by
AMD's; ``wgmma.py`` multiplies by Hopper's, a warpgroup at a time. ``asynchronous_copies.py`` and
``register_copies.py`` have threads bring an operand's chunks to shared memory, ``bulk_copies.py``
the copy engine, to stages whose barriers are ``ring.py``.
"""
