// What TVM's CUDA text needs to be HIP: types, indices, meetings of threads, mathematics.
//
// No header of ROCm is used: the compiler alone knows all of this. Vectors are the compiler's own,
// so that they stay in registers and move 16 bytes at once.
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __host__ __attribute__((host))
#define __shared__ __attribute__((shared))
#define SHARED __attribute__((address_space(3)))  // of pointers
#define __forceinline__ inline __attribute__((always_inline))
// Blocks that have nothing to do leave (leaving.py, whose own line goes with TVM's prelude).
#define tvm_tile_leave_unless(needed) if (!(needed)) return
// The exact size: registers are allotted for no more threads than there are.
#define __launch_bounds__(threads) __attribute__((amdgpu_flat_work_group_size(threads, threads)))
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define CUDART_INF_F __builtin_inff()
#define CUDART_NAN_F __builtin_nanf("")
#define CUDART_INF __builtin_inf()
#define CUDART_NAN __builtin_nan("")
#define ON_DEVICE static __device__ __forceinline__

typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef _Float16 half;
typedef half __half;
typedef __bf16 nv_bfloat16;
typedef nv_bfloat16 __nv_bfloat16;

#define VECTOR(name, type, count) typedef type name __attribute__((ext_vector_type(count)));
#define VECTORS(name, type)                                                       \
  VECTOR(name##2, type, 2) VECTOR(name##3, type, 3) VECTOR(name##4, type, 4)      \
  ON_DEVICE name##2 make_##name##2(type x, type y) { return name##2{x, y}; }      \
  ON_DEVICE name##3 make_##name##3(type x, type y, type z) {                      \
    return name##3{x, y, z};                                                      \
  }                                                                               \
  ON_DEVICE name##4 make_##name##4(type x, type y, type z, type w) {              \
    return name##4{x, y, z, w};                                                   \
  }
VECTORS(char, signed char)
VECTORS(uchar, uchar)
VECTORS(short, short)
VECTORS(ushort, ushort)
VECTORS(int, int)
VECTORS(uint, uint)
VECTORS(long, long)
VECTORS(longlong, long long)
VECTORS(ulong, ulong)
VECTORS(ulonglong, unsigned long long)
VECTORS(float, float)
VECTORS(double, double)
VECTORS(half, half)
VECTORS(nv_bfloat16, nv_bfloat16)

// A vector's elements have no addresses of their own; hip_text has these for "&(vector.x)".
#define ADDRESS(axis, position)                        \
  template <class V> ON_DEVICE char *address_of_##axis(V &vector) { \
    return (char *)&vector + position * sizeof(vector.x);           \
  }
ADDRESS(x, 0) ADDRESS(y, 1) ADDRESS(z, 2) ADDRESS(w, 3)

#define INDEX(name, axis, value)                       \
  __declspec(property(get = get_##axis)) uint axis;    \
  __device__ __forceinline__ uint get_##axis() const { return value; }
struct ThreadIndex {
  INDEX(ThreadIndex, x, __builtin_amdgcn_workitem_id_x())
  INDEX(ThreadIndex, y, __builtin_amdgcn_workitem_id_y())
  INDEX(ThreadIndex, z, __builtin_amdgcn_workitem_id_z())
};
struct BlockIndex {
  INDEX(BlockIndex, x, __builtin_amdgcn_workgroup_id_x())
  INDEX(BlockIndex, y, __builtin_amdgcn_workgroup_id_y())
  INDEX(BlockIndex, z, __builtin_amdgcn_workgroup_id_z())
};
static __device__ constexpr ThreadIndex threadIdx{};
static __device__ constexpr BlockIndex blockIdx{};

// Without the fences nothing waits for what was written to shared memory before the barrier: the
// instruction alone orders no memory (LLVM's memory model for AMDGPU).
ON_DEVICE void __syncthreads() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
// A wave runs in lock step; what remains is to keep the compiler from moving accesses across.
ON_DEVICE void __syncwarp() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}

ON_DEVICE int lane_in_wave() {
  return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u));
}
template <class T> ON_DEVICE T from_lane(T value, int lane) {
  constexpr int words = (sizeof(T) + 3) / 4;
  union { T value; int words[words]; } moved = {value};
  for (int i = 0; i < words; i++)
    moved.words[i] = __builtin_amdgcn_ds_bpermute(lane * 4, moved.words[i]);
  return moved.value;
}
// Masks name threads that take part; in lock step all that are active do.
ON_DEVICE uint __activemask() { return ~0u; }
template <class T> ON_DEVICE T __shfl_sync(uint, T value, int lane, int width) {
  int own = lane_in_wave();
  return from_lane(value, (own & -width) | (lane & (width - 1)));
}
template <class T> ON_DEVICE T __shfl_down_sync(uint, T value, uint distance, int width) {
  int own = lane_in_wave();
  return from_lane(value, (own & (width - 1)) + (int)distance < width ? own + (int)distance : own);
}
template <class T> ON_DEVICE T __shfl_up_sync(uint, T value, uint distance, int width) {
  int own = lane_in_wave();
  return from_lane(value, (own & (width - 1)) < (int)distance ? own : own - (int)distance);
}
template <class T> ON_DEVICE T __shfl_xor_sync(uint, T value, int mask, int width) {
  int own = lane_in_wave(), other = own ^ mask;
  return from_lane(value, (other & -width) == (own & -width) ? other : own);
}

