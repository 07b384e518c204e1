"""What models take on GPUs, without these GPUs, and without a compiler for them.

``oracle.py`` predicts one model after another, and knows what it has chosen for those before;
``offers.py`` asks it about several devices and batches, and tells which of them are worth it.
"""

from tvm_tile.oracle.offers import Offer, Offers, choose
from tvm_tile.oracle.oracle import Oracle, predict

__all__ = ["Offer", "Offers", "Oracle", "choose", "predict"]
