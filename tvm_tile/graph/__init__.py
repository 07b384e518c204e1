"""The computation in kernels and models: affine operators, formats of tensors, signatures.

``extract.py`` reads a TensorIR function into the frozen ``TileGraph`` (``tile_graph.py``) that
decisions are made of, and ``expression.py`` keeps what each element is, for kernels to write. For
codes of a few bits, ``tensor_format.py`` says how a tensor is kept, and ``codes.py``, which packs
and decodes in NumPy, is the definition; ``traced.py`` follows what a model computes of codes, and
``recognise.py`` finds their format in that, once for each code of a box, as elements are far more.
Of matrices with zeros ``positions.py`` lists the chunks that are left, and ``sparsity.py`` keeps
two of each four neighbours.
"""
