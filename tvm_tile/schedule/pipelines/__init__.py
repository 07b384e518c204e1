"""How chunks get from global memory to what multiplies them: what kernels' loops have alike.

``pipeline.py`` is what threads have that bring chunks and multiply them: ``ahead.py`` has chunks on
their way by asynchronous copies, ``through_registers.py`` by loads. ``specialised.py`` is the frame
of a kernel with a warpgroup that fills a ring of stages, and others that empty it: which tiles a
block takes, which chunks of each, and both roles; ``clusters.py`` is what becomes of a sum that
several blocks share.
"""
