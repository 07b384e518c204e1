"""Arithmetic as the model writes it: what TVM's passes and compilers must not simplify away.

``floats.py`` keeps TVM's algebra away from floating-point numbers, ``bfloat16.py`` rounds each
result where a target has no bfloat16, ``integers.py`` has integers wrap as PyTorch's do.
``in_tvm.py`` does the same in TVM's own builds: those for the CPU, by which constants are folded
and kernels compared, and those of the pipeline that users of TVM name.
"""
