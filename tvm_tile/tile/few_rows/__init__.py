"""Tiles of products of few rows, which take as long as reading their weights does.

Products of one vector, or a few, are ``matvec.py``; in a kernel of several, the weights stay apart
(``few_vectors.py``), and each block makes the norm of the rows anew. ``gates.py`` has the tiles of
recurrent cells and other functions of several products, written by :mod:`tvm_tile.schedule.gates`.
"""
