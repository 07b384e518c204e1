"""Parts that the kernels for tensor cores share, before the product and behind it.

``found.py`` finds the product in a function, ``padding.py`` the zeros around its operands.
``epilogue.py`` says what becomes of each sum, whatever the expression: an element-wise operator
behind a product needs nothing of its own. ``place.py`` tells where a tile's rows and columns are,
and ``store.py`` writes a warp's sums there. In a call of open extents ``limits.py`` says how far
the axes go, and ``over_extents.py`` predicts what a tile takes then.
"""
