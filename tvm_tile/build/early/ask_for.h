// Bring lines of a constant that is read later into the second-level cache.
__forceinline__ __device__ void tile_ask_for(const void* constant, int line, int lines, int by) {
  for (; line < lines; line += by)
    asm volatile("prefetch.global.L2 [%0];" :: "l"((const char*)constant + 128ll * line));
}
