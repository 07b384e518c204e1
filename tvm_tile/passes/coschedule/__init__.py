"""Join kernels of a dataflow block into persistent ones (Rammer).

``coschedule_tasks.py`` is the pass: it reads the block's calls as rOperators (``task_graph.py``),
asks :mod:`tvm_tile.plan` which of them share a kernel, and rewrites (``merge_calls.py``). Each
reason to leave a call apart is a sentence, which ``explain()`` counts.
:mod:`tvm_tile.stages.coscheduling` builds the result, and takes back what does not build or fit.
"""
