// CUDA's bfloat16 on the CPU: each operation rounds to the nearest, ties to even.
#include <cstring>
struct nv_bfloat16 {
  ushort bits;
  nv_bfloat16() = default;
  nv_bfloat16(float value) {
    uint all;
    memcpy(&all, &value, 4);
    bits = value != value ? 0x7fff : (all + 0x7fff + (all >> 16 & 1)) >> 16;
  }
  operator float() const {
    uint all = (uint)bits << 16;
    float value;
    memcpy(&value, &all, 4);
    return value;
  }
};
static nv_bfloat16 operator+(nv_bfloat16 a, nv_bfloat16 b) { return (float)a + (float)b; }
static nv_bfloat16 operator-(nv_bfloat16 a, nv_bfloat16 b) { return (float)a - (float)b; }
static nv_bfloat16 operator*(nv_bfloat16 a, nv_bfloat16 b) { return (float)a * (float)b; }
static nv_bfloat16 operator/(nv_bfloat16 a, nv_bfloat16 b) { return (float)a / (float)b; }
static nv_bfloat16 operator-(nv_bfloat16 a) { return -(float)a; }
static nv_bfloat16 __float2bfloat16_rn(float x) { return x; }
struct alignas(4) nv_bfloat162 { nv_bfloat16 x, y; };
static nv_bfloat162 make_bfloat162(nv_bfloat16 x, nv_bfloat16 y) { return {x, y}; }
struct alignas(8) nv_bfloat164 { nv_bfloat16 x, y, z, w; };
static nv_bfloat164 make_nv_bfloat164(nv_bfloat16 x, nv_bfloat16 y, nv_bfloat16 z, nv_bfloat16 w) {
  return {x, y, z, w};
}
