// Bring a constant that is read later into the second-level cache.
__device__ __forceinline__ void tile_ask_for_constant(const void* tensor, long long byte) {
  asm volatile("prefetch.global.L2 [%0];" : : "l"((const char*)tensor + byte));
}
