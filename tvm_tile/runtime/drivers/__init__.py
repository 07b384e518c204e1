"""Devices as models meet them: kernels launched, memory, and when each kernel ran.

What watches a run is a ``Watcher`` (``tracing.py``): ``cupti.py`` on NVIDIA's GPUs,
``HipDevice.watch`` on AMD's, and the CPU's clock on devices whose launches end with their kernels.
The last two are put around each launch by ``launching_by`` (``launchers.py``).
"""
