"""JOIN KERNELS: many scheduled kernels as the rTasks of one persistent kernel."""
