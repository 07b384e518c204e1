"""Products with matrices that are kept as codes of a few bits.

``find.py`` finds the product behind what decodes its matrix, ``kernel.py`` has codes decoded in
registers, on their way to the matrix units, by what ``pairs.py`` knows of their kind;
``tile/coded/few_vectors.py`` ranks tiles. That is for few vectors; for many there is
``warpgroup_kernel.py``, with what ``fragments.py`` knows and the tiles of
``tile/coded/warpgroup.py``.
"""

from tvm_tile.schedule.coded.rule import schedule_coded

__all__ = ["schedule_coded"]
