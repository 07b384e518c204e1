"""Loops, branches and recursion inside persistent kernels (Cocktailer)."""
