// Ask the second-level cache for so many lines (128 bytes) of a constant: each block for the first of
// its share. A prefetch has no result and is no access: it keeps no order with what others write.
__device__ __forceinline__ void tile_ask_ahead(const void* constant, unsigned lines, unsigned ahead) {
  unsigned blocks = gridDim.x * gridDim.y * gridDim.z;
  unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  unsigned threads = blockDim.x * blockDim.y * blockDim.z;
  unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  unsigned first = (lines + blocks - 1) / blocks * block;
  for (unsigned own = thread; own < (ahead + blocks - 1) / blocks; own += threads)
    if (first + own < lines)
      asm volatile("prefetch.global.L2 [%0];" : : "l"((const char*)constant + 128ll * (first + own)));
}
