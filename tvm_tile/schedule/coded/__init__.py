"""Products with matrices that are kept as codes of a few bits.

``find.py`` takes the block away that decodes the matrix, which an annotation tells, finds the
product behind it as any other, and says which formats are read so. All other products read what a
kernel of its own has decoded.

For few vectors, ``kernel.py`` has codes decoded in registers on their way to the matrix units, by
what ``pairs.py`` knows of their kind; ``tile/coded/few_vectors.py`` ranks tiles. Where a joined
gate and its product are multiplied (SwiGLU), a block has rows of both halves (``block_row`` in
``loads.py``), and the epilogue gets two sums. Where each vector has a matrix of its own, as a
token's experts are, a block has vectors of one matrix (``slots.py``). For many vectors on Hopper
there is ``warpgroup_kernel.py``: ``warpgroup_producer.py`` brings codes, vectors and scales,
``fragments.py`` decodes what each thread holds of the left operand, ``warpgroup_consumer.py``
multiplies; ``tile/coded/warpgroup.py`` ranks tiles. ``python -m bench.coded_tiles`` and
``bench.coded_tiles.many`` measure tiles.
"""

from tvm_tile.schedule.coded.rule import schedule_coded

__all__ = ["schedule_coded"]