#define EXTREMA(type)                                                      \
  ON_DEVICE type max(type a, type b) { return a > b ? a : b; }             \
  ON_DEVICE type min(type a, type b) { return a < b ? a : b; }
EXTREMA(int)
EXTREMA(uint)
EXTREMA(long)
EXTREMA(long long)
EXTREMA(ulong)
EXTREMA(unsigned long long)
// Extrema as IEEE 754 has them since 2019: NaN where an operand is NaN. Some GPUs have an instruction
// for it; elsewhere it takes two of them where an operand is constant, and three otherwise.
#if defined(__gfx950__) || defined(__GFX12__)
#define COMPARES(b) false
#else
#define COMPARES(b) (__builtin_constant_p(b) && b == b)
#endif
#define EXTREMA_OF_FLOATS(type)                                                     \
  ON_DEVICE type maximum(type a, type b) {                                          \
    return COMPARES(b) ? (b > a ? b : a) : __builtin_elementwise_maximum(a, b);    \
  }                                                                                 \
  ON_DEVICE type minimum(type a, type b) {                                          \
    return COMPARES(b) ? (b < a ? b : a) : __builtin_elementwise_minimum(a, b);    \
  }
EXTREMA_OF_FLOATS(half)
EXTREMA_OF_FLOATS(nv_bfloat16)
EXTREMA_OF_FLOATS(float)
EXTREMA_OF_FLOATS(double)

ON_DEVICE half __float2half_rn(float x) { return (half)x; }
ON_DEVICE half __float2half(float x) { return (half)x; }
ON_DEVICE float __half2float(half x) { return (float)x; }
ON_DEVICE nv_bfloat16 __float2bfloat16(float x) { return (nv_bfloat16)x; }
ON_DEVICE nv_bfloat16 __float2bfloat16_rn(float x) { return (nv_bfloat16)x; }
ON_DEVICE float __bfloat162float(nv_bfloat16 x) { return (float)x; }
ON_DEVICE half __habs(half x) { return __builtin_fabsf16(x); }
ON_DEVICE nv_bfloat16 __habs(nv_bfloat16 x) { return (nv_bfloat16)__builtin_fabsf((float)x); }
ON_DEVICE uint __pack_half2(half x, half y) {
  union { half2 pair; uint word; } packed = {half2{x, y}};
  return packed.word;
}
ON_DEVICE uint __pack_nv_bfloat162(nv_bfloat16 x, nv_bfloat16 y) {
  union { nv_bfloat162 pair; uint word; } packed = {nv_bfloat162{x, y}};
  return packed.word;
}

// Functions that the hardware has, or that the compiler makes of what it has, rightly rounded
// enough; those of the library (hip_math.py) are declared only.
#define BUILT_IN(name)                                                     \
  ON_DEVICE float name##f(float x) { return __builtin_##name##f(x); }
BUILT_IN(exp) BUILT_IN(exp2) BUILT_IN(log) BUILT_IN(log2) BUILT_IN(log10) BUILT_IN(sqrt)
#define ROUNDING(name)                                                     \
  ON_DEVICE float name##f(float x) { return __builtin_##name##f(x); }      \
  ON_DEVICE double name(double x) { return __builtin_##name(x); }          \
  ON_DEVICE half h##name(half x) { return (half)__builtin_##name##f((float)x); } \
  ON_DEVICE nv_bfloat16 h##name(nv_bfloat16 x) {                           \
    return (nv_bfloat16)__builtin_##name##f((float)x);                     \
  }
