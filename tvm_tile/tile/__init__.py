"""How large a kernel's tiles are, and what they cost: decisions as pure functions on frozen data.

A tile (``tile.py``) has a launch and predicted seconds; each kind of kernel adds only what it
needs, and says what its blocks do, which ``time.py`` prices; counts that several kinds share are in
``asked.py``. ``ranked`` takes all tiles of an operator, and gives the fastest first;
``residency.py`` counts how many blocks share a multiprocessor. How many registers a compiler takes
is not the chip's fact but the compiler's, in ``register_use.py``. Folders have the tiles of kernels
for what they are named after, and ``weld/`` decides which operators are one kernel.
"""
