// Extrema as IEEE 754 has them since 2019: NaN where an operand is NaN.
// CUDA's max and min return the number of a number and NaN.
#define EXTREMUM_BY_COMPARISON(type, name, wins)               \
  static __device__ __forceinline__ type name(type a, type b) {    \
    return wins ? b : a;                                       \
  }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
static __device__ __forceinline__ float maximum(float a, float b) {
  float most;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(most) : "f"(a), "f"(b));
  return most;
}
static __device__ __forceinline__ float minimum(float a, float b) {
  float least;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(least) : "f"(a), "f"(b));
  return least;
}
#else
EXTREMUM_BY_COMPARISON(float, maximum, b > a || b != b)
EXTREMUM_BY_COMPARISON(float, minimum, b < a || b != b)
#endif
EXTREMUM_BY_COMPARISON(double, maximum, b > a || b != b)
EXTREMUM_BY_COMPARISON(double, minimum, b < a || b != b)

#define EXTREMUM_OF_HALVES(type, name, instruction)                \
  static __device__ __forceinline__ type name(type a, type b) {    \
    return instruction(a, b);                                      \
  }
#ifdef __CUDA_FP16_TYPES_EXIST__
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
EXTREMUM_OF_HALVES(half, maximum, __hmax_nan)
EXTREMUM_OF_HALVES(half, minimum, __hmin_nan)
EXTREMUM_OF_HALVES(half2, maximum, __hmax2_nan)
EXTREMUM_OF_HALVES(half2, minimum, __hmin2_nan)
#else
EXTREMUM_BY_COMPARISON(half, maximum, __hgt(b, a) || __hisnan(b))
EXTREMUM_BY_COMPARISON(half, minimum, __hlt(b, a) || __hisnan(b))
static __device__ __forceinline__ half2 maximum(half2 a, half2 b) {
  return __halves2half2(maximum(a.x, b.x), maximum(a.y, b.y));
}
static __device__ __forceinline__ half2 minimum(half2 a, half2 b) {
  return __halves2half2(minimum(a.x, b.x), minimum(a.y, b.y));
}
#endif
#endif
#ifdef __CUDA_BF16_TYPES_EXIST__
EXTREMUM_OF_HALVES(nv_bfloat16, maximum, __hmax_nan)
EXTREMUM_OF_HALVES(nv_bfloat16, minimum, __hmin_nan)
#endif
