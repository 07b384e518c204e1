"""Tiles of what goes along rows: reductions, chains of them, scans and sorts."""
