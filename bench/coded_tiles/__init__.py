"""Tiles of products with matrices of codes: measured, and told beside others' kernels."""
