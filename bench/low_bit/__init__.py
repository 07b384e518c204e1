"""Products with weights of a few bits: ours, PyTorch's and gemlite's, in formats side by side."""
