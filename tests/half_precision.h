// CUDA's numbers of half precision on the CPU: each operation rounds to the nearest, ties to even.
#define volatile  // its accesses are made as they stand: threads change at meetings only
typedef _Float16 half;
#include "bfloat16.h"
static half __float2half_rn(float x) { return (half)x; }
static half hexp(half x) { return (half)expf((float)x); }
static half hsqrt(half x) { return (half)sqrtf((float)x); }
static half hrsqrt(half x) { return (half)(1 / sqrtf((float)x)); }
static half htanh(half x) { return (half)tanhf((float)x); }
struct alignas(4) half2 { half x, y; };
struct alignas(8) half4 { half x, y, z, w; };
static half2 make_half2(half x, half y) { return {x, y}; }
static half4 make_half4(half x, half y, half z, half w) { return {x, y, z, w}; }
template <class T> static uint pack(T x, T y) {
  ushort low, high;
  memcpy(&low, &x, 2), memcpy(&high, &y, 2);
  return (uint)high << 16 | low;
}
static uint __pack_half2(half x, half y) { return pack(x, y); }
static uint __pack_nv_bfloat162(nv_bfloat16 x, nv_bfloat16 y) { return pack(x, y); }
