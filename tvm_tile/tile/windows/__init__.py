"""Tiles of sliding windows, pooling and depthwise convolution."""
