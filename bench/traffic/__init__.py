"""Bytes between the GPU and its memory, kernel by kernel, of whole models compiled by us.

``python -m bench traffic`` compiles models without CUDA graphs and runs each under Nsight Compute,
once after a run that warms up.

* ``ncu``: how Nsight Compute is called, and what it prints;
* ``one_run``: the program that it watches;
* ``record``: what was measured, beside what our model predicts;
* ``measure``: the whole of it, models compiled side by side.
"""
