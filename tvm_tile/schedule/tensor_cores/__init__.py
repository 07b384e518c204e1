"""What the kernels for tensor cores have in common: before the product, and behind it.

``found.py`` finds the product in a function, ``padding.py`` the zeros around its operands,
``epilogue.py`` what follows it; ``place.py`` tells where a tile's rows and columns are, and
``store.py`` writes a warp's sums there.
"""
