"""What to compute: operators with affine accesses."""
