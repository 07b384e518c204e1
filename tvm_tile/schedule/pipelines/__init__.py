"""How chunks of operands get from global memory to the unit that multiplies them.

``pipeline.py`` has what a thread's copies, fragments and sums are, and two classes write the loop
over chunks: ``ahead.py`` has chunks on their way by asynchronous copies, ``through_registers.py``
by loads. ``specialised.py`` is the frame of a kernel with a warpgroup that fills a ring of stages,
and others that empty it: which tiles a block takes, which chunks of each, and both roles.
``clusters.py`` adds the parts of a sum that several blocks share.
"""
