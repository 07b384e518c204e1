"""How chunks get from global memory to what multiplies them: what kernels' loops have alike.

``specialised.py`` is the frame of a kernel with a warpgroup that fills a ring of stages, and others
that empty it: which tiles a block takes, which chunks of each, and both roles. ``ring.py`` has the
ring, ``clusters.py`` what becomes of a sum that several blocks share.
"""
