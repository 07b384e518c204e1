"""Decide which operators are one kernel, and make its function.

TVM's fusion runs with more told to it (the passes ``mark_*.py`` and ``limit_fusion.py``), then
``fuse_tiles.py`` joins functions whose tiles are handed over on chip, where the model of time says
that it pays (Welder). Ahead of both, while operators are operators, ``group_gates.py`` makes one
function of a recurrent cell, and ``join_products.py`` one product of several with the same left
operand, whether their weights are numbers or codes of one format; ``lay_out_weights.py`` turns the
weights of products of few rows where their kernels are faster so, and ``skip_zeros.py`` tells
products which chunks of their weights are zeros. For caches, ``join_writes.py``
computes new rows in the kernel that writes them, which is attention's, where that is faster. The
decisions are in :mod:`tvm_tile.tile.weld`.
"""
