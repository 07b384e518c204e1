// Bring lines of a constant that is read later into the second-level cache.
__forceinline__ __device__ void tile_ask_for(const void* constant, int line, int lines, int by) {
  for (; line < lines; line += by)
    asm volatile("prefetch.global.L2 [%0];" :: "l"((const char*)constant + 128ll * line));
}
// The same for the line of an element: of neighbouring lanes that mean one line the first asks.
__forceinline__ __device__ void tile_ask_for_line(const void* element) {
  unsigned long long line = (unsigned long long)element >> 7;
  unsigned long long before = __shfl_up_sync(__activemask(), line, 1);
  unsigned lane;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  if (lane == 0 || line != before) asm volatile("prefetch.global.L2 [%0];" :: "l"(element));
}