ROUNDING(floor) ROUNDING(ceil) ROUNDING(trunc) ROUNDING(round) ROUNDING(rint) ROUNDING(nearbyint)
ROUNDING(fabs)
ON_DEVICE double sqrt(double x) { return __builtin_sqrt(x); }
ON_DEVICE float rsqrtf(float x) { return 1.0f / __builtin_sqrtf(x); }
ON_DEVICE double rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }
ON_DEVICE float fmodf(float x, float y) {
  float remainder = __builtin_fmodf(x, y);
  asm("" : "+v"(remainder));  // or it becomes one of bfloat16, which there is none of
  return remainder;
}
ON_DEVICE double fmod(double x, double y) { return __builtin_fmod(x, y); }
ON_DEVICE float copysignf(float x, float y) { return __builtin_copysignf(x, y); }
ON_DEVICE double copysign(double x, double y) { return __builtin_copysign(x, y); }
ON_DEVICE bool isnan(float x) { return __builtin_isnan(x); }
ON_DEVICE bool isnan(double x) { return __builtin_isnan(x); }
ON_DEVICE bool isnan(half x) { return __builtin_isnan((float)x); }
ON_DEVICE bool isnan(nv_bfloat16 x) { return __builtin_isnan((float)x); }
ON_DEVICE bool isinf(float x) { return __builtin_isinf(x); }
ON_DEVICE bool isinf(double x) { return __builtin_isinf(x); }
ON_DEVICE bool isfinite(float x) { return __builtin_isfinite(x); }
ON_DEVICE bool isfinite(double x) { return __builtin_isfinite(x); }
ON_DEVICE float __int_as_float(int x) { return __builtin_bit_cast(float, x); }
ON_DEVICE int __float_as_int(float x) { return __builtin_bit_cast(int, x); }
ON_DEVICE float __uint_as_float(uint x) { return __builtin_bit_cast(float, x); }
ON_DEVICE int __popc(uint x) { return __builtin_popcount(x); }
ON_DEVICE int __popcll(ulong x) { return __builtin_popcountl(x); }
ON_DEVICE int __clz(int x) { return x ? __builtin_clz((uint)x) : 32; }
ON_DEVICE int __clzll(long x) { return x ? __builtin_clzl((ulong)x) : 64; }

#define FROM_LIBRARY(name)                             \
  extern "C" __device__ float name##f(float);          \
  extern "C" __device__ double name(double);
FROM_LIBRARY(sin) FROM_LIBRARY(cos) FROM_LIBRARY(tan) FROM_LIBRARY(sinh) FROM_LIBRARY(cosh)
FROM_LIBRARY(tanh) FROM_LIBRARY(asin) FROM_LIBRARY(acos) FROM_LIBRARY(atan) FROM_LIBRARY(asinh)
FROM_LIBRARY(acosh) FROM_LIBRARY(atanh) FROM_LIBRARY(log1p) FROM_LIBRARY(expm1) FROM_LIBRARY(erf)
extern "C" __device__ double exp(double);
extern "C" __device__ double exp2(double);
extern "C" __device__ double exp10(double);
extern "C" __device__ double log(double);
extern "C" __device__ double log2(double);
extern "C" __device__ double log10(double);
#define OF_TWO_FROM_LIBRARY(name)                      \
  extern "C" __device__ float name##f(float, float);   \
  extern "C" __device__ double name(double, double);
OF_TWO_FROM_LIBRARY(pow) OF_TWO_FROM_LIBRARY(atan2)
OF_TWO_FROM_LIBRARY(hypot) OF_TWO_FROM_LIBRARY(nextafter)
extern "C" __device__ float ldexpf(float, int);
extern "C" __device__ double ldexp(double, int);
extern "C" __device__ float exp10f(float);

// What CUDA has in fewer digits is as exact as the rest.
#define FAST(name) ON_DEVICE float __##name##f(float x) { return name##f(x); }
FAST(exp) FAST(exp10) FAST(log) FAST(log2) FAST(log10) FAST(sin) FAST(cos) FAST(tan) FAST(tanh)
ON_DEVICE float __powf(float x, float y) { return powf(x, y); }
ON_DEVICE float __fdividef(float x, float y) { return x / y; }

#define IN_HALVES(type, name, function)                \
  ON_DEVICE type name(type x) { return (type)function((float)x); }
#define IN_BOTH_HALVES(name, function) IN_HALVES(half, name, function) \
  IN_HALVES(nv_bfloat16, name, function)
IN_BOTH_HALVES(hexp, expf) IN_BOTH_HALVES(hexp2, exp2f) IN_BOTH_HALVES(hexp10, exp10f)
IN_BOTH_HALVES(hlog, logf) IN_BOTH_HALVES(hlog2, log2f) IN_BOTH_HALVES(hlog10, log10f)
IN_BOTH_HALVES(hsqrt, sqrtf) IN_BOTH_HALVES(hrsqrt, rsqrtf) IN_BOTH_HALVES(hsin, sinf)
IN_BOTH_HALVES(hcos, cosf) IN_BOTH_HALVES(htan, tanf) IN_BOTH_HALVES(htanh, tanhf)
IN_BOTH_HALVES(hatan, atanf) IN_BOTH_HALVES(herf, erff)
ON_DEVICE half hpow(half x, half y) { return (half)powf((float)x, (float)y); }
ON_DEVICE nv_bfloat16 hpow(nv_bfloat16 x, nv_bfloat16 y) {
  return (nv_bfloat16)powf((float)x, (float)y);
}
