// What it costs to start a kernel, and to let all blocks of a launch wait for one another.

extern "C" __global__ void empty() {}

// Keeps the stream busy while the host fills it, so that what is queued behind it runs back to
// back, however slow the host is.
extern "C" __global__ void spin(int nanoseconds) {
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  do {
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  } while (now - start < (unsigned long long)nanoseconds);
}

// A barrier over the grid, of one counter, zero at the start: as CUDA's cooperative groups do it.
//
// Block 0 adds 2^31 - (blocks - 1), every other block 1, so each barrier adds exactly 2^31 in all:
// its highest bit changes when the last block arrives, and at no other time: the lower bits are zero
// when a barrier begins, and what less than all blocks add to them is less than 2^31. A block that waits for the bit to
// differ from what it was at its own arrival can neither leave early nor miss the change: the next
// one needs the arrival of all blocks, its own included. A cooperative launch keeps all blocks
// resident: none waits for one that has no room to start.
//
// Memory: the writes of a block's threads come before its arrival (__syncthreads, then a release of
// thread 0), arrivals are atomics on one counter, and the change comes before whatever a block does
// after it saw it (an acquire, then __syncthreads). So each block sees what all wrote before.
__device__ void wait_for_all(unsigned* counter) {
  __syncthreads();
  if (threadIdx.x == 0) {
    unsigned share = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1u;
    unsigned before, now;
    asm volatile("atom.add.release.gpu.global.u32 %0, [%1], %2;"
                 : "=r"(before) : "l"(counter), "r"(share) : "memory");
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
    } while (((before ^ now) & 0x80000000u) == 0);
  }
  __syncthreads();
}

extern "C" __global__ void barriers(unsigned* counter, int rounds) {
  for (int round = 0; round < rounds; ++round) wait_for_all(counter);
}

// Each block tells its round and, after the barrier, looks whether the next block has told the
// same one (or, being ahead already, the one after it). Counts what is wrong.
extern "C" __global__ void checked_barriers(unsigned* counter, volatile unsigned* told,
                                            unsigned* wrong, int rounds) {
  for (int round = 1; round <= rounds; ++round) {
    if (threadIdx.x == 0) told[blockIdx.x] = round;
    wait_for_all(counter);
    if (threadIdx.x == blockDim.x - 1) {
      unsigned other = told[(blockIdx.x + 1) % gridDim.x];
      if (other - round > 1) atomicAdd(wrong, 1u);
    }
  }
}
