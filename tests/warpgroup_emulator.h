// What Hopper adds to a block of emulated threads: boxes of tensors that arrive at barriers, and
// products of warpgroups. Late: a box arrives when all threads wait, a product is added up when its
// registers are waited for; otherwise both happen at once.
#include "warp_emulator.h"
#include <type_traits>

static int __popc(unsigned bits) { return __builtin_popcount(bits); }

#define CUDART_INF_F INFINITY
#define __grid_constant__
struct CUtensorMap { uchar *data; int64_t rank, extents[5], strides[5], box[5], swizzled; };
struct Box { CUtensorMap map; uint32_t into; int at[5]; uint32_t barrier; };
// Of a left operand with two numbers in four: `half` of every four lanes, 1 or 2, has words that tell which.
struct Product {
  float *sums[128]; const uint32_t *left[4]; uint64_t a, b; int count, adds, turned, bfloat, half; uint32_t told;
};

static std::vector<Box> boxes;
static std::vector<std::vector<Product>> groups[MOST_THREADS];  // the last one is not committed yet
static Meeting warpgroups[MOST_THREADS / 128];
static float passed[1024];

// Lines of 128 bytes, whose sixteenths change places by the number of the line.
static uint32_t swizzled(uint32_t at) { return at ^ (at >> 7 & 7) << 4; }

static void bring(const Box &b) {
  const CUtensorMap &map = b.map;
  int64_t total = 1;
  for (int i = 0; i < map.rank; i++) total *= map.box[i];
  for (int64_t n = 0; n < total; n++) {
    int64_t rest = n, offset = 0;
    bool inside = true;
    for (int i = 0; i < map.rank; i++) {
      int64_t place = b.at[i] + rest % map.box[i];
      rest /= map.box[i];
      inside &= place >= 0 && place < map.extents[i];
      offset += place * map.strides[i];
    }
    const int size = map.strides[0];  // of an element
    const uint32_t into = b.into + n * size;
    uchar *own = shared + (map.swizzled ? swizzled(into) : into);
    if (inside) memcpy(own, map.data + offset, size); else memset(own, 0, size);
  }
  Barrier *barrier = (Barrier *)memory(b.barrier);
  barrier->bytes -= total * map.strides[0];
  settle(barrier);
}
template <class... Rest> static void copy_box(uint32_t into, void *map, Rest... rest) {
  int64_t numbers[] = {(int64_t)rest...};  // coordinates, then the barrier
  Box box{*(CUtensorMap *)map, into, {}, (uint32_t)numbers[sizeof...(rest) - 1]};
  if (into % (box.map.swizzled ? 1024 : 128) || sizeof...(rest) - 1 != box.map.rank) __builtin_trap();
  if (numbers[0] * box.map.strides[0] % 16) __builtin_trap();  // an illegal instruction
  for (int i = 0; i < box.map.rank; i++) box.at[i] = numbers[i];
  if (late) boxes.push_back(box); else bring(box);
}
static void mbarrier_wait(void *at, int parity) {
  while ((int)((Barrier *)at)->phase == parity) {
    if (++idle > 4 * threads) {  // all wait: something must arrive
      if (boxes.empty()) __builtin_trap();
      bring(boxes.front());
      boxes.erase(boxes.begin()), idle = 0;
    }
    next();
  }
  idle = 0;
}

