"""Tiles of two products, one behind the other, such as attention, on whatever multiplies."""
