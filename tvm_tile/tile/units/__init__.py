"""What matrix units multiply: products step by step, and how operands and sums lie for them.

``unit.py`` has the units of a warp, NVIDIA's ``MmaUnit`` and AMD's ``WaveUnit``, and finds them for
a device (``units_of``), whose record lists its instructions. ``product.py`` finds rows, columns,
depth and steps in any sum of products. A ``Chunk`` says how an operand lies in shared memory:
``slab.py`` for NVIDIA's units, ``panel.py`` for AMD's, of which ``matrix_layout.py`` says what each
lane holds. ``sum_layout.py`` says which sums are in whose registers.
"""
