"""Kernels for CUDA cores, written in TVM's schedule dialect, and the steps that they share."""
