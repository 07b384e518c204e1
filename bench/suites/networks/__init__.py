"""The networks of the model suites, in PyTorch; every size is an argument."""
