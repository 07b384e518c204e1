"""Attention: two products and a softmax between them, as one kernel.

``find.py`` reads both products and what is between them for all kernels of attention: a softmax,
or, in a feed-forward, an activation of single values. ``weights.py`` finds what makes weights of
scores, ``None`` for what it does not know, and ``mask.py`` which keys a mask hides, by their places
or by positions in memory. ``walk.py`` writes which tiles of keys are left.
``rows.py`` writes that for rows of scores in registers (``Weighing``), whichever unit holds them
(``HeldScores``). ``kernel.py`` writes the kernel around an ``AttentionUnit``: ``warps.py`` for a
warp's matrix instructions, ``cores.py`` for CUDA cores. Hopper's warpgroups have
:mod:`tvm_tile.schedule.chain`, few queries :mod:`tvm_tile.schedule.decode`.
"""

from __future__ import annotations

from tvm_tile.schedule.attention.rule import schedule_attention

__all__ = ["schedule_attention"]
