// Chains of kernels, each of which reads what the one before it wrote, and overwrites what that one
// read. No pointer is __restrict__: what is read changes while the kernel waits.

__device__ __forceinline__ void give_way() {
  asm volatile("griddepcontrol.wait;" : : : "memory");
}

__device__ __forceinline__ void let_go() {
  asm volatile("griddepcontrol.launch_dependents;" : : : "memory");
}

// Adds one to what a thread of another block wrote.
__device__ __forceinline__ void step(const int* from, int* into) {
  int count = gridDim.x * blockDim.x;
  int own = blockIdx.x * blockDim.x + threadIdx.x;
  into[own] = from[(own + blockDim.x) % count] + 1;
}

extern "C" __global__ void ordinary(const int* from, int* into) { step(from, into); }

extern "C" __global__ void waiting(const int* from, int* into) {
  let_go();
  give_way();
  step(from, into);
}
