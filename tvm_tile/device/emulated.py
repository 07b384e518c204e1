"""The emulated device: H200's schedules, run on the CPU as OpenCL kernels by PoCL.

Nearly everything that a decision reads is H200's, so the same tiles are chosen; only the target,
which code generation reads, differs, and there are no matrix units. Work-groups run one after
another on each core, so no kernel can wait for all blocks, there is no graph to capture, and no
kernel starts before another has ended.
"""

from __future__ import annotations

from dataclasses import replace

from tvm_tile.device.cuda import H200
from tvm_tile.device.device import Device, MemoryLevel

EMULATED: Device = replace(
    H200,
    name="emulated",
    kernel_language="opencl",
    target=(
        ("kind", "opencl"),
        ("max_num_threads", H200.max_threads_per_block),
        ("max_shared_memory_per_block", H200.memory(MemoryLevel.SHARED).capacity),
        ("max_threads_per_block", H200.max_threads_per_block),
        # 1 is kDLCPU: TVM's host code then takes CPU tensors, and no OpenCL runtime is needed.
        ("target_device_type", 1),
        # PoCL's threads do not run in lock step: with warps of one, TVM keeps every barrier.
        ("thread_warp_size", 1),
    ),
    # OpenCL C has no shared memory of a size fixed at launch.
    memories=tuple(
        replace(memory, scope="shared") if memory.level is MemoryLevel.SHARED else memory
        for memory in H200.memories
    ),
    matrix_instructions=(),
    supports_grid_barrier=False,
    grid_barrier_latency=None,
    supports_graphs=False,
    dependent_launches=None,
    measured=None,
)
