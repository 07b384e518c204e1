"""Which operators of a model become one kernel.

``connect.py`` decides which functions are joined tile by tile (Welder), ``side_by_side.py`` which
products of one value become one, ``gate_groups.py`` which operators are a recurrent cell. The
passes of :mod:`tvm_tile.passes.weld` ask these.
"""
