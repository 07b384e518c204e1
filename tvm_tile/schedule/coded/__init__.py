"""Products of few vectors with matrices that are kept as codes of a few bits.

``find.py`` finds the product behind what decodes its matrix, ``kernel.py`` has codes decoded in
registers, on their way to the matrix units, by what ``pairs.py`` knows of their kind;
``tile/coded.py`` ranks tiles.
"""

from tvm_tile.schedule.coded.rule import schedule_coded

__all__ = ["schedule_coded"]
