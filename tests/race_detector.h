// Finds accesses to common memory that no barrier orders, in whatever order the emulated threads
// happened to run. Compiled with -fsanitize=thread, a kernel's text calls the functions at the end
// of this file for what it loads and stores (the compiler's own library of them is not linked);
// what emulated instructions do with memory, the emulator tells.
//
// An access is made at a moment of seven numbers: cluster, age, block, epoch, wave, turn, thread. A
// barrier of a cluster begins its next age, one of a block the block's next epoch, one of a wave the
// wave's next turn. Where two moments first differ in age, epoch or turn, a barrier lies between
// them; where they first differ in cluster, block, wave or thread, none does. So lock step orders
// nothing, and neither do shuffles and matrix instructions. A block by itself is a cluster.

#define UNWATCHED __attribute__((no_sanitize("thread")))

static const int LEVELS = 7, SEVERAL = -1;  // another cluster, block, wave or thread than each
struct Moment { int at[LEVELS]; };  // all zeros: never
struct Byte { Moment written, read; };
struct Memory { const uchar *start; size_t size; Byte *bytes; };
// AWAITED: a copy is under way to there; TOLD: whoever comes from now on knows that it is there.
enum Access { LOADED, STORED, AWAITED, ARRIVED, TOLD };

static Memory memories[64];  // the first is a block's own
static int memory_count, age, epochs[CLUSTER], turns[MOST_THREADS / 32];
static bool is_common;  // what happens is no single thread's doing
static char first_race[200];

// Without the compiler's calls nothing is watched.
static void watch(const void *start, size_t size) {
#ifdef __SANITIZE_THREAD__
  if (memory_count == 64) __builtin_trap();
  memories[memory_count++] = {(const uchar *)start, size, (Byte *)calloc(size, sizeof(Byte))};
#endif
}
static void forget_all() {
  while (memory_count) free(memories[--memory_count].bytes);
}

// The level at which two moments first differ; nothing is ordered at even ones.
UNWATCHED static int parting(const Moment &a, const Moment &b) {
  int level = a.at[0] ? 0 : LEVELS;
  while (level < LEVELS && a.at[level] == b.at[level]) level++;
  return level;
}

UNWATCHED static void check(const Moment &before, const Moment &now, int memory, size_t byte) {
  if (parting(before, now) % 2 || first_race[0]) return;
  snprintf(first_race, sizeof first_race,
           "block %d, thread %d: no barrier since another was at byte %zu of memory %d (0: shared, "
           "1: the first argument)", blockIdx.x, current, byte, memory);
}

UNWATCHED static void touch(const void *address, size_t size, Access access) {
  if (is_common) return;
  for (int m = 0; m < memory_count; m++) {
    size_t first = (const uchar *)address - memories[m].start;
    if (first >= memories[m].size) continue;
    // Clusters have shared memory of their own: there they are one, age after age.
    int cluster = m ? blockIdx.x / CLUSTER + 1 : 1, wave = current / WAVE;
    Moment now = {cluster, age, rank(), epochs[rank()], wave, turns[wave], current};
    for (size_t i = first; i < first + size && i < memories[m].size; i++) {
      Byte &byte = memories[m].bytes[i];
      if (access == TOLD) { byte.written = {}; continue; }
      if (access != ARRIVED) check(byte.written, now, m, i);
      if (access == STORED || access == AWAITED) check(byte.read, now, m, i);
      if (access == LOADED) {
        int level = parting(byte.read, now);
        if (level % 2) byte.read = now; else byte.read.at[level] = SEVERAL;
      } else {
        byte.written = now;
        if (access == AWAITED) byte.written.at[0] = SEVERAL;  // whoever comes is too early
      }
    }
    return;
  }
}

#define CALLED(name, own, ...)                        \
  UNWATCHED void own(__VA_ARGS__) __asm__(name);      \
  void own(__VA_ARGS__)
#define CALLED_FOR(size)                                                            \
  CALLED("__tsan_read" #size, read##size, void *at) { touch(at, size, LOADED); }    \
  CALLED("__tsan_write" #size, write##size, void *at) { touch(at, size, STORED); }
CALLED_FOR(1) CALLED_FOR(2) CALLED_FOR(4) CALLED_FOR(8) CALLED_FOR(16)
CALLED("__tsan_read_range", read_range, void *at, size_t size) { touch(at, size, LOADED); }
CALLED("__tsan_write_range", write_range, void *at, size_t size) { touch(at, size, STORED); }
CALLED("__tsan_func_entry", enter, void *) {}
CALLED("__tsan_func_exit", leave) {}
CALLED("__tsan_init", begin) {}
