"""The architectures of ``bench.architectures`` through ``torch.compile(backend="tvm_tile")``."""
