"""Join kernels of a dataflow block into persistent ones (Rammer)."""
