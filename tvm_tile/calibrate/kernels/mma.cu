// Products on matrix units, operands and sums in registers of one warp. The text before this one
// defines WORD, SUM (types of a register of operands, of sums), A_WORDS, B_WORDS, SUMS (registers
// of one fragment) and multiply(sums, a, b), one mma.sync.

constexpr int THREADS = 128;
constexpr int ROWS = 2;
constexpr int COLUMNS = 4;
constexpr int STEPS = 4;

extern "C" __global__ void __launch_bounds__(THREADS)
    products(const WORD* operands, SUM* out, int rounds) {
  WORD a[ROWS][A_WORDS], b[COLUMNS][B_WORDS];
  SUM sum[ROWS][COLUMNS][SUMS];
  const WORD* next = operands + threadIdx.x;
#pragma unroll
  for (int i = 0; i < ROWS * A_WORDS; ++i, next += THREADS) a[i / A_WORDS][i % A_WORDS] = *next;
#pragma unroll
  for (int i = 0; i < COLUMNS * B_WORDS; ++i, next += THREADS) {
    b[i / B_WORDS][i % B_WORDS] = *next;
  }
#pragma unroll
  for (int i = 0; i < ROWS * COLUMNS * SUMS; ++i) {
    sum[i / SUMS / COLUMNS][i / SUMS % COLUMNS][i % SUMS] = 0;
  }
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
#pragma unroll
    for (int i = 0; i < STEPS * ROWS * COLUMNS; ++i) {
      multiply(sum[i / COLUMNS % ROWS][i % COLUMNS], a[i / COLUMNS % ROWS], b[i % COLUMNS]);
    }
  }
  SUM* mine = out + ((size_t)blockIdx.x * THREADS + threadIdx.x) * (ROWS * COLUMNS * SUMS);
#pragma unroll
  for (int i = 0; i < ROWS * COLUMNS * SUMS; ++i) {
    mine[i] = sum[i / SUMS / COLUMNS][i / SUMS % COLUMNS][i % SUMS];
  }
}
