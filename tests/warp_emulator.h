// A block of CUDA threads, or a CLUSTER of several, as coroutines of one CPU thread: enough to run a kernel of mma, ldmatrix
// and cp.async from its text. Copies arrive at once, or as late as their wait allows (late). What
// threads do with common memory is watched for races.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <setjmp.h>
#include <ucontext.h>
#include <vector>
#ifdef WAVE
#define IS_AMD
#else
#define WAVE 32
#endif
#ifndef CLUSTER
#define CLUSTER 1
#endif
static const int MOST_THREADS = 1024 * (CLUSTER > 1 ? 2 : 1), MOST_BYTES = 232448;

#define __global__
#define __restrict__
#define __launch_bounds__(...)
#define uint unsigned int
#define uchar unsigned char
#define ushort unsigned short
typedef _Float16 half;
#include "bfloat16.h"

// How a launch goes: whether copies arrive as late as their wait allows, whether a thread runs before
// its predecessor, whether ldmatrix may load rows on the same banks, and the number of a barrier that
// is left out, from one.
extern "C" { int late, backward, conflicts, without; }
using std::max;
using std::min;
#define CUDART_INF_F INFINITY
#define CUDART_NAN_F NAN
template <class T> static T maximum(T a, T b) { return b > a || b != b ? b : a; }
template <class T> static T minimum(T a, T b) { return b < a || b != b ? b : a; }
struct alignas(4) half2 { half x, y; };
struct alignas(8) half4 { half x, y, z, w; };
struct alignas(8) ushort4 { ushort x, y, z, w; };
struct alignas(4) uchar4 { uchar x, y, z, w; };
struct alignas(8) uint2 { uint x, y; };
struct alignas(16) uint4 { uint x, y, z, w; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };

static half2 make_half2(half x, half y) { return {x, y}; }
static float2 make_float2(float x, float y) { return {x, y}; }
static half4 make_half4(half x, half y, half z, half w) { return {x, y, z, w}; }
static float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static half __float2half_rn(float x) { return (half)x; }
static half2 __floats2half2_rn(float x, float y) { return {(half)x, (half)y}; }
static half2 __hadd2(half2 a, half2 b) { return {a.x + b.x, a.y + b.y}; }
static half2 __hsub2(half2 a, half2 b) { return {a.x - b.x, a.y - b.y}; }
static half2 __hmul2(half2 a, half2 b) { return {a.x * b.x, a.y * b.y}; }
static half2 maximum(half2 a, half2 b) { return {maximum(a.x, b.x), maximum(a.y, b.y)}; }
static half2 minimum(half2 a, half2 b) { return {minimum(a.x, b.x), minimum(a.y, b.y)}; }

struct Index { int x, y; };
struct Group { uchar *into; const void *from; int size, brought; };
struct Lane { uint32_t *to[4]; const uchar *row; float *d[4]; uint32_t a[4], b[2]; };
struct Meeting { int arrived = 0, turn = 0; };
static int threads, current, first_block;  // threads of all blocks that run together
static int rank() { return current / (threads / CLUSTER); }
#define blockIdx (Index{first_block + rank(), 0})
#define OWN (current % (threads / CLUSTER))
#define threadIdx (Index{OWN % COLUMNS, OWN / COLUMNS})
#include "race_detector.h"
// All that a block shares is in one section, whose ends the linker knows.
#define SHARED static __attribute__((section("shared_memory"), used))
SHARED uchar shared[MOST_BYTES * CLUSTER] __attribute__((aligned(1024)));
extern uchar __start_shared_memory[], __stop_shared_memory[];
static ucontext_t contexts[MOST_THREADS];  // that threads start in
static jmp_buf home, states[MOST_THREADS];  // where they go on: to jump there is no system call
static bool started[MOST_THREADS], done[MOST_THREADS];
static Lane lanes[MOST_THREADS];
static Meeting cluster, blocks[CLUSTER], warps[MOST_THREADS / 32];
static std::vector<std::vector<Group>> pending[MOST_THREADS];

