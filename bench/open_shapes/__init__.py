"""One compilation for a range of extents, beside those for known extents, padding and peers."""
