"""Kernels of a graph that start while the one before them ends.

:mod:`~tvm_tile.build.early.dependent_launches` has the rule and writes the wait,
:mod:`~tvm_tile.build.early.ask_constants` what kernels may do ahead of it, and
:mod:`~tvm_tile.build.early.spread_blocks` sees to it that blocks do not crowd. Which kernels start
early is decided in :mod:`tvm_tile.launches`.
"""