static void go_on() {
  if (started[current]) _longjmp(states[current], 1);
  started[current] = true;
  setcontext(&contexts[current]);
}

static void next() {
  int from = current;
  for (int i = 1; i <= threads; i++) {
    current = (from + (backward ? threads - i : i)) % threads;
    if (!done[current]) break;
  }
  if (done[current]) _longjmp(home, 1);
  if (current != from && !_setjmp(states[from])) go_on();
}

template <class Last> static void meet(Meeting &at, int count, Last last) {
  int turn = at.turn;
  if (++at.arrived == count) {
    is_common = true, last(), is_common = false;
    at.arrived = 0, at.turn++;
  }
  while (at.turn == turn) next();
}

// Waves of any size, the last maybe with threads missing.
template <class Last> static void meet_wave(Last last) {
  int first = current / WAVE * WAVE;
  meet(warps[current / WAVE], min(WAVE, threads - first), last);
}
static void cta_sync() { meet(blocks[rank()], threads / CLUSTER, [] { epochs[rank()]++; }); }
static void cluster_sync() { meet(cluster, threads, [] { age++; }); }
// A barrier in two halves, which orders nothing: used once, for that all blocks have begun.
static int begun_threads;
static void begun_in_cluster() { begun_threads++; }
static void wait_for_begun() { while (begun_threads < threads) next(); }
static uchar *block_memory() { return shared + rank() * MOST_BYTES; }
static void mapa(uint64_t &into, const void *own, uint block) {
  into = (uint64_t)own + ((int)block - rank()) * MOST_BYTES;
}
static void warp_sync() { meet_wave([] { turns[current / WAVE]++; }); }
// Two meetings: what is given must be taken before more is. They are no barriers: a shuffle orders
// no accesses to memory.
template <class T> static T from_thread(T value, int thread) {
  static T given[MOST_THREADS];
  given[current] = value;
  meet_wave([] {});
  T taken = given[thread < threads ? thread : current];
  meet_wave([] {});
  return taken;
}
#ifdef IS_AMD
// Shuffles among the threads that are there; no mask is looked at.
// As the hardware does, which knows its own waves only: others' threads are out of reach.
static int in_wave(int thread) { return thread / WAVE == current / WAVE ? thread : current; }
template <class T> static T __shfl_sync(uint, T value, int lane, int width) {
  return from_thread(value, in_wave((current & -width) | (lane & (width - 1))));
}
template <class T> static T __shfl_down_sync(uint, T value, int distance, int width) {
  bool within = (current & (width - 1)) + distance < width;
  return from_thread(value, within ? in_wave(current + distance) : current);
}
template <class T> static T __shfl_xor_sync(uint, T value, int mask, int width) {
  int other = current ^ mask;
  return from_thread(value, (other & -width) == (current & -width) ? in_wave(other) : current);
}
static uint __activemask() { return ~0u; }
static void __syncthreads() { cta_sync(); }
static void __syncwarp() { warp_sync(); }
#else
static int __shfl_sync(uint, int value, int, int) { return value; }
static int any_sync(uint, int value) {
  for (int i = 1; i < 32; i *= 2) value |= from_thread(value, current ^ i);
  return value;
}
static int __ffs(int value) { return __builtin_ffs(value); }
static float __shfl_sync(uint, float value, int lane, int) {
  return from_thread(value, (current & -32) | (lane & 31));
}
static float __shfl_down_sync(uint, float value, int distance, int) {
  return from_thread(value, (current & 31) + distance < 32 ? current + distance : current);
}
static uint __activemask() { return ~0u; }
static void __syncthreads() { cta_sync(); }
static float __shfl_xor_sync(uint, float value, int distance, int) {
  return from_thread(value, current ^ distance);
}
#endif
static float rsqrtf(float x) { return 1 / sqrtf(x); }
static void exponential(float &into, float power) { into = exp2f(power); }
static void load_words_1(uint32_t &a, const void *at) { a = *(const uint32_t *)at; }
static void load_words_2(uint32_t &a, uint32_t &b, const void *at) {
  a = ((const uint32_t *)at)[0], b = ((const uint32_t *)at)[1];
}
static void load_words_4(uint32_t &a, uint32_t &b, uint32_t &c, uint32_t &d, const void *at) {
  load_words_2(a, b, at), load_words_2(c, d, (const uint32_t *)at + 2);
}
template <class Combine> static void each_half(uint32_t &into, uint32_t a, uint32_t b, Combine f) {
  half own[2], other[2];
  memcpy(own, &a, 4), memcpy(other, &b, 4);
  for (int i = 0; i < 2; i++) own[i] = f(own[i], other[i]);
  memcpy(&into, own, 4);
}
static void add_halves(uint32_t &into, uint32_t a, uint32_t b) {
  each_half(into, a, b, [](half x, half y) { return (half)(x + y); });
}
static void multiply_halves(uint32_t &into, uint32_t a, uint32_t b) {
  each_half(into, a, b, [](half x, half y) { return (half)(x * y); });
}
static float number_of(nv_bfloat16, uint32_t word, int which) {
  word = which ? word & 0xffff0000 : word << 16;
  float value;
  memcpy(&value, &word, 4);
  return value;
}
static void fma_bfloat16(uint32_t &into, uint32_t a, uint32_t b, uint32_t c) {
  nv_bfloat16 kind, pair[2];
  for (int i = 0; i < 2; i++)  // an exact product: rounded is the sum
    pair[i] = number_of(kind, a, i) * number_of(kind, b, i) + number_of(kind, c, i);
  memcpy(&into, pair, 4);
}
static void fma_halves(uint32_t &into, uint32_t a, uint32_t b, uint32_t c) {
  half own[2], factor[2], more[2];
  memcpy(own, &a, 4), memcpy(factor, &b, 4), memcpy(more, &c, 4);
  for (int i = 0; i < 2; i++)  // rounded once
    own[i] = (half)((double)(float)own[i] * (double)(float)factor[i] + (double)(float)more[i]);
  memcpy(&into, own, 4);
}
static void multiply_bfloat16(uint32_t &into, uint32_t a, uint32_t b) {
  nv_bfloat16 kind, pair[2];
  for (int i = 0; i < 2; i++) pair[i] = number_of(kind, a, i) * number_of(kind, b, i);
  memcpy(&into, pair, 4);
}
static void pack_bfloat16(uint32_t &into, float high, float low) {
  nv_bfloat16 pair[] = {(nv_bfloat16)low, (nv_bfloat16)high};
  memcpy(&into, pair, 4);
}
static void choose_bytes(uint32_t &into, uint32_t a, uint32_t b, uint32_t chosen) {
  uint64_t both = (uint64_t)b << 32 | a;
  into = 0;
  for (int i = 0; i < 4; i++) into |= (uint32_t)(both >> (chosen >> 4 * i & 7) * 8 & 255) << 8 * i;
}
template <int TABLE>  // a bit of it for each three bits
static void combine_bits(uint32_t &into, uint32_t a, uint32_t b, uint32_t c) {
  uint32_t found = 0;
  for (int i = 0; i < 8; i++)
    if (TABLE >> i & 1) found |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
  into = found;
}
static void pack_halves(uint32_t &into, float high, float low) {
  half pair[] = {(half)low, (half)high};
  memcpy(&into, pair, 4);
}
template <int WIDTH, class Combine> static float reduce(float value, Combine combine) {
  for (int i = 1; i < WIDTH; i *= 2) value = combine(value, from_thread(value, current ^ i));
  return value;
}
template <int WIDTH> static float most_of(float value) {
  return reduce<WIDTH>(value, [](float a, float b) { return max(a, b); });
}
template <int WIDTH> static float sum_of(float value) {
  return reduce<WIDTH>(value, [](float a, float b) { return a + b; });
}
static uint32_t cvta(const void *p) { return (const uchar *)p - shared; }
static uchar *memory(uint32_t address) { return shared + (int32_t)address; }

