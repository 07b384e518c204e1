"""Verification that compiled models compute what they should.

Each different kernel runs on random inputs next to what NumPy makes of the same, unscheduled
function, its outputs filled with NaN beforehand, so that an element that no thread writes is found.
What NumPy is not told to compute, loops written by hand, runs next to TVM's CPU build of it.
Then the whole model runs next to its source, in ONNX Runtime or PyTorch. What is allowed follows
from the types and from how many numbers are added up; where an output is ill-conditioned, from
how much the reference itself moves with its inputs.
"""

from tvm_tile.verify.compare import compare, tolerance
from tvm_tile.verify.kernels import Kernels
from tvm_tile.verify.late import CompiledAgain, LateVerifier
from tvm_tile.verify.model import Verifier

__all__ = [
    "CompiledAgain",
    "Kernels",
    "LateVerifier",
    "Verifier",
    "compare",
    "tolerance",
]
