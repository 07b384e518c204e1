"""Loops of operators that are ours: TVM's are wrong, missing or slow.

``legalizations.py`` says which Relax operators have them. ``decoding.py`` writes the function that
decodes a tensor of codes; the format is an attribute of it (``format_of``), by which rules know it
again, and constant folding leaves its calls alone.
"""

from tvm_tile.loops.legalizations import LEGALIZATIONS

__all__ = ["LEGALIZATIONS"]
