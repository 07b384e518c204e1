"""How a model's kernels follow one another: which start early, which copy, what they take then.

A kernel of a CUDA graph may start while the one before it ends.
:mod:`tvm_tile.passes.lower.mark_dependent_launches` reads which functions follow another and which
of their arguments are constants, ``dependent_launches.py`` decides which gain by it, and
:mod:`tvm_tile.build.early.dependent_launches` writes the wait ahead of all that the kernel does, so
that a schedule rule need not know. ``spread.py`` decides how much shared memory blocks ask for that
are to lie evenly. :mod:`tvm_tile.build.early.dependent_launches` argues why each kernel must wait.
``tests/run/test_dependent_chain.py`` runs such chains in an emulator in which each kernel does all
that it may before the one before it does anything.
"""
