"""Models of open extents: one function for all of them, over tensors of the greatest ones."""