UNWATCHED static void land(const Group &g) {
  touch(g.into, g.size, ARRIVED);
  memset(g.into, 0, g.size);
  memcpy(g.into, g.from, g.brought);
}
static void cp_async(uint32_t into, const void *from, int size, int brought) {
  if (pending[current].empty()) pending[current].emplace_back();
  Group g{memory(into), from, size, brought};
  if (into % size || (brought && (uintptr_t)from % size)) __builtin_trap();
  touch(from, brought, LOADED), touch(g.into, size, AWAITED);
  if (late) pending[current].back().push_back(g); else land(g);
}
static void commit() {
  if (pending[current].empty()) pending[current].emplace_back();
  pending[current].emplace_back();
}
static void wait_group(int left) {  // the last of pending is not committed yet
  auto &own = pending[current];
  while ((int)own.size() - 1 > left) { for (auto &g : own.front()) land(g); own.erase(own.begin()); }
}
static void wait_all() { commit(); wait_group(0); }
static void begun() {}  // the kernel before this one has ended

// A barrier that counts arrivals and bytes, and numbers that blocks of a cluster write to each other,
// whose bytes one counts: on their way until it is waited for (late), or there at once.
struct Barrier { short count, missing; int bytes : 31; unsigned phase : 1; };
struct Letter { uint32_t into; float value; uint32_t barrier; };
static std::vector<Letter> letters, delivered;
static int idle;
UNWATCHED static Barrier *barrier_at(uint32_t at) { return (Barrier *)memory(at); }
UNWATCHED static void mbarrier_init(uint32_t at, uint count) {
  static_assert(sizeof(Barrier) == 8, "as in memory");
  Barrier fresh{(short)count, (short)count, 0, 0};
  memcpy(memory(at), &fresh, 8);
}
UNWATCHED static void settle(Barrier *at) {
  if (at->missing || at->bytes) return;
  at->missing = at->count, at->phase ^= 1, idle = 0;
}
UNWATCHED static void mbarrier_arrive(uint32_t at, uint) {
  Barrier *barrier = barrier_at(at);
  if (--barrier->missing < 0) __builtin_trap();
  settle(barrier);
}
UNWATCHED static void mbarrier_expect(uint32_t at, uint bytes) {
  barrier_at(at)->bytes += bytes;
  mbarrier_arrive(at, 1);
}
UNWATCHED static void deliver(const Letter &letter) {
  memcpy(memory(letter.into), &letter.value, 4);
  delivered.push_back(letter);
  barrier_at(letter.barrier)->bytes -= 4;
  settle(barrier_at(letter.barrier));
}
static void map_address(uint32_t &into, uint32_t own, uint block) {
  into = own + ((int)block - rank()) * MOST_BYTES;
}
UNWATCHED static void send(uint32_t into, float value, uint32_t barrier) {
  Letter letter{into, value, barrier};
  touch(memory(into), 4, AWAITED);
  if (late) letters.push_back(letter); else deliver(letter);
}
UNWATCHED static void wait_for_letters(void *at, int parity) {
  while ((int)((Barrier *)at)->phase == parity) {
    if (++idle > 4 * threads && !letters.empty()) {  // as many as there are threads wait
      deliver(letters.front());
      letters.erase(letters.begin()), idle = 0;
    }
    if (idle > 1 << 24) __builtin_trap();  // for ever
    next();
  }
  // What has come is ordered from here on.
  for (auto &letter : delivered)
    if (memory(letter.barrier) == at) touch(memory(letter.into), 4, TOLD);
}

