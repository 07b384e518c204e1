"""Complex numbers as pairs of real ones: TVM has no complex element types.

``program.py`` gives each complex tensor of a program two nodes, its real and its imaginary part. It
runs each operator that has to do with complex numbers within ``Pairing`` (``pairing.py``), on
tensors without data: PyTorch's own code takes a :class:`Pair` (``pair.py``) for a complex tensor,
breaks composed operators such as ``einsum`` down, and comes to those that views, sums and copies
are made of, which treat both parts alike, or to formulas (``formulas.py``, ``fourier.py``)::

    z = polar(r, a) * x   =>   re = r * cos(a) * x;  im = r * sin(a) * x

What a program takes and returns must be real.
"""
