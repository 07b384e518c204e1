"""Devices as models meet them: kernels launched, memory, and when each kernel ran."""
