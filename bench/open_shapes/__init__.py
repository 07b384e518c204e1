"""One compilation for a range of extents, beside compilations for each of them, padding and peers."""
