"""How a model's kernels follow one another: which start early, which copy, what they take then."""
