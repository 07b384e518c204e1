// A grid of CUDA blocks as coroutines of one CPU thread: enough to run a persistent kernel from its
// text, its blocks in a random order that changes whenever one of them waits.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <setjmp.h>
#include <ucontext.h>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __restrict__
#define __launch_bounds__(...)
#define uint unsigned int
#define uchar unsigned char
#define ushort unsigned short
#include "half_precision.h"
using std::max;
using std::min;
#define CUDART_INF_F INFINITY
#define CUDART_NAN_F NAN
template <class T> static T maximum(T a, T b) { return b > a || b != b ? b : a; }
template <class T> static T minimum(T a, T b) { return b < a || b != b ? b : a; }
#define VECTORS(type, name)                                                     \
  struct alignas(2 * sizeof(type)) name##2 { type x, y; };                        \
  struct alignas(sizeof(type) < 8 ? 4 * sizeof(type) : 16) name##4 { type x, y, z, w; }; \
  static name##2 make_##name##2(type x, type y) { return {x, y}; }              \
  static name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
VECTORS(signed char, char)
VECTORS(uchar, uchar)
VECTORS(short, short)
VECTORS(ushort, ushort)
VECTORS(int, int)
VECTORS(uint, uint)
VECTORS(int64_t, longlong)
VECTORS(uint64_t, ulonglong)
VECTORS(float, float)
VECTORS(double, double)
#define __expf expf
static uint __byte_perm(uint x, uint y, uint selector) {
  uint64_t bytes = (uint64_t)y << 32 | x;
  uint result = 0;
  for (int i = 0; i < 4; ++i) result |= (uint)(bytes >> (selector >> 4 * i & 7) * 8 & 255) << 8 * i;
  return result;
}
static float __frcp_rn(float x) { return 1 / x; }
static float rsqrtf(float x) { return 1 / sqrtf(x); }

struct Index { int x, y; };
struct Meeting { int arrived = 0, turn = 0; };
struct Thread {
  ucontext_t context;  // that it starts in
  jmp_buf state;  // where it goes on: to jump there makes no system call, unlike swapcontext
  bool started = false;
  std::unique_ptr<char[]> stack;  // memory that is not touched is not there
  const int *watched = nullptr;  // it waits until this has reached `target`
  int target = 0;
  bool done = false;
};
struct Block {
  std::vector<Thread> threads;
  std::vector<uchar> memory;
  Meeting meetings[16], warps[32];
  uint64_t lanes[1024];
};
static const int BYTES = 65536;  // of a thread's stack
static const int STATIC = 49152;  // bytes that a kernel declares itself, at most
static std::vector<Block> grid;
static jmp_buf home;
static int block_number, thread_number;
static int first_block;  // the number of the grid's first, where others are left out
static int blocks_in_row = 1 << 30;  // along x; those behind them are in the next row along y
#define blockIdx \
  (Index{(first_block + block_number) % blocks_in_row, (first_block + block_number) / blocks_in_row})
#define threadIdx (Index{thread_number % COLUMNS, thread_number / COLUMNS})

static void leave(Thread &own) {
  if (!_setjmp(own.state)) _longjmp(home, 1);
}

static void enter(Thread &thread) {
  if (_setjmp(home)) return;
  if (thread.started) _longjmp(thread.state, 1);
  thread.started = true;
  setcontext(&thread.context);
}

static void wait_until(const int *watched, int target) {
  if (*watched >= target) return;
  Thread &own = grid[block_number].threads[thread_number];
  own.watched = watched, own.target = target;
  leave(own);
}

static void meet(Meeting &at, int count) {
  int turn = at.turn;
  if (++at.arrived == count) { at.arrived = 0; at.turn++; }
  wait_until(&at.turn, turn + 1);
}

static Block &here() { return grid[block_number]; }
static uchar *shared_memory(int offset) {
  uchar *first = here().memory.data();
  return first + (1024 - (uintptr_t)first % 1024) % 1024 + offset;
}
static void cta_sync() { meet(here().meetings[0], here().threads.size()); }
static void __syncthreads() { cta_sync(); }
static void warp_sync() {
  int first = thread_number / 32 * 32;
  meet(here().warps[thread_number / 32], min(32, (int)here().threads.size() - first));
}
static void __syncwarp() { warp_sync(); }
// A warp counts as a whole, however many of its threads come.
static void tile_meet(int which, int threads) { meet(here().meetings[which], threads); }
static void tile_wait_for(int *counter, int target) { wait_until(counter, target); }
static void tile_wait_until(int *counter, int count, uint executions) {
  wait_until(counter, count * (int)executions);
}
static int tile_holds(const void *condition) { return *(const uchar *)condition != 0; }
static void tile_count_up(int *counter) { ++*counter; }
// Marks of a record's begin and end: each end is of the record that the block has begun.
static std::vector<int> begun;
static void tile_begin(int record) {
  if (thread_number) return;
  begun.resize(grid.size(), -1);
  if (begun[block_number] != -1) abort();
  begun[block_number] = record;
}
static void tile_end(int record) {
  if (thread_number) return;
  if (begun[block_number] != record) abort();
  begun[block_number] = -1;
}

