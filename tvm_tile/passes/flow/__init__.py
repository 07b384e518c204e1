"""Loops, branches and recursion inside persistent kernels (Cocktailer).

``read_loops.py``, ``read.py`` and ``recursion.py`` read Relax's control flow, ``program.py``
decides which memory holds which value, ``runs.py`` which bindings in a row are one kernel, and
``plan.py`` what that kernel takes, and what the same on the host would (``python -m
bench.host_flow`` measures the host's part). ``merge.py`` makes the kernel, and
``loops_in_kernels.py`` is the pass that rewrites. A kernel that cannot run as rTasks has another
schedule for this in :mod:`tvm_tile.schedule.rtasks`. Each kernel leaves a word that says whether it
came to its end or to one of its ``Bounds``; :mod:`tvm_tile.passes.lower.check_ends` has the host
read it. ``tests/loop_runs.py`` runs the kernels of a PyTorch model.
"""
