// Products on Hopper's matrix units, operands in shared memory, sums in the registers of a
// warpgroup. The text before this one defines SUM (the type of a sum) and multiply(sums, a, b),
// one wgmma.mma_async of 64 x 256 sums; `a` and `b` are descriptors of shared memory.
//
// Like the main loop of a matrix product, the groups walk over the stages of a pipeline, each with
// rows of its own and columns in common; unlike there, nothing refills the stages.

constexpr int GROUPS = 2;
constexpr int SUMS = 128;       // of one thread: 64 x 256 over 128 threads
constexpr int STAGES = 4;
constexpr int ROW_BYTES = 128;  // along k, what a swizzle of 128 bytes wants
constexpr int STEP_BYTES = 32;  // of them in one instruction, for every dtype
constexpr int A_BYTES = 64 * ROW_BYTES;
constexpr int B_BYTES = 256 * ROW_BYTES;
constexpr int STAGE_BYTES = GROUPS * A_BYTES + B_BYTES;

typedef unsigned long long descriptor;

// Matrix descriptor (PTX ISA, "Matrix-descriptor format"): address, bytes between groups of eight
// rows (1024), both in units of 16 bytes; 1 at the top is the swizzle of 128 bytes, with which the
// distance along k is not read.
__device__ descriptor describe(unsigned address) {
  return (descriptor)((address & 0x3ffff) >> 4) | (descriptor)1 << 16 |
         (descriptor)(8 * ROW_BYTES >> 4) << 32 | (descriptor)1 << 62;
}

extern "C" __global__ void __launch_bounds__(GROUPS * 128, 1)
    products(const uint4* operands, SUM* out, int rounds) {
  extern __shared__ __align__(1024) uint4 tiles[];
  for (int i = threadIdx.x; i < STAGES * STAGE_BYTES / 16; i += GROUPS * 128) {
    tiles[i] = operands[i];
  }
  // The matrix units read shared memory past the path that ordinary stores take.
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  // Descriptors live in uniform registers: the compiler must see that a warp agrees on the group.
  int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
  unsigned base = (unsigned)__cvta_generic_to_shared(tiles);
  descriptor a = describe(base + group * A_BYTES);
  descriptor b = describe(base + GROUPS * A_BYTES);
  SUM sum[SUMS];
#pragma unroll
  for (int i = 0; i < SUMS; ++i) sum[i] = 0;
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int stage = 0; stage < STAGES; ++stage) {
#pragma unroll
      for (int step = 0; step < ROW_BYTES / STEP_BYTES; ++step) {
        int offset = (stage * STAGE_BYTES + step * STEP_BYTES) >> 4;
        multiply(sum, a + offset, b + offset);
      }
    }
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
  }
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  SUM* mine = out + ((size_t)blockIdx.x * (GROUPS * 128) + threadIdx.x) * SUMS;
#pragma unroll
  for (int i = 0; i < SUMS; ++i) mine[i] = sum[i];
}
