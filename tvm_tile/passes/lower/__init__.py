"""From scheduled kernels to the calls, graphs and memory of TVM's virtual machine.

``read_kernel_graph.py`` reads, ahead of all rewriting here, which kernel hands which tensor to
which; the report keeps that.
"""
