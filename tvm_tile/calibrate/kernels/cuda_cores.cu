// Independent chains of multiply-adds on CUDA cores. The text before this one defines
//   TYPE            what a register of operands or sums holds
//   STEP(sum, a, b) one multiply-add of all lanes of the register, as volatile assembly
//
// Floating point computes sum = sum * a + b with |a| < 1: values keep changing, and neither grow
// nor vanish. With a = b = 1 each sum counts its steps.

constexpr int THREADS = 256;
constexpr int CHAINS = 8;
constexpr int STEPS = 64;
constexpr int OPERANDS = 4;

__device__ long long nanoseconds() {
  long long now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    chains(const TYPE* operands, TYPE* out, long long* ticks, int rounds) {
  TYPE a[OPERANDS], b[OPERANDS], sum[CHAINS];
#pragma unroll
  for (int i = 0; i < OPERANDS; ++i) {
    a[i] = operands[i * THREADS + threadIdx.x];
    b[i] = operands[(OPERANDS + i) * THREADS + threadIdx.x];
  }
#pragma unroll
  for (int chain = 0; chain < CHAINS; ++chain) sum[chain] = 0;
  long long cycles = clock64(), start = nanoseconds();
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
#pragma unroll
      for (int chain = 0; chain < CHAINS; ++chain) {
        STEP(sum[chain], a[step % OPERANDS], b[(step + chain) % OPERANDS]);
      }
    }
  }
  long long stop = nanoseconds();
  cycles = clock64() - cycles;
  if (threadIdx.x == 0) {
    ticks[2 * blockIdx.x] = cycles;
    ticks[2 * blockIdx.x + 1] = stop - start;
  }
  TYPE* mine = out + ((size_t)blockIdx.x * THREADS + threadIdx.x) * CHAINS;
#pragma unroll
  for (int chain = 0; chain < CHAINS; ++chain) mine[chain] = sum[chain];
}
