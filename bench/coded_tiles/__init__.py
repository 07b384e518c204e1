"""Tiles of products with matrices of codes: measured, fitted, and told beside others' kernels."""
