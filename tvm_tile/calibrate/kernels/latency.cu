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

// A barrier over the grid, of a counter of arrivals (zero at the start) and a generation.
//
// `current` is the generation as this block knows it: read before the first barrier, counted on
// from there. The generation advances once a barrier, and only after all blocks have arrived: so a
// block that waits for it to differ from `current` can neither miss the advance nor leave early.
// The last block to arrive resets the counter before it advances the generation; nobody can arrive
// at the next barrier before that advance, so the counter starts each barrier at zero. A
// cooperative launch keeps all blocks resident: none waits for one that has no room to start.
//
// Memory: the writes of a block's threads come before its arrival (__syncthreads, then the fence of
// thread 0), each arrival before the advance (they are atomics on one counter, and the last block
// fences again), and the advance before whatever a block does after it saw it (fence, then
// __syncthreads). So each block sees what all wrote before the barrier.
__device__ void wait_for_all(unsigned* arrived, volatile unsigned* generation,
                             unsigned& current) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    if (atomicAdd(arrived, 1u) == gridDim.x - 1) {
      *(volatile unsigned*)arrived = 0;
      __threadfence();
      *generation = current + 1;
    } else {
      while (*generation == current) {
      }
    }
    __threadfence();
  }
  ++current;
  __syncthreads();
}

// Arrivals and generation, on cache lines of their own.
struct State {
  unsigned arrived;
  unsigned unused[63];
  volatile unsigned generation;
};

extern "C" __global__ void barriers(State* state, int rounds) {
  unsigned current = state->generation;
  for (int round = 0; round < rounds; ++round) {
    wait_for_all(&state->arrived, &state->generation, current);
  }
}

// Each block tells its round and, after the barrier, looks whether the next block has told the
// same one (or, being ahead already, the one after it). Counts what is wrong.
extern "C" __global__ void checked_barriers(State* state, volatile unsigned* told,
                                            unsigned* wrong, int rounds) {
  unsigned current = state->generation;
  for (int round = 1; round <= rounds; ++round) {
    if (threadIdx.x == 0) told[blockIdx.x] = round;
    wait_for_all(&state->arrived, &state->generation, current);
    if (threadIdx.x == blockDim.x - 1) {
      unsigned other = told[(blockIdx.x + 1) % gridDim.x];
      if (other - round > 1) atomicAdd(wrong, 1u);
    }
  }
}
