"""What a change of ``tvm_tile`` does to the suites: texts of kernels, predictions, times."""
