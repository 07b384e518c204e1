// Chains of kernels, each of which reads what the one before it wrote, and overwrites what that one
// read. No pointer is __restrict__: what is read changes while the kernel waits.

constexpr int DEPTH = 8;

__device__ __forceinline__ void give_way() {
  asm volatile("griddepcontrol.wait;" : : : "memory");
}

// Adds one to what a thread of another block wrote.
__device__ __forceinline__ void step(const int* from, int* into) {
  int count = gridDim.x * blockDim.x;
  int own = blockIdx.x * blockDim.x + threadIdx.x;
  into[own] = from[(own + blockDim.x) % count] + 1;
}

extern "C" __global__ void ordinary(const int* from, int* into) { step(from, into); }

extern "C" __global__ void waiting(const int* from, int* into) {
  give_way();
  step(from, into);
}

// The same, and adds up its share of a kernel's own constants, all zero; `ahead` lines of 128 bytes
// of these are asked for before the wait, if any.
extern "C" __global__ void fetching(const int* from, int* into, const uint4* constants, int lines,
                                    int number, int ahead) {
  const uint4* own = constants + (long long)number * lines * 8;
  if (ahead > 0) tile_ask_ahead(own, lines, ahead);
  give_way();
  int share = (lines + gridDim.x - 1) / gridDim.x * 8;
  int end = min((int)(blockIdx.x + 1) * share, lines * 8);
  int at = blockIdx.x * share + threadIdx.x;
  unsigned sum = 0;
  // So many in flight at once that memory is busy.
  for (; at + (DEPTH - 1) * (int)blockDim.x < end; at += DEPTH * blockDim.x) {
    uint4 found[DEPTH];
#pragma unroll
    for (int n = 0; n < DEPTH; ++n) found[n] = own[at + n * blockDim.x];
#pragma unroll
    for (int n = 0; n < DEPTH; ++n) sum += found[n].x + found[n].y + found[n].z + found[n].w;
  }
  for (; at < end; at += blockDim.x) sum += own[at].x;
  step(from, into);
  if (sum) into[0] = -1;
}