// Bytes from a descriptor's start: lines hold 64 numbers of depth, or of columns if turned.
template <class Half> static float element(uint64_t descriptor, int row, int k, int turned) {
  uint32_t own = rank() * MOST_BYTES;  // in a cluster the address' upper bits are left out
  uint32_t start = own + (((descriptor & 0x3fff) << 4) - own & 0x3ffff), leading = (descriptor >> 16 & 0x3fff) << 4;
  uint32_t stride = (descriptor >> 32 & 0x3fff) << 4, line = turned ? k : row;
  uint32_t at = start + line / 8 * stride + line % 8 * 128;
  at += turned ? row / 64 * leading + row % 64 * 2 : k * 2;
  uint32_t word = 0;
  memcpy(&word, shared + swizzled(at), 2);
  return number_of(Half(), word, 0);
}
template <class Half> static void add_up(const Product *const threads_of[128]) {
  const Product &one = *threads_of[0];
  std::vector<float> right(one.count * 16);
  for (int j = 0; j < one.count; j++)
    for (int k = 0; k < 16; k++) right[j * 16 + k] = element<Half>(one.b, j, k, one.turned);
  for (int i = 0; i < 64; i++) {
    float left[16];
    for (int k = 0; k < 16; k++) {
      const Product &own = *threads_of[i / 16 * 32 + i % 8 * 4 + k % 8 / 2];
      const uint32_t *word = own.left[i % 16 / 8 + k / 8 * 2];
      left[k] = word ? number_of(Half(), *word, k % 2) : element<Half>(one.a, i, k, 0);
    }
    for (int j = 0; j < one.count; j++) {
      const Product &own = *threads_of[i / 16 * 32 + i % 8 * 4 + j % 8 / 2];
      float &sum = *own.sums[j / 8 * 4 + i % 16 / 8 * 2 + j % 2];
      float total = one.adds ? sum : 0;
      for (int k = 0; k < 16; k++) total += left[k] * right[j * 16 + k];
      sum = total;
    }
  }
}
// A number of the sum: where it is in the left operand's row, of 16 that are kept of 32.
static int place(const Product *const threads_of[128], int row, int kept) {
  const int lane = row / 16 * 32 + row % 8 * 4 + (threads_of[0]->half - 1) * 2 + kept / 8;
  const int pair = threads_of[lane]->told >> (row % 16 / 8 * 16 + kept / 2 % 4 * 4) & 15;
  if (pair % 4 >= pair / 4) __builtin_trap();  // means nothing, unless lower places come first
  return kept / 2 * 4 + (pair >> kept % 2 * 2 & 3);
}
template <class Half> static void add_up_sparse(const Product *const threads_of[128]) {
  const Product &one = *threads_of[0];
  std::vector<float> right(one.count * 32);
  for (int j = 0; j < one.count; j++)
    for (int k = 0; k < 32; k++) right[j * 32 + k] = element<Half>(one.b, j, k, one.turned);
  for (int i = 0; i < 64; i++)
    for (int j = 0; j < one.count; j++) {
      float &sum = *threads_of[i / 16 * 32 + i % 8 * 4 + j % 8 / 2]->sums[j / 8 * 4 + i % 16 / 8 * 2 + j % 2];
      float total = one.adds ? sum : 0;
      for (int k = 0; k < 16; k++)
        total += element<Half>(one.a, i, k, 0) * right[j * 32 + place(threads_of, i, k)];
      sum = total;
    }
}
static void wait_products(int running) {
  int first = current / 128 * 128;
  meet(warpgroups[first / 128], 128, [=] {
    while ((int)groups[first].size() - 1 > running) {
      for (size_t n = 0; n < groups[first][0].size(); n++) {
        const Product *own[128];
        for (int t = 0; t < 128; t++) own[t] = &groups[first + t][0][n];
        if (own[0]->half && own[0]->bfloat) add_up_sparse<nv_bfloat16>(own);
        else if (own[0]->half) add_up_sparse<half>(own);
        else if (own[0]->bfloat) add_up<nv_bfloat16>(own); else add_up<half>(own);
      }
      for (int t = 0; t < 128; t++) groups[first + t].erase(groups[first + t].begin());
    }
  });
}
static void commit_products() {
  groups[current].emplace_back();
  if (!late) wait_products(0);
}

struct Taking { Product product{}; int sums = 0, words = 0, descriptors = 0; };
static void take(Taking &t, float &value) { t.product.sums[t.sums++] = &value; }
static void take(Taking &t, uint32_t &value) { t.product.left[t.words++] = &value; }
static void take(Taking &t, uint64_t value) {
  if (t.descriptors++) t.product.a = t.product.b;
  t.product.b = value;
}
static void take(Taking &t, uint32_t &&adds) { t.product.adds = adds; }
static void take(Taking &t, int &&adds) { t.product.adds = adds; }
template <class Half, int COUNT, int TURNED, int TOLD = 0, class... All> static void multiply(All &&...all) {
  Taking taking;
  (take(taking, std::forward<All>(all)), ...);
  taking.product.count = COUNT, taking.product.turned = TURNED;
  taking.product.bfloat = std::is_same<Half, nv_bfloat16>::value;
  if (taking.sums != COUNT / 2 || taking.words + taking.descriptors * 4 - 4 > 4 + TOLD) __builtin_trap();
  if (groups[current].empty()) groups[current].emplace_back();
  groups[current].back().push_back(taking.product);
}
template <class Half, int COUNT, int TURNED, int HALF, class... All> static void multiply_sparse(All &&...all) {
  multiply<Half, COUNT, TURNED, 1>(std::forward<All>(all)...);
  Product &product = groups[current].back().back();
  if (product.left[1]) __builtin_trap();
  product.half = 1 + HALF, product.told = *product.left[0], product.left[0] = nullptr;
}

static void load_shared(uint32_t &into, uint32_t at) { memcpy(&into, memory(at), 4); }
static void keep_f(float &) {}
static void keep_r(uint &) {}
static void nothing(...) {}
