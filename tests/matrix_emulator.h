// The matrix instructions of AMD's GPUs for waves of coroutines: which lane holds what is written
// down here once more, as the references of the instruction sets have it.
#include "warp_emulator.h"

struct alignas(8) int2 { int x, y; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(4) char4 { signed char x, y, z, w; };
static uint4 make_uint4(uint x, uint y, uint z, uint w) { return {x, y, z, w}; }
static uint2 make_uint2(uint x, uint y) { return {x, y}; }
static int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
static char4 make_char4(int8_t x, int8_t y, int8_t z, int8_t w) { return {x, y, z, w}; }

typedef float sum_float32, in_float32;
typedef int sum_int32;
typedef half in_float16;
typedef nv_bfloat16 in_bfloat16;
typedef int8_t in_int8;

template <int, int> static void loads_then_products() {}
static void step_by_step() {}
static int rolled(int turns) { return turns; }

static float fast_exp2(float x) { return exp2f(x); }
// RDNA 3: a unit of 16 bytes becomes both halves' units, the lower half's first.
static void with_other_half(void *units) {
  uint4 own, other;
  memcpy(&own, units, 16);
  other = from_thread(own, current ^ 16);
  uint4 both[] = {current & 16 ? other : own, current & 16 ? own : other};
  memcpy(units, both, 32);
}

struct Place { int lane, held; };

// CDNA: 64 lanes.
template <int M, int K> struct mfma {
  static constexpr int each = M * K / 64;
  static Place operand(int row, int k) { return {k / each * M + row, k % each}; }
  static Place sum(int row, int column) {
    if (M == 16) return {row / 4 * 16 + column, row % 4};
    return {row / 4 % 2 * 32 + column, row / 8 * 4 + row % 4};
  }
  static int twin(int lane) { return lane; }
};
// RDNA 3: 32 lanes, of which both halves hold all of an operand.
template <int M, int K> struct wmma_gfx11 {
  static constexpr int each = K;
  static Place operand(int row, int k) { return {row, k}; }
  static Place sum(int row, int column) { return {row % 2 * 16 + column, row / 2}; }
  static int twin(int lane) { return lane ^ 16; }
};
// RDNA 4: 32 lanes.
template <int M, int K> struct wmma_gfx12 {
  static constexpr int each = K / 2;
  static Place operand(int row, int k) { return {k / each * 16 + row, k % each}; }
  static Place sum(int row, int column) { return {row / 8 * 16 + column, row % 8}; }
  static int twin(int lane) { return lane; }
};

struct Given { void *d; const void *a, *b; };
static Given givens[1024];

template <template <int, int> class Kind, class Sum, int M, int K, class In>
static void multiply(void *d, const void *a, const void *b) {
  typedef Kind<M, K> At;
  givens[current] = {d, a, b};
  meet(warps[current / WAVE], WAVE, [] {
    Given *wave = givens + current / WAVE * WAVE;
    for (int lane = 0; lane < WAVE; lane++) {
      const Given &own = wave[lane], &other = wave[At::twin(lane)];
      if (memcmp(own.a, other.a, At::each * sizeof(In))) __builtin_trap();
      if (memcmp(own.b, other.b, At::each * sizeof(In))) __builtin_trap();
    }
    for (int row = 0; row < M; row++)
      for (int column = 0; column < M; column++) {
        Place to = At::sum(row, column);
        Sum &sum = ((Sum *)wave[to.lane].d)[to.held];
        for (int k = 0; k < K; k++) {
          Place left = At::operand(row, k), right = At::operand(column, k);
          sum += (Sum)((const In *)wave[left.lane].a)[left.held] *
                 (Sum)((const In *)wave[right.lane].b)[right.held];
        }
      }
  });
}
