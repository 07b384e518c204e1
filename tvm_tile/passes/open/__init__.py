"""Models of open extents: one function for all of them, over tensors of the greatest ones.

Every stage from a front door to fused loops knows extents as numbers. So
:mod:`tvm_tile.stages.opening` has a model imported and fused at the greatest extents and at a few
others, which take the decisions of the first (``replay.py``); ``unify.py`` compares the results,
and numbers that differ become forms of variables. At further points, the smallest among them, each
operator's loops must be what the forms say; what does not agree is refused by name.

``bound_loops.py`` then gives every function loops of known extents, over tensors made for the
greatest ones. So a schedule rule need not know of open extents. It may do less, though: blocks that
compute nothing a call needs are not launched, or leave (:mod:`tvm_tile.schedule.open_outputs` finds
them, :mod:`tvm_tile.build.leaving` writes it), products count the tiles of the call, and attention
stops at its last key. :mod:`tvm_tile.tile.cover` chooses the fewest tiles that are nearly the best
at all extents, :mod:`tvm_tile.passes.scheduling.plan_open` schedules them, and the host takes one
of them at each call. ``close_main.py`` copies inputs in and outputs out.
``tests/run/test_open_truth.py`` has hard cases.
"""
