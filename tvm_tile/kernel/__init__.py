"""Many scheduled kernels as the rTasks (Rammer's pieces of work) of one persistent kernel.

``persistent.py`` makes the kernel of an execution plan: ``body.py`` turns a scheduled kernel into a
body that is given its block's number, ``dispatch.py`` runs the body that a record names, and
``assemble.py`` writes the loop over a block's queue of records. ``looping.py`` writes that loop for
plans with control flow, whose records say which record is next. ``tests/grid_emulator.py`` runs the
CUDA text of persistent kernels on the CPU, all blocks at once, in random orders.
"""
