"""State that a model writes in place, and how its inputs, outputs and weights reach CUDA graphs.

``separate_in_place.py`` keeps calls that write over their arguments in order, and
``write_state.py`` has kernels write new state where it belongs. A CUDA graph holds addresses:
``copy_ends.py`` copies inputs and outputs to memory that stays, and ``pass_weights.py`` hands
weights as an argument of the program, for models whose weights change between calls.
"""
