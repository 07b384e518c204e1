// How fast bytes move: device memory, second-level cache, shared memory.
// Loads of 16 bytes, several of them in flight in each thread.

typedef unsigned int word;

constexpr int COPY_DEPTH = 4;
constexpr int READ_DEPTH = 8;
constexpr int SHARED_THREADS = 256;

// The finaliser of MurmurHash3: neighbouring words share no pattern that memory could profit from.
__device__ word mix(word x) {
  x ^= x >> 16;
  x *= 0x85ebca6bu;
  x ^= x >> 13;
  x *= 0xc2b2ae35u;
  return x ^ (x >> 16);
}

__device__ word fold(uint4 v) { return v.x ^ v.y ^ v.z ^ v.w; }

__device__ void add(uint4& sum, uint4 v) {
  sum.x ^= v.x;
  sum.y ^= v.y;
  sum.z ^= v.z;
  sum.w ^= v.w;
}

extern "C" __global__ void fill(uint4* out, int count) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    word first = 4u * i;
    out[i] = make_uint4(mix(first), mix(first + 1), mix(first + 2), mix(first + 3));
  }
}

extern "C" __global__ void count_differences(const uint4* a, const uint4* b, int count,
                                             word* differences) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    uint4 u = a[i], v = b[i];
    if (u.x != v.x || u.y != v.y || u.z != v.z || u.w != v.w) atomicAdd(differences, 1u);
  }
}

extern "C" __global__ void copy(const uint4* __restrict__ in, uint4* __restrict__ out,
                                int chunks) {
  for (int chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    size_t first = (size_t)chunk * blockDim.x * COPY_DEPTH + threadIdx.x;
    uint4 v[COPY_DEPTH];
#pragma unroll
    for (int i = 0; i < COPY_DEPTH; ++i) v[i] = in[first + i * blockDim.x];
#pragma unroll
    for (int i = 0; i < COPY_DEPTH; ++i) out[first + i * blockDim.x] = v[i];
  }
}

extern "C" __global__ void read(const uint4* __restrict__ in, word* out, int chunks) {
  uint4 sum = make_uint4(0, 0, 0, 0);
  for (int chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    size_t first = (size_t)chunk * blockDim.x * READ_DEPTH + threadIdx.x;
    uint4 v[READ_DEPTH];
#pragma unroll
    for (int i = 0; i < READ_DEPTH; ++i) v[i] = in[first + i * blockDim.x];
#pragma unroll
    for (int i = 0; i < READ_DEPTH; ++i) add(sum, v[i]);
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = fold(sum);
}

// Every block walks over the same `chunks`, from a start of its own, and reads `rounds` of them. No
// two blocks may want the same line at once: Hopper would serve both with one request. ld.global.cg goes past the first-level cache, and a
// volatile load is neither hoisted nor merged with the one of the walk before.
extern "C" __global__ void read_l2(const uint4* in, word* out, int chunks, int rounds) {
  uint4 sum = make_uint4(0, 0, 0, 0);
  int chunk = (int)((long long)blockIdx.x * chunks / gridDim.x);
  for (int round = 0; round < rounds; ++round) {
    const uint4* first = in + (size_t)chunk * blockDim.x * READ_DEPTH + threadIdx.x;
    uint4 v[READ_DEPTH];
#pragma unroll
    for (int i = 0; i < READ_DEPTH; ++i) {
      asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(v[i].x), "=r"(v[i].y), "=r"(v[i].z), "=r"(v[i].w)
                   : "l"(first + i * blockDim.x));
    }
#pragma unroll
    for (int i = 0; i < READ_DEPTH; ++i) add(sum, v[i]);
    if (++chunk == chunks) chunk = 0;
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = fold(sum);
}

// One load of a warp covers 512 bytes in a row: four passes over all banks, without a conflict.
// The loads are volatile for the assembler too, which would merge those of unrolled rounds.
extern "C" __global__ void __launch_bounds__(SHARED_THREADS)
    read_shared(const uint4* in, word* out, int rounds) {
  __shared__ uint4 data[SHARED_THREADS * READ_DEPTH];
  for (int i = threadIdx.x; i < SHARED_THREADS * READ_DEPTH; i += SHARED_THREADS) data[i] = in[i];
  __syncthreads();
  unsigned address = (unsigned)__cvta_generic_to_shared(data + threadIdx.x);
  uint4 sum = make_uint4(0, 0, 0, 0);
#pragma unroll 2
  for (int round = 0; round < rounds; ++round) {
    uint4 v[READ_DEPTH];
#pragma unroll
    for (int i = 0; i < READ_DEPTH; ++i) {
      asm volatile("ld.volatile.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(v[i].x), "=r"(v[i].y), "=r"(v[i].z), "=r"(v[i].w)
                   : "r"(address + i * SHARED_THREADS * 16));
    }
#pragma unroll
    for (int i = 0; i < READ_DEPTH; ++i) add(sum, v[i]);
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = fold(sum);
}