template <class T> static T exchange(T value, int from) {
  memcpy(&here().lanes[thread_number], &value, sizeof value);
  warp_sync();
  T found;
  memcpy(&found, &here().lanes[thread_number / 32 * 32 + from], sizeof found);
  warp_sync();
  return found;
}
template <class T> static T __shfl_sync(uint, T value, int lane, int width = 32) {
  int own = thread_number % 32;
  return exchange(value, own / width * width + lane % width);
}
template <class T> static T __shfl_down_sync(uint, T value, int by, int width = 32) {
  int own = thread_number % 32;
  return exchange(value, own % width + by < width ? own + by : own);
}
template <class T> static T __shfl_up_sync(uint, T value, int by, int width = 32) {
  int own = thread_number % 32;
  return exchange(value, own % width < by ? own : own - by);
}
template <class T> static T __shfl_xor_sync(uint, T value, int by, int = 32) {
  return exchange(value, (thread_number % 32) ^ by);
}
static uint __activemask() { return 0xffffffffu; }

// Kernels that start early: what comes before their wait may run before the kernel before them does
// anything behind its own.
static int ended_before = 1;  // whether the kernel before this one has ended
static void tvm_builtin_ptx_griddepcontrol_wait() { wait_until(&ended_before, 1); }
// The chain starts a kernel when all blocks of the one before are past its wait, whatever they say.
static void tvm_builtin_ptx_griddepcontrol_launch_dependents() {}
static void tile_ask_for(const void *, int, int, int) {}

static void start();  // the kernel, with its arguments

static void body() {
  start();
  here().threads[thread_number].done = true;
  while (true) leave(here().threads[thread_number]);
}

static void make_grid(int blocks, int threads, int bytes) {
  grid.clear();
  grid.resize(blocks);
  for (Block &block : grid) {
    block.threads.resize(threads);
    block.memory.assign(STATIC + bytes + 1024, 0xff);  // NaN, until it is written
    for (Thread &thread : block.threads) {
      thread.stack.reset(new char[BYTES]);
      getcontext(&thread.context);
      thread.context.uc_stack.ss_sp = thread.stack.get();
      thread.context.uc_stack.ss_size = BYTES;
      makecontext(&thread.context, body, 0);
    }
  }
}

// Threads that did not end: 0, unless blocks wait for what never comes.
static int go_on(int seed) {
  std::mt19937 random(seed);
  std::vector<int> order(grid.size());
  for (int i = 0; i < order.size(); i++) order[i] = i;
  // Some blocks are faster than others for a while, so that they run ahead; where none of those
  // that had their turn could move, all have one.
  std::vector<int> speed(grid.size(), 8);
  bool moves = true, all = false;
  for (int round = 0; moves || !all; round++) {
    all = !moves;
    moves = false;
    if (round % 256 == 0)
      for (int &own : speed) own = 1 << random() % 4;
    std::shuffle(order.begin(), order.end(), random);
    for (int number : order) {
      if (!all && random() % 8 >= speed[number]) continue;
      for (int i = 0; i < grid[number].threads.size(); i++) {
        Thread &thread = grid[number].threads[i];
        if (thread.done || (thread.watched && *thread.watched < thread.target)) continue;
        block_number = number, thread_number = i, thread.watched = nullptr, moves = true;
        enter(thread);
      }
    }
  }
  int left = 0;
  for (Block &block : grid)
    for (Thread &thread : block.threads) left += !thread.done;
  return left;
}

static int run_grid(int blocks, int threads, int bytes, int seed) {
  make_grid(blocks, threads, bytes);
  return go_on(seed);
}

// The same for blocks that know nothing of each other, one after the other.
static int run_blocks(int blocks, int threads, int bytes) {
  int left = 0;
  for (first_block = 0; first_block < blocks; first_block++) left += run_grid(1, threads, bytes, 0);
  first_block = 0;
  return left;
}

// The same for threads that never meet, which need no stacks of their own.
static int run_apart(int blocks, int threads) {
  for (block_number = 0; block_number < blocks; block_number++)
    for (thread_number = 0; thread_number < threads; thread_number++) start();
  return 0;
}
