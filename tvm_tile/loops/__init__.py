"""Loops of operators that are ours: TVM's are wrong, missing or slow."""

from tvm_tile.loops.legalizations import LEGALIZATIONS

__all__ = ["LEGALIZATIONS"]
