// Long straight code that reads and writes no memory, twice: whatever runs behind it finds none of
// its own instructions in a multiprocessor's caches, and neither does one copy behind the other.
//
// Launched with as many blocks as there are multiprocessors, of 16 warps. Each warp goes through a
// part of its own, 10 KB, so that parts are fetched at the same time: 160 KB in all, which is more
// than the caches of a multiprocessor hold, and 40 KB through the small cache of each scheduler.

// A multiply-add of two of eight registers, whose other factor is 1.0 plus something of its own: no
// two are alike. Each waits for what was written seven instructions before.
#define STEP(r, s, digits) "fma.rn.f32 %" #r ", %" #r ", 0f3F8" #digits ", %" #s ";"
#define STEPS_16(d)                                                                            \
  STEP(0, 1, d##0) STEP(1, 2, d##1) STEP(2, 3, d##2) STEP(3, 4, d##3) STEP(4, 5, d##4)         \
  STEP(5, 6, d##5) STEP(6, 7, d##6) STEP(7, 0, d##7) STEP(0, 1, d##8) STEP(1, 2, d##9)         \
  STEP(2, 3, d##A) STEP(3, 4, d##B) STEP(4, 5, d##C) STEP(5, 6, d##D) STEP(6, 7, d##E)         \
  STEP(7, 0, d##F)
#define STEPS_128(d)                                                                           \
  STEPS_16(d##0) STEPS_16(d##1) STEPS_16(d##2) STEPS_16(d##3) STEPS_16(d##4) STEPS_16(d##5)    \
  STEPS_16(d##6) STEPS_16(d##7)
// With two digits, 640 steps of a warp.
#define PART(warp, d)                                                                          \
  case warp:                                                                                   \
    asm volatile(STEPS_128(d##0) STEPS_128(d##1) STEPS_128(d##2) STEPS_128(d##3) STEPS_128(d##4) \
                 : "+f"(x[0]), "+f"(x[1]), "+f"(x[2]), "+f"(x[3]), "+f"(x[4]), "+f"(x[5]),     \
                   "+f"(x[6]), "+f"(x[7]));                                                    \
    break;

// Never writes: sums of positive numbers are not negative, which the compiler does not know.
#define FILLER(name, d)                                                                        \
  extern "C" __global__ void name(float* never) {                                              \
    float x[8];                                                                                \
    for (int i = 0; i < 8; ++i) x[i] = threadIdx.x + i;                                        \
    switch (threadIdx.x / 32) {                                                                \
      PART(0, d##0) PART(1, d##1) PART(2, d##2) PART(3, d##3) PART(4, d##4) PART(5, d##5)      \
      PART(6, d##6) PART(7, d##7) PART(8, d##8) PART(9, d##9) PART(10, d##A) PART(11, d##B)    \
      PART(12, d##C) PART(13, d##D) PART(14, d##E) PART(15, d##F)                              \
    }                                                                                          \
    float sum = 0.0f;                                                                          \
    for (int i = 0; i < 8; ++i) sum += x[i];                                                   \
    if (sum < 0.0f) *never = sum;                                                              \
  }

FILLER(first, 0)
FILLER(second, 1)
