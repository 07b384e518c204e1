"""Tiles of products for matrix units, and of what is computed with them in one kernel."""
