"""Tiles of products with matrices that are kept as codes of a few bits."""
