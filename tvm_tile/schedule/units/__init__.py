"""What multiplies, and how operands get there: what kernels for matrix units plug in.

``mma.py`` loads and multiplies fragments by NVIDIA's warp instructions, ``matrix_cores.py`` by
AMD's: ``begin_fragments`` gives the registers of a step's operands, ``multiply`` the instruction.
``asynchronous_copies.py`` and ``register_copies.py`` have threads bring an operand's chunks to
shared memory. ``wgmma.py`` multiplies by Hopper's instructions, a warpgroup at a time, which are
too different for that frame: their operands come by the copy engine (``bulk_copies.py``) to stages
whose barriers are ``ring.py``, in the kernels of :mod:`tvm_tile.schedule.pipelines.specialised`.
"""
