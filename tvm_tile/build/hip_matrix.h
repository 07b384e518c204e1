// Instructions of AMD's matrix cores as functions of registers: d += a * b, a wave at a time.
//
// A chip has those whose definitions its compiler accepts; the others are never called for it.
VECTOR(floats8, float, 8)
VECTOR(floats16, float, 16)
VECTOR(ints8, int, 8)
VECTOR(ints16, int, 16)
VECTOR(halves8, half, 8)
VECTOR(halves16, half, 16)
VECTOR(shorts8, short, 8)
VECTOR(shorts16, short, 16)
VECTOR(bfloats8, nv_bfloat16, 8)

#define MATRIX(name, sums, operand, builtin, ...)                                         \
  ON_DEVICE void name(void* d, const void* a, const void* b) {                            \
    sums total;                                                                           \
    operand left, right;                                                                  \
    __builtin_memcpy(&total, d, sizeof total);                                            \
    __builtin_memcpy(&left, a, sizeof left);                                              \
    __builtin_memcpy(&right, b, sizeof right);                                            \
    total = builtin(__VA_ARGS__);                                                         \
    __builtin_memcpy(d, &total, sizeof total);                                            \
  }
#define MFMA(name, sums, operand, builtin) \
  MATRIX(mfma_##name, sums, operand, __builtin_amdgcn_mfma_##builtin, left, right, total, 0, 0, 0)

#if defined(__gfx90a__) || defined(__gfx942__) || defined(__gfx950__)
MFMA(float32_16x16x4_float32, float4, float, f32_16x16x4f32)
MFMA(float32_32x32x2_float32, floats16, float, f32_32x32x2f32)
MFMA(float32_16x16x16_float16, float4, half4, f32_16x16x16f16)
MFMA(float32_32x32x8_float16, floats16, half4, f32_32x32x8f16)
MFMA(float32_16x16x16_bfloat16, float4, short4, f32_16x16x16bf16_1k)
MFMA(float32_32x32x8_bfloat16, floats16, short4, f32_32x32x8bf16_1k)
#endif
#if defined(__gfx90a__)
MFMA(int32_16x16x16_int8, int4, int, i32_16x16x16i8)
MFMA(int32_32x32x8_int8, ints16, int, i32_32x32x8i8)
#endif
#if defined(__gfx942__) || defined(__gfx950__)
MFMA(int32_16x16x32_int8, int4, long, i32_16x16x32_i8)
MFMA(int32_32x32x16_int8, ints16, long, i32_32x32x16_i8)
#endif
#if defined(__gfx950__)
MFMA(float32_16x16x32_float16, float4, halves8, f32_16x16x32_f16)
MFMA(float32_32x32x16_float16, floats16, halves8, f32_32x32x16_f16)
MFMA(float32_16x16x32_bfloat16, float4, bfloats8, f32_16x16x32_bf16)
MFMA(float32_32x32x16_bfloat16, floats16, bfloats8, f32_32x32x16_bf16)
MFMA(int32_16x16x64_int8, int4, int4, i32_16x16x64_i8)
MFMA(int32_32x32x32_int8, ints16, int4, i32_32x32x32_i8)
#endif

// Integers are given with their signs, and not clamped.
#define WMMA(name, sums, operand, builtin) \
  MATRIX(wmma_##name, sums, operand, __builtin_amdgcn_wmma_##builtin, left, right, total)
#define WMMA_OF_INTEGERS(name, operand, builtin)                                  \
  MATRIX(wmma_##name, ints8, operand, __builtin_amdgcn_wmma_##builtin, true, left, \
         true, right, total, false)
#if defined(__GFX11__)
WMMA(gfx11_float32_16x16x16_float16, floats8, halves16, f32_16x16x16_f16_w32)
WMMA(gfx11_float32_16x16x16_bfloat16, floats8, shorts16, f32_16x16x16_bf16_w32)
WMMA_OF_INTEGERS(gfx11_int32_16x16x16_int8, int4, i32_16x16x16_iu8_w32)
#endif
#if defined(__GFX12__)
WMMA(gfx12_float32_16x16x16_float16, floats8, halves8, f32_16x16x16_f16_w32_gfx12)
WMMA(gfx12_float32_16x16x16_bfloat16, floats8, shorts8, f32_16x16x16_bf16_w32_gfx12)
WMMA_OF_INTEGERS(gfx12_int32_16x16x16_int8, int2, i32_16x16x16_iu8_w32_gfx12)
#endif

#if defined(__GFX11__)
// Neighbours along the depth that half a wave holds, and behind them the other half's, where both
// halves are to hold all: 16 bytes each, of the lower half first.
ON_DEVICE void with_other_half(void* units) {
  uint4 own, other;
  __builtin_memcpy(&own, units, sizeof own);
  for (int i = 0; i < 4; i++)
    other[i] = __builtin_amdgcn_permlanex16(own[i], own[i], 0x76543210, 0xfedcba98, false, false);
  bool is_lower = lane_in_wave() < 16;
  uint4 both[2] = {is_lower ? own : other, is_lower ? other : own};
  __builtin_memcpy(units, both, sizeof both);
}
#endif
// What is too small for a normal number is zero.
ON_DEVICE float fast_exp2(float x) { return __builtin_amdgcn_exp2f(x); }

// Of what stands behind the last meeting of threads, loads of global memory come first, then the
// products, and nothing from below. Left to itself, the compiler delays loads, to hold their results
// in fewer registers, or waits for them early.
template <int loads, int products> ON_DEVICE void loads_then_products() {
  __builtin_amdgcn_sched_group_barrier(0x20, loads, 0);
  __builtin_amdgcn_sched_group_barrier(0x8, products, 0);
  __builtin_amdgcn_sched_barrier(0);
}
// Nothing from below a step of products begins before: left to itself, the compiler loads the
// operands of all steps first, and has no registers for them.
ON_DEVICE void step_by_step() { __builtin_amdgcn_sched_barrier(0); }
// A number of turns that the compiler cannot know: it would write out the turns of a short loop, and
// hold the loads of several in registers. All threads have as many. (A number that the compiler has
// in vector registers, for whatever reason, it would refuse as a scalar one.)
ON_DEVICE int rolled(int turns) {
  asm("" : "+v"(turns));
  return __builtin_amdgcn_readfirstlane(turns);
}
