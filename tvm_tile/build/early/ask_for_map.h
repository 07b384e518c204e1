// Bring the descriptor of a tensor into the cache of descriptors; it lies among the parameters.
__device__ __forceinline__ void tile_ask_for_map(unsigned long long map) {
  if (threadIdx.x == 0) asm volatile("prefetch.tensormap [%0];" : : "l"(map));
}
