"""Tiles of what reads each element once and sums nothing: element-wise operators and copies."""
