"""From scheduled kernels to the calls, graphs and memory of TVM's virtual machine."""
