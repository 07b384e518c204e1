"""What a model writes in place, and what passes its inputs, outputs and weights."""
