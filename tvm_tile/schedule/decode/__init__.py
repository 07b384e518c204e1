"""Attention of few queries against many keys, as one kernel: a language model's step by one token.

``find.py`` reads keys and values where they lie, whichever heads share them. ``../made_rows.py`` is
what makes queries, such as a norm and a rotation, and ``visible.py`` what a mask lets rows see, so
that tiles of keys behind a cache's last row are not read. ``kernel.py`` writes the kernel, in which
each worker sums up some keys, and ``merge.py`` adds up the workers' sums, those of a cluster's
blocks among them.
"""

from __future__ import annotations

from tvm_tile.schedule.decode.rule import schedule_decode

__all__ = ["schedule_decode"]