template <bool TURNED>
static void ldmatrix(uint32_t &r0, uint32_t &r1, uint32_t &r2, uint32_t &r3, uint32_t at) {
  Lane &own = lanes[current];
  own.to[0] = &r0, own.to[1] = &r1, own.to[2] = &r2, own.to[3] = &r3, own.row = memory(at);
  touch(own.row, 16, LOADED);
  meet(warps[current / 32], 32, [] {
    Lane *warp = lanes + current / 32 * 32;
    for (int m = 0; m < 4; m++) {
      const char *served[8] = {};  // by the bank of its first bytes; all may load one row
      for (int r = 0; r < 8; r++) {
        const char *row = (const char *)warp[m * 8 + r].row, *&other = served[(uintptr_t)row / 16 % 8];
        if (!conflicts && other && other != row) __builtin_trap();
        other = row;
      }
      for (int lane = 0; lane < 32; lane++) {
        ushort pair[2];
        for (int i = 0; i < 2; i++) {
          int row = lane / 4, column = lane % 4 * 2 + i;
          if (TURNED) std::swap(row, column);
          memcpy(pair + i, warp[m * 8 + row].row + column * 2, 2);
        }
        memcpy(warp[lane].to[m], pair, 4);
      }
    }
  });
}

static float number_of(half, uint32_t word, int which) {
  ushort bits = word >> which * 16;
  half value;
  memcpy(&value, &bits, 2);
  return (float)value;
}
template <class Number>
static void mma(float &d0, float &d1, float &d2, float &d3, uint32_t a0, uint32_t a1, uint32_t a2,
                uint32_t a3, uint32_t b0, uint32_t b1, float, float, float, float) {
  lanes[current].d[0] = &d0, lanes[current].d[1] = &d1, lanes[current].d[2] = &d2;
  lanes[current].d[3] = &d3;
  uint32_t a[] = {a0, a1, a2, a3}, b[] = {b0, b1};
  memcpy(lanes[current].a, a, 16), memcpy(lanes[current].b, b, 8);
  meet(warps[current / 32], 32, [] {
    Lane *warp = lanes + current / 32 * 32;
    for (int i = 0; i < 16; i++)
      for (int j = 0; j < 8; j++) {
        float &sum = *warp[i % 8 * 4 + j / 2].d[i / 8 * 2 + j % 2];
        for (int k = 0; k < 16; k++) {
          Lane &left = warp[i % 8 * 4 + k % 8 / 2], &right = warp[j * 4 + k % 8 / 2];
          sum += number_of(Number(), left.a[i / 8 + k / 8 * 2], k % 2) *
                 number_of(Number(), right.b[k / 8], k % 2);
        }
      }
  });
}

// Half as deep.
template <class Number>
static void mma(float &d0, float &d1, float &d2, float &d3, uint32_t a0, uint32_t a1, uint32_t b0,
                float c0, float c1, float c2, float c3) {
  mma<Number>(d0, d1, d2, d3, a0, a1, 0, 0, b0, 0, c0, c1, c2, c3);
}


static void kernel(void **arguments);
static void **given;
static const size_t STACK = 65536;
static void start() { kernel(given); done[current] = true; next(); }

// Returns what the first race is, or nothing.
extern "C" const char *launch(int grid, int size, int count, void **arguments, size_t *sizes) {
  threads = size * CLUSTER, given = arguments;
  char *stacks = (char *)malloc(threads * STACK);  // given back, unlike this library
  size_t shared_size = __stop_shared_memory - __start_shared_memory;
  watch(__start_shared_memory, shared_size);
  for (int i = 0; i < count; i++) watch(arguments[i], sizes[i]);
  for (first_block = 0; first_block < grid && !first_race[0]; first_block += CLUSTER, age++) {
    begun_threads = 0, letters.clear(), delivered.clear();
    memset(__start_shared_memory, 255, shared_size);  // NaN
    for (int t = 0; t < threads; t++) {
      pending[t].clear(), started[t] = done[t] = false;
      getcontext(&contexts[t]);
      contexts[t].uc_stack.ss_sp = &stacks[t * STACK], contexts[t].uc_stack.ss_size = STACK;
      makecontext(&contexts[t], start, 0);
    }
    current = 0;
    if (!_setjmp(home)) go_on();
  }
  free(stacks), forget_all();
  return first_race;
}
