// CUDA C++ for a CPU: what device code made by TVM uses of the language, compiled as C++17 without a C++ library.
//
// The threads of a block are fibers of one thread of the machine (runtime.cpp). They change only at barriers and warp
// operations, so memory needs no care here: shared arrays are static arrays, atomics are arithmetic. emulate.py
// prepares the source: it gives `__shared__` arrays a section for each kernel and turns inline assembly into calls.
#pragma once

#include "machine.h"

typedef __SIZE_TYPE__ size_t;
typedef __INTPTR_TYPE__ intptr_t;
typedef __UINTPTR_TYPE__ uintptr_t;
typedef __INT8_TYPE__ int8_t;
typedef __INT16_TYPE__ int16_t;
typedef __INT32_TYPE__ int32_t;
typedef __INT64_TYPE__ int64_t;
typedef __UINT8_TYPE__ uint8_t;
typedef __UINT16_TYPE__ uint16_t;
typedef __UINT32_TYPE__ uint32_t;
typedef __UINT64_TYPE__ uint64_t;
#define memcpy __builtin_memcpy

#define __CUDA_ARCH__ (10 * EMULATOR_CAPABILITY)
#if EMULATOR_CAPABILITY == 100
#define __CUDA_ARCH_FEAT_SM100_ALL
#elif EMULATOR_CAPABILITY == 90
#define __CUDA_ARCH_FEAT_SM90_ALL
#endif
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __grid_constant__
#define __align__(bytes) alignas(bytes)
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define CUDART_INF_F __builtin_inff()
#define CUDART_NAN_F __builtin_nanf("")
#define CUDART_INF __builtin_inf()
#define CUDART_NAN __builtin_nan("")

namespace std {
template <typename A, typename B> struct is_same { static constexpr bool value = false; };
template <typename A> struct is_same<A, A> { static constexpr bool value = true; };
template <typename A, typename B> constexpr bool is_same_v = is_same<A, B>::value;
}  // namespace std

// ---- vector types: the sizes and alignments of CUDA's vector_types.h --------------------------------------------------

#define EMULATOR_VECTORS(name, type, align2, align4)                                                                      \
  struct name##1 { type x; };                                                                                             \
  struct alignas(align2) name##2 { type x, y; };                                                                          \
  struct alignas(align4) name##4 { type x, y, z, w; };                                                                    \
  static inline name##1 make_##name##1(type x) { return {x}; }                                                            \
  static inline name##2 make_##name##2(type x, type y) { return {x, y}; }                                                 \
  static inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }

#define EMULATOR_TRIPLE(name, type)                                                                                       \
  struct name##3 { type x, y, z; };                                                                                       \
  static inline name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; }

EMULATOR_VECTORS(char, signed char, 2, 4)
EMULATOR_VECTORS(uchar, unsigned char, 2, 4)
EMULATOR_VECTORS(short, short, 4, 8)
EMULATOR_VECTORS(ushort, unsigned short, 4, 8)
EMULATOR_VECTORS(int, int, 8, 16)
EMULATOR_VECTORS(uint, unsigned int, 8, 16)
EMULATOR_VECTORS(long, long, 16, 16)
EMULATOR_VECTORS(ulong, unsigned long, 16, 16)
EMULATOR_VECTORS(longlong, long long, 16, 16)
EMULATOR_VECTORS(ulonglong, unsigned long long, 16, 16)
EMULATOR_VECTORS(float, float, 8, 16)
EMULATOR_VECTORS(double, double, 16, 16)
EMULATOR_TRIPLE(char, signed char)
EMULATOR_TRIPLE(uchar, unsigned char)
EMULATOR_TRIPLE(short, short)
EMULATOR_TRIPLE(ushort, unsigned short)
EMULATOR_TRIPLE(int, int)
EMULATOR_TRIPLE(longlong, long long)
EMULATOR_TRIPLE(ulonglong, unsigned long long)
EMULATOR_TRIPLE(float, float)
EMULATOR_TRIPLE(double, double)
static inline uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }

// ---- threads ----------------------------------------------------------------------------------------------------------

constexpr int warpSize = 32;

static inline unsigned emulator_lane() {
  return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32;
}

#define __syncthreads() emulator_barrier(__LINE__)
#define __syncthreads_or(predicate) emulator_barrier_or(predicate, __LINE__)
static inline unsigned emulator_mask() { return 0xffffffffu; }
static inline unsigned emulator_mask(unsigned mask) { return mask; }
#define __syncwarp(...) emulator_warp_barrier(emulator_mask(__VA_ARGS__), __LINE__)
#define __activemask() emulator_active(__LINE__)
#define __ballot_sync(mask, predicate) emulator_ballot(mask, predicate, __LINE__)
#define __any_sync(mask, predicate) (emulator_ballot(mask, predicate, __LINE__) != 0)
#define __all_sync(mask, predicate) (emulator_ballot(mask, !(predicate), __LINE__) == 0)
#define __trap() emulator_fail("the kernel executed __trap()")
#define __threadfence() emulator_fence()
#define __threadfence_block() ((void)0)

template <typename T> static inline T emulator_exchange(unsigned mask, T value, int source_lane, int line) {
  static_assert(sizeof(T) <= 8, "shuffles move at most eight bytes");
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof(T));
  bits = emulator_shuffle(mask, bits, source_lane, line);
  memcpy(&value, &bits, sizeof(T));
  return value;
}

// The lane that a shuffle reads, as in section "Warp Shuffle Functions" of the CUDA programming guide: within segments of
// `width` lanes, and a lane's own where it would leave its segment.
static inline int emulator_source(int source, int width) { return (int)(emulator_lane() & ~(width - 1u)) + (source & (width - 1)); }
static inline int emulator_source_up(unsigned delta, int width) {
  int lane = (int)emulator_lane(), within = lane & (width - 1);
  return within >= (int)delta ? lane - (int)delta : lane;
}
static inline int emulator_source_down(unsigned delta, int width) {
  int lane = (int)emulator_lane(), within = lane & (width - 1);
  return within + (int)delta < width ? lane + (int)delta : lane;
}
static inline int emulator_source_xor(int lane_mask, int width) {
  int lane = (int)emulator_lane(), source = lane ^ lane_mask;
  return source < (lane & ~(width - 1)) + width ? source : lane;
}

#define EMULATOR_SHUFFLE(function, mask, value, argument, width, ...)                                                     \
  emulator_exchange(mask, value, function(argument, width), __LINE__)
#define __shfl_sync(mask, value, ...) EMULATOR_SHUFFLE(emulator_source, mask, value, __VA_ARGS__, 32)
#define __shfl_up_sync(mask, value, ...) EMULATOR_SHUFFLE(emulator_source_up, mask, value, __VA_ARGS__, 32)
#define __shfl_down_sync(mask, value, ...) EMULATOR_SHUFFLE(emulator_source_down, mask, value, __VA_ARGS__, 32)
#define __shfl_xor_sync(mask, value, ...) EMULATOR_SHUFFLE(emulator_source_xor, mask, value, __VA_ARGS__, 32)

#define EMULATOR_REDUCE(name, type, expression)                                                                           \
  static inline type emulator_##name(unsigned mask, type value, int line) {                                               \
    type result = value;                                                                                                  \
    for (int other_lane = 0; other_lane < 32; ++other_lane) {                                                             \
      if (!(mask >> other_lane & 1)) continue;                                                                            \
      type other = emulator_exchange(mask, value, other_lane, line);                                                      \
      if (other_lane != (int)emulator_lane()) result = expression;                                                        \
    }                                                                                                                     \
    return result;                                                                                                        \
  }
EMULATOR_REDUCE(reduce_add, int, (int)((unsigned)result + (unsigned)other))
EMULATOR_REDUCE(reduce_add, unsigned, result + other)
EMULATOR_REDUCE(reduce_max, int, result > other ? result : other)
EMULATOR_REDUCE(reduce_max, unsigned, result > other ? result : other)
EMULATOR_REDUCE(reduce_min, int, result < other ? result : other)
EMULATOR_REDUCE(reduce_min, unsigned, result < other ? result : other)
#define __reduce_add_sync(mask, value) emulator_reduce_add(mask, value, __LINE__)
#define __reduce_max_sync(mask, value) emulator_reduce_max(mask, value, __LINE__)
#define __reduce_min_sync(mask, value) emulator_reduce_min(mask, value, __LINE__)

// ---- memory -----------------------------------------------------------------------------------------------------------

// Stands in prepared source for the cast of `*(T *)(address)`: vectors must lie at multiples of their alignment.
template <typename T> static inline T *emulator_aligned(const volatile void *address) {
  if ((uintptr_t)address % alignof(T)) emulator_fail("access to a vector at an address that is not aligned for it");
  return (T *)address;
}

template <typename T> static inline T __ldg(const T *address) { return *address; }
template <typename T> static inline T __ldcg(const T *address) { return *address; }
template <typename T> static inline T __ldcs(const T *address) { return *address; }
template <typename T> static inline void __stcs(T *address, T value) { *address = value; }

#if defined(__clang__)
#define EMULATOR_UNRECORDED __attribute__((no_sanitize("thread")))
#else
#define EMULATOR_UNRECORDED __attribute__((no_sanitize_thread))
#endif
#define EMULATOR_ATOMIC(name, expression)                                                                                 \
  template <typename T, typename U> EMULATOR_UNRECORDED static inline T name(T *address, U operand) {                     \
    emulator_atomic(address, sizeof(T));                                                                                  \
    T old = *address, value = (T)operand;                                                                                 \
    *address = expression;                                                                                                \
    return old;                                                                                                           \
  }
EMULATOR_ATOMIC(atomicAdd, (T)(old + value))
EMULATOR_ATOMIC(atomicSub, (T)(old - value))
EMULATOR_ATOMIC(atomicExch, value)
EMULATOR_ATOMIC(atomicMax, old > value ? old : value)
EMULATOR_ATOMIC(atomicMin, old < value ? old : value)
EMULATOR_ATOMIC(atomicAnd, (T)(old & value))
EMULATOR_ATOMIC(atomicOr, (T)(old | value))
EMULATOR_ATOMIC(atomicXor, (T)(old ^ value))
EMULATOR_ATOMIC(atomicInc, (T)(old >= value ? 0 : old + 1))
template <typename T, typename U, typename V> EMULATOR_UNRECORDED static inline T atomicCAS(T *address, U compare, V value) {
  emulator_atomic(address, sizeof(T));
  T old = *address;
  if (old == (T)compare) *address = (T)value;
  return old;
}

// Addresses of shared memory are numbers of 32 bits to assembly: distances from the begin of the block's shared memory.
static inline size_t __cvta_generic_to_shared(const void *address) { return emulator_to_shared(address); }

// ---- floating point ---------------------------------------------------------------------------------------------------

// The C library's functions, in both precisions, and CUDA's overloads of the name without a suffix.
#define EMULATOR_UNARY(name)                                                                                              \
  extern "C" double name(double);                                                                                         \
  extern "C" float name##f(float);                                                                                        \
  static inline float name(float a) { return name##f(a); }
#define EMULATOR_BINARY(name)                                                                                             \
  extern "C" double name(double, double);                                                                                 \
  extern "C" float name##f(float, float);                                                                                 \
  static inline float name(float a, float b) { return name##f(a, b); }
EMULATOR_UNARY(exp)
EMULATOR_UNARY(exp2)
EMULATOR_UNARY(expm1)
EMULATOR_UNARY(log)
EMULATOR_UNARY(log2)
EMULATOR_UNARY(log10)
EMULATOR_UNARY(log1p)
EMULATOR_UNARY(sqrt)
EMULATOR_UNARY(cbrt)
EMULATOR_UNARY(sin)
EMULATOR_UNARY(cos)
EMULATOR_UNARY(tan)
EMULATOR_UNARY(asin)
EMULATOR_UNARY(acos)
EMULATOR_UNARY(atan)
EMULATOR_UNARY(sinh)
EMULATOR_UNARY(cosh)
EMULATOR_UNARY(tanh)
EMULATOR_UNARY(asinh)
EMULATOR_UNARY(acosh)
EMULATOR_UNARY(atanh)
EMULATOR_UNARY(erf)
EMULATOR_UNARY(erfc)
EMULATOR_UNARY(floor)
EMULATOR_UNARY(ceil)
EMULATOR_UNARY(trunc)
EMULATOR_UNARY(round)
EMULATOR_UNARY(rint)
EMULATOR_UNARY(nearbyint)
EMULATOR_UNARY(fabs)
EMULATOR_UNARY(lgamma)
EMULATOR_UNARY(tgamma)
EMULATOR_BINARY(pow)
EMULATOR_BINARY(fmod)
EMULATOR_BINARY(remainder)
EMULATOR_BINARY(atan2)
EMULATOR_BINARY(hypot)
EMULATOR_BINARY(copysign)
EMULATOR_BINARY(nextafter)
EMULATOR_BINARY(fmin)
EMULATOR_BINARY(fmax)
EMULATOR_BINARY(fdim)
extern "C" double ldexp(double, int);
extern "C" float ldexpf(float, int);
extern "C" double fma(double, double, double);
extern "C" float fmaf(float, float, float);
static inline float ldexp(float a, int b) { return ldexpf(a, b); }
static inline float fma(float a, float b, float c) { return fmaf(a, b, c); }
static inline bool isnan(float a) { return __builtin_isnan(a); }
static inline bool isnan(double a) { return __builtin_isnan(a); }
static inline bool isinf(float a) { return __builtin_isinf(a); }
static inline bool isinf(double a) { return __builtin_isinf(a); }
static inline bool isfinite(float a) { return __builtin_isfinite(a); }
static inline bool isfinite(double a) { return __builtin_isfinite(a); }

static inline float rsqrtf(float a) { return 1.0f / sqrtf(a); }
static inline double rsqrt(double a) { return 1.0 / sqrt(a); }
static inline float rsqrt(float a) { return rsqrtf(a); }
static inline float __expf(float a) { return expf(a); }
static inline float __exp10f(float a) { return powf(10.0f, a); }
static inline float __logf(float a) { return logf(a); }
static inline float __log2f(float a) { return log2f(a); }
static inline float __log10f(float a) { return log10f(a); }
static inline float __sinf(float a) { return sinf(a); }
static inline float __cosf(float a) { return cosf(a); }
static inline float __tanf(float a) { return tanf(a); }
static inline float __tanhf(float a) { return tanhf(a); }
static inline float __powf(float a, float b) { return powf(a, b); }
static inline float __fdividef(float a, float b) { return a / b; }
static inline float __frcp_rn(float a) { return 1.0f / a; }
static inline float __fsqrt_rn(float a) { return sqrtf(a); }
static inline float __frsqrt_rn(float a) { return 1.0f / sqrtf(a); }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline float __saturatef(float a) { return a > 0.0f ? (a < 1.0f ? a : 1.0f) : 0.0f; }
static inline float exp10f_emulated(float a) { return powf(10.0f, a); }
#define exp10f exp10f_emulated

// Conversions as the hardware makes them: out of range saturates, NaN becomes zero.
template <typename I> static inline I emulator_saturated(double value, double low, double high) {
  if (isnan(value)) return 0;
  return value <= low ? (I)low : value >= high ? (I)high : (I)value;
}
static inline int __float2int_rz(float a) { return emulator_saturated<int>(a, -2147483648.0, 2147483647.0); }
static inline int __float2int_rn(float a) { return emulator_saturated<int>(nearbyint((double)a), -2147483648.0, 2147483647.0); }
static inline int __float2int_rd(float a) { return emulator_saturated<int>(floor((double)a), -2147483648.0, 2147483647.0); }
static inline int __float2int_ru(float a) { return emulator_saturated<int>(ceil((double)a), -2147483648.0, 2147483647.0); }
static inline float __int2float_rn(int a) { return (float)a; }

// ---- integers and bits ------------------------------------------------------------------------------------------------

#define EMULATOR_MIN_MAX(type)                                                                                           \
  static inline type max(type a, type b) { return a > b ? a : b; }                                                        \
  static inline type min(type a, type b) { return a < b ? a : b; }
EMULATOR_MIN_MAX(int)
EMULATOR_MIN_MAX(unsigned)
EMULATOR_MIN_MAX(long)
EMULATOR_MIN_MAX(unsigned long)
EMULATOR_MIN_MAX(long long)
EMULATOR_MIN_MAX(unsigned long long)
static inline unsigned max(int a, unsigned b) { return max((unsigned)a, b); }
static inline unsigned max(unsigned a, int b) { return max(a, (unsigned)b); }
static inline unsigned min(int a, unsigned b) { return min((unsigned)a, b); }
static inline unsigned min(unsigned a, int b) { return min(a, (unsigned)b); }
static inline float max(float a, float b) { return fmaxf(a, b); }
static inline float min(float a, float b) { return fminf(a, b); }
static inline double max(double a, double b) { return fmax(a, b); }
static inline double min(double a, double b) { return fmin(a, b); }
static inline double max(float a, double b) { return fmax((double)a, b); }
static inline double max(double a, float b) { return fmax(a, (double)b); }
static inline double min(float a, double b) { return fmin((double)a, b); }
static inline double min(double a, float b) { return fmin(a, (double)b); }

static inline int abs(int a) { return a < 0 ? -a : a; }
static inline long abs(long a) { return a < 0 ? -a : a; }
static inline long long abs(long long a) { return a < 0 ? -a : a; }
static inline float abs(float a) { return fabsf(a); }
static inline double abs(double a) { return fabs(a); }

static inline int __popc(unsigned a) { return __builtin_popcount(a); }
static inline int __popcll(unsigned long long a) { return __builtin_popcountll(a); }
static inline int __clz(int a) { return a ? __builtin_clz((unsigned)a) : 32; }
static inline int __clzll(long long a) { return a ? __builtin_clzll((unsigned long long)a) : 64; }
static inline int __ffs(int a) { return __builtin_ffs(a); }
static inline int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
static inline int __dp4a(int a, int b, int sum) {
  for (int i = 0; i < 4; ++i) sum += (int)(int8_t)(a >> 8 * i) * (int)(int8_t)(b >> 8 * i);
  return sum;
}
static inline unsigned __dp4a(unsigned a, unsigned b, unsigned sum) {
  for (int i = 0; i < 4; ++i) sum += (unsigned)(uint8_t)(a >> 8 * i) * (uint8_t)(b >> 8 * i);
  return sum;
}
static inline int __float_as_int(float a) { int r; memcpy(&r, &a, 4); return r; }
static inline unsigned __float_as_uint(float a) { unsigned r; memcpy(&r, &a, 4); return r; }
static inline float __int_as_float(int a) { float r; memcpy(&r, &a, 4); return r; }
static inline double __longlong_as_double(long long a) { double r; memcpy(&r, &a, 8); return r; }
static inline float __uint_as_float(unsigned a) { float r; memcpy(&r, &a, 4); return r; }

// ---- sixteen-bit floating point: results of one operation, rounded to nearest even --------------------------------------

static inline float emulator_half_value(uint16_t bits) {
  uint32_t sign = (uint32_t)(bits & 0x8000) << 16, exponent = bits >> 10 & 31, fraction = bits & 1023;
  if (exponent == 31) return __uint_as_float(sign | 0x7f800000 | fraction << 13);
  if (exponent) return __uint_as_float(sign | (exponent + 112) << 23 | fraction << 13);
  float magnitude = (float)fraction * 0x1p-24f;
  return sign ? -magnitude : magnitude;
}
static inline uint16_t emulator_half_bits(double value) {
  uint64_t bits;
  memcpy(&bits, &value, 8);
  uint16_t sign = (uint16_t)(bits >> 48 & 0x8000);
  if (isnan(value)) return (uint16_t)(sign | 0x7fff);
  double magnitude = fabs(value);
  if (magnitude >= 65520.0) return (uint16_t)(sign | 0x7c00);
  if (magnitude < 0x1p-14) return (uint16_t)(sign | (uint16_t)nearbyint(magnitude * 0x1p24));
  uint64_t tail;
  memcpy(&tail, &magnitude, 8);
  uint64_t kept = tail >> 42, half = 1ull << 41, low = tail & ((1ull << 42) - 1);
  kept += low > half || (low == half && (kept & 1));
  return (uint16_t)(sign | (uint16_t)(kept - (1008ull << 10)));
}
static inline float emulator_bfloat_value(uint16_t bits) { return __uint_as_float((uint32_t)bits << 16); }
static inline uint16_t emulator_bfloat_bits(float value) {
  uint32_t bits = __float_as_uint(value);
  if (isnan(value)) return 0x7fff;
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#define EMULATOR_SIXTEEN_BITS(type, raw, to_bits, to_value)                                                               \
  struct raw { uint16_t x; };                                                                                             \
  struct type {                                                                                                           \
    uint16_t bits;                                                                                                        \
    type() = default;                                                                                                     \
    type(raw value) : bits(value.x) {}                                                                                    \
    type(float value) : bits(to_bits(value)) {}                                                                           \
    type(double value) : bits(to_bits(value)) {}                                                                          \
    type(int value) : bits(to_bits((float)value)) {}                                                                      \
    type(unsigned value) : bits(to_bits((float)value)) {}                                                                 \
    type(long value) : bits(to_bits((float)value)) {}                                                                     \
    type(unsigned long value) : bits(to_bits((float)value)) {}                                                            \
    type(long long value) : bits(to_bits((float)value)) {}                                                                \
    type(unsigned long long value) : bits(to_bits((float)value)) {}                                                       \
    type(short value) : bits(to_bits((float)value)) {}                                                                    \
    type(unsigned short value) : bits(to_bits((float)value)) {}                                                           \
    operator float() const { return to_value(bits); }                                                                     \
    operator raw() const volatile { return {bits}; }                                                                      \
    volatile type &operator=(raw value) volatile { bits = value.x; return *this; }                                        \
    type &operator+=(type b) { return *this = type((float)*this + (float)b); }                                            \
    type &operator-=(type b) { return *this = type((float)*this - (float)b); }                                            \
    type &operator*=(type b) { return *this = type((float)*this * (float)b); }                                            \
    type &operator/=(type b) { return *this = type((float)*this / (float)b); }                                            \
  };                                                                                                                      \
  static inline type operator+(type a, type b) { return type((float)a + (float)b); }                                      \
  static inline type operator-(type a, type b) { return type((float)a - (float)b); }                                      \
  static inline type operator*(type a, type b) { return type((float)a * (float)b); }                                      \
  static inline type operator/(type a, type b) { return type((float)a / (float)b); }                                      \
  static inline type operator-(type a) { return type(-(float)a); }                                                        \
  static inline type operator+(type a) { return a; }                                                                      \
  static inline bool operator<(type a, type b) { return (float)a < (float)b; }                                            \
  static inline bool operator>(type a, type b) { return (float)a > (float)b; }                                            \
  static inline bool operator<=(type a, type b) { return (float)a <= (float)b; }                                          \
  static inline bool operator>=(type a, type b) { return (float)a >= (float)b; }                                          \
  static inline bool operator==(type a, type b) { return (float)a == (float)b; }                                          \
  static inline bool operator!=(type a, type b) { return (float)a != (float)b; }                                          \
  static inline type __hadd(type a, type b) { return a + b; }                                                             \
  static inline type __hsub(type a, type b) { return a - b; }                                                             \
  static inline type __hmul(type a, type b) { return a * b; }                                                             \
  static inline type __hdiv(type a, type b) { return a / b; }                                                             \
  static inline type __hneg(type a) { return -a; }                                                                        \
  static inline type __habs(type a) { return type(fabsf((float)a)); }                                                     \
  static inline type __hmax(type a, type b) { return type(fmaxf((float)a, (float)b)); }                                   \
  static inline type __hmin(type a, type b) { return type(fminf((float)a, (float)b)); }                                   \
  static inline bool __hgt(type a, type b) { return a > b; }                                                              \
  static inline bool __hge(type a, type b) { return a >= b; }                                                             \
  static inline bool __hlt(type a, type b) { return a < b; }                                                              \
  static inline bool __hle(type a, type b) { return a <= b; }                                                             \
  static inline bool __heq(type a, type b) { return a == b; }                                                             \
  static inline bool __hne(type a, type b) { return a != b; }                                                             \
  static inline bool __hisnan(type a) { return isnan((float)a); }                                                         \
  static inline bool __hisinf(type a) { return isinf((float)a); }                                                         \
  static inline type hexp(type a) { return type(expf((float)a)); }                                                        \
  static inline type hexp2(type a) { return type(exp2f((float)a)); }                                                      \
  static inline type hexp10(type a) { return type(powf(10.0f, (float)a)); }                                               \
  static inline type hlog(type a) { return type(logf((float)a)); }                                                        \
  static inline type hlog2(type a) { return type(log2f((float)a)); }                                                      \
  static inline type hlog10(type a) { return type(log10f((float)a)); }                                                    \
  static inline type hsqrt(type a) { return type(sqrtf((float)a)); }                                                      \
  static inline type hrsqrt(type a) { return type(1.0f / sqrtf((float)a)); }                                              \
  static inline type hrcp(type a) { return type(1.0f / (float)a); }                                                       \
  static inline type hsin(type a) { return type(sinf((float)a)); }                                                        \
  static inline type hcos(type a) { return type(cosf((float)a)); }                                                        \
  static inline type htanh(type a) { return type(tanhf((float)a)); }                                                      \
  static inline type hfloor(type a) { return type(floorf((float)a)); }                                                    \
  static inline type hceil(type a) { return type(ceilf((float)a)); }                                                      \
  static inline type htrunc(type a) { return type(truncf((float)a)); }                                                    \
  static inline type hrint(type a) { return type(nearbyintf((float)a)); }                                                 \
  struct alignas(4) type##2 {                                                                                             \
    type x, y;                                                                                                            \
    type##2() = default;                                                                                                  \
    type##2(type a, type b) : x(a), y(b) {}                                                                               \
  };                                                                                                                      \
  static inline type##2 operator+(type##2 a, type##2 b) { return {a.x + b.x, a.y + b.y}; }                                \
  static inline type##2 operator-(type##2 a, type##2 b) { return {a.x - b.x, a.y - b.y}; }                                \
  static inline type##2 operator*(type##2 a, type##2 b) { return {a.x * b.x, a.y * b.y}; }                                \
  static inline type##2 operator/(type##2 a, type##2 b) { return {a.x / b.x, a.y / b.y}; }                                \
  static inline type##2 __hadd2(type##2 a, type##2 b) { return a + b; }                                                   \
  static inline type##2 __hsub2(type##2 a, type##2 b) { return a - b; }                                                   \
  static inline type##2 __hmul2(type##2 a, type##2 b) { return a * b; }                                                   \
  static inline type##2 __h2div(type##2 a, type##2 b) { return a / b; }                                                   \
  static inline type##2 __hmax2(type##2 a, type##2 b) { return {__hmax(a.x, b.x), __hmax(a.y, b.y)}; }                    \
  static inline type##2 __hmin2(type##2 a, type##2 b) { return {__hmin(a.x, b.x), __hmin(a.y, b.y)}; }

EMULATOR_SIXTEEN_BITS(__half, __half_raw, emulator_half_bits, emulator_half_value)
EMULATOR_SIXTEEN_BITS(__nv_bfloat16, __nv_bfloat16_raw, emulator_bfloat_bits, emulator_bfloat_value)
typedef __half half;
typedef __half2 half2;
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

static inline __half __hfma(__half a, __half b, __half c) { return __half((double)(float)a * (float)b + (float)c); }
static inline __nv_bfloat16 __hfma(__nv_bfloat16 a, __nv_bfloat16 b, __nv_bfloat16 c) {
  return __nv_bfloat16(fmaf((float)a, (float)b, (float)c));
}
static inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }
static inline __nv_bfloat162 __hfma2(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c) {
  return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}
static inline __half __float2half(float a) { return __half(a); }
static inline __half __float2half_rn(float a) { return __half(a); }
static inline __half __double2half(double a) { return __half(a); }
static inline float __half2float(__half a) { return (float)a; }
static inline __half __int2half_rn(int a) { return __half(a); }
static inline int __half2int_rz(__half a) { return __float2int_rz((float)a); }
static inline __half2 __floats2half2_rn(float a, float b) { return {__half(a), __half(b)}; }
static inline __half2 __float22half2_rn(float2 a) { return {__half(a.x), __half(a.y)}; }
static inline __half2 __float2half2_rn(float a) { return {__half(a), __half(a)}; }
static inline __half2 __half2half2(__half a) { return {a, a}; }
static inline __half2 __halves2half2(__half a, __half b) { return {a, b}; }
static inline __half2 make_half2(__half a, __half b) { return {a, b}; }
static inline float2 __half22float2(__half2 a) { return {(float)a.x, (float)a.y}; }
static inline __half __low2half(__half2 a) { return a.x; }
static inline __half __high2half(__half2 a) { return a.y; }
static inline float __low2float(__half2 a) { return (float)a.x; }
static inline float __high2float(__half2 a) { return (float)a.y; }
static inline unsigned short __half_as_ushort(__half a) { return a.bits; }
static inline __half __ushort_as_half(unsigned short a) { return __half(__half_raw{a}); }
static inline __nv_bfloat16 __float2bfloat16(float a) { return __nv_bfloat16(a); }
static inline __nv_bfloat16 __float2bfloat16_rn(float a) { return __nv_bfloat16(a); }
static inline float __bfloat162float(__nv_bfloat16 a) { return (float)a; }
static inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b) { return {__nv_bfloat16(a), __nv_bfloat16(b)}; }
static inline __nv_bfloat162 __float22bfloat162_rn(float2 a) { return {__nv_bfloat16(a.x), __nv_bfloat16(a.y)}; }
static inline float2 __bfloat1622float2(__nv_bfloat162 a) { return {(float)a.x, (float)a.y}; }

// ---- tensor cores: fragments as in chapter "Warp Level Matrix Multiply-Accumulate Instructions" of the PTX manual -------

// ldmatrix: COUNT matrices of 8 by 8 numbers of 16 bits; lane i gives the address of row i % 8 of matrix i / 8.
template <int COUNT, bool TRANSPOSED> static inline void emulator_load_matrix(unsigned (&registers)[4], unsigned address, int line) {
  unsigned rows[32];
  emulator_gather(0xffffffffu, &address, 4, rows, line);
  int lane = (int)emulator_lane(), group = lane / 4, pair = lane % 4 * 2;
  for (int i = 0; i < COUNT; ++i) {
    uint16_t values[2];
    for (int j = 0; j < 2; ++j) {
      unsigned row = rows[8 * i + (TRANSPOSED ? pair + j : group)];
      if (row % 16) emulator_fail("ldmatrix at an address that is not a multiple of 16");
      values[j] = ((const uint16_t *)emulator_from_shared(row))[TRANSPOSED ? group : pair + j];
    }
    registers[i] = values[0] | (unsigned)values[1] << 16;
  }
}

static inline unsigned emulator_to_tf32(float value) {  // cvt.rna: to nearest, ties away from zero
  unsigned bits = __float_as_uint(value);
  return isnan(value) || isinf(value) ? bits : (bits + 0x1000u) & 0xffffe000u;
}
static inline float __float_to_tf32(float value) { return __uint_as_float(emulator_to_tf32(value)); }

struct emulator_half_kind {
  static constexpr int in_register = 2;
  static float value(unsigned bits, int i) { return emulator_half_value((uint16_t)(bits >> 16 * i)); }
};
struct emulator_bfloat_kind {
  static constexpr int in_register = 2;
  static float value(unsigned bits, int i) { return emulator_bfloat_value((uint16_t)(bits >> 16 * i)); }
};
struct emulator_tf32_kind {
  static constexpr int in_register = 1;
  static float value(unsigned bits, int) { return emulator_tf32_value(bits); }
};

template <typename BYTE> struct emulator_byte_kind {
  static constexpr int in_register = 4;
  static int value(unsigned bits, int i) { return (BYTE)(bits >> 8 * i); }
};

struct emulator_e4m3_kind {
  static constexpr int in_register = 4;
  static float value(unsigned bits, int i) { return emulator_float8_value(bits >> 8 * i & 0xff, false); }
};
struct emulator_e5m2_kind {
  static constexpr int in_register = 4;
  static float value(unsigned bits, int i) { return emulator_float8_value(bits >> 8 * i & 0xff, true); }
};

// cvt.rn.satfinite: the nearest number, ties to even codes; the largest one for what is larger.
static inline unsigned emulator_float8_code(float value, bool is_e5m2) {
  const unsigned largest = is_e5m2 ? 0x7b : 0x7e, sign = __float_as_uint(value) >> 24 & 0x80;
  if (isnan(value)) return 0x7f;
  const double size = fabs((double)value);
  unsigned code = 0;
  while (code < largest) {
    const double distance = size - emulator_float8_value(code, is_e5m2), next = emulator_float8_value(code + 1, is_e5m2) - size;
    if (distance < next || (distance == next && code % 2 == 0)) break;
    ++code;
  }
  return sign | code;
}
static inline unsigned short emulator_e4m3_codes(float high, float low) {
  return (unsigned short)(emulator_float8_code(high, false) << 8 | emulator_float8_code(low, false));
}
static inline unsigned short emulator_e5m2_codes(float high, float low) {
  return (unsigned short)(emulator_float8_code(high, true) << 8 | emulator_float8_code(low, true));
}
static inline unsigned emulator_float8_to_fp16(unsigned short codes, bool is_e5m2) {
  const float high = emulator_float8_value(codes >> 8, is_e5m2), low = emulator_float8_value(codes & 0xff, is_e5m2);
  return (unsigned)emulator_half_bits(high) << 16 | emulator_half_bits(low);
}
static inline unsigned emulator_e4m3_to_fp16(unsigned short codes) { return emulator_float8_to_fp16(codes, false); }
static inline unsigned emulator_e5m2_to_fp16(unsigned short codes) { return emulator_float8_to_fp16(codes, true); }

// mma.m16n8kK: d = a b + c with sums in float32, or int32. Lanes hold rows lane / 4 and lane / 4 + 8 of a, column lane / 4 of b.
template <typename A, typename B, typename SUM, int K>
static inline void emulator_multiply(SUM (&d)[4], const unsigned *a, const unsigned *b, const SUM (&c)[4], int line) {
  static_assert(A::in_register == B::in_register, "both operands have as many elements in a register");
  constexpr int each = A::in_register, steps = K / (4 * each);  // registers of a row of a, and of a column of b
  struct Fragment { unsigned a[2 * steps], b[steps]; } own, all[32];
  for (int i = 0; i < 2 * steps; ++i) own.a[i] = a[i];
  for (int i = 0; i < steps; ++i) own.b[i] = b[i];
  emulator_gather(0xffffffffu, &own, sizeof own, all, line);
  int lane = (int)emulator_lane();
  for (int i = 0; i < 4; ++i) {
    int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    SUM sum = c[i];
    for (int step = 0; step < steps; ++step)
      for (int other = 0; other < 4; ++other)
        for (int j = 0; j < each; ++j)
          sum += A::value(all[row % 8 * 4 + other].a[2 * step + row / 8], j) * B::value(all[column * 4 + other].b[step], j);
    d[i] = sum;
  }
}

namespace nvcuda {
namespace wmma {

struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
enum layout_t { mem_row_major, mem_col_major };
namespace precision {
struct tf32;
}
template <typename T> struct emulator_stored { typedef T type; };
template <> struct emulator_stored<precision::tf32> { typedef float type; };
template <typename USE, int M, int N, int K> struct emulator_shape { static constexpr int rows = M, columns = N; };
template <int M, int N, int K> struct emulator_shape<matrix_a, M, N, K> { static constexpr int rows = M, columns = K; };
template <int M, int N, int K> struct emulator_shape<matrix_b, M, N, K> { static constexpr int rows = K, columns = N; };

// Number e of a matrix, numbered by rows, is with lane e % 32; real ones keep it a secret where.
template <typename USE, int M, int N, int K, typename T, typename LAYOUT = void> struct fragment {
  typedef typename emulator_stored<T>::type type;
  static constexpr int rows = emulator_shape<USE, M, N, K>::rows, columns = emulator_shape<USE, M, N, K>::columns;
  static constexpr int num_elements = rows * columns / 32;
  type x[num_elements];
};

template <typename F, typename V> static inline void fill_fragment(F &to, V value) {
  for (int i = 0; i < F::num_elements; ++i) to.x[i] = (typename F::type)value;
}
template <typename F> static inline void emulator_check_index(const void *address, unsigned leading) {
  if ((uintptr_t)address % 32 || leading * sizeof(typename F::type) % 16)
    emulator_fail("a fragment's address must be a multiple of 32 bytes, its leading dimension one of 16 bytes");
}
template <typename F> static inline int emulator_index(int i, unsigned leading, bool by_rows) {
  int e = (int)emulator_lane() + 32 * i, row = e / F::columns, column = e % F::columns;
  return by_rows ? row * (int)leading + column : column * (int)leading + row;
}
template <typename USE, int M, int N, int K, typename T, typename L, typename V>
static inline void load_matrix_sync(fragment<USE, M, N, K, T, L> &to, const V *from, unsigned leading) {
  typedef fragment<USE, M, N, K, T, L> F;
  emulator_check_index<F>(from, leading);
  for (int i = 0; i < F::num_elements; ++i) to.x[i] = from[emulator_index<F>(i, leading, std::is_same<L, row_major>::value)];
}
template <int M, int N, int K, typename T, typename V>
static inline void load_matrix_sync(fragment<accumulator, M, N, K, T> &to, const V *from, unsigned leading, layout_t layout) {
  typedef fragment<accumulator, M, N, K, T> F;
  emulator_check_index<F>(from, leading);
  for (int i = 0; i < F::num_elements; ++i) to.x[i] = from[emulator_index<F>(i, leading, layout == mem_row_major)];
}
template <int M, int N, int K, typename T, typename V>
static inline void store_matrix_sync(V *to, const fragment<accumulator, M, N, K, T> &from, unsigned leading, layout_t layout) {
  typedef fragment<accumulator, M, N, K, T> F;
  emulator_check_index<F>(to, leading);
  for (int i = 0; i < F::num_elements; ++i) to[emulator_index<F>(i, leading, layout == mem_row_major)] = from.x[i];
}
template <int M, int N, int K, typename A, typename LA, typename B, typename LB, typename C>
static inline void mma_sync(fragment<accumulator, M, N, K, C> &d, const fragment<matrix_a, M, N, K, A, LA> &a,
                            const fragment<matrix_b, M, N, K, B, LB> &b, const fragment<accumulator, M, N, K, C> &c) {
  typedef fragment<matrix_a, M, N, K, A, LA> FA;
  typedef fragment<matrix_b, M, N, K, B, LB> FB;
  struct Both { FA a; FB b; } own = {a, b}, all[32];
  emulator_gather(0xffffffffu, &own, sizeof own, all, __LINE__);
  for (int i = 0; i < fragment<accumulator, M, N, K, C>::num_elements; ++i) {
    int e = (int)emulator_lane() + 32 * i, row = e / N, column = e % N;
    float sum = (float)c.x[i];
    for (int k = 0; k < K; ++k) {
      int left = row * K + k, right = k * N + column;
      float x = (float)all[left % 32].a.x[left / 32], y = (float)all[right % 32].b.x[right / 32];
      if (std::is_same<A, precision::tf32>::value) x = emulator_tf32_value(__float_as_uint(x)), y = emulator_tf32_value(__float_as_uint(y));
      sum += x * y;
    }
    d.x[i] = (C)sum;
  }
}

}  // namespace wmma
}  // namespace nvcuda

// ---- launches ---------------------------------------------------------------------------------------------------------

template <typename F> struct emulator_parameters;  // how many a kernel has, then the bytes of each
template <typename... P> struct emulator_parameters<void (*)(P...)> {
  unsigned values[1 + sizeof...(P)] = {sizeof...(P), sizeof(P)...};
};

template <size_t... I> struct emulator_indices {};
template <size_t N, size_t... I> struct emulator_count : emulator_count<N - 1, N - 1, I...> {};
template <size_t... I> struct emulator_count<0, I...> { typedef emulator_indices<I...> type; };
template <typename... P, size_t... I>
EMULATOR_UNRECORDED static inline void emulator_apply(void (*kernel)(P...), void **arguments, emulator_indices<I...>) {
  kernel(*(P *)arguments[I]...);
}
template <typename... P> EMULATOR_UNRECORDED static inline void emulator_call(void (*kernel)(P...), void **arguments) {
  emulator_apply(kernel, arguments, typename emulator_count<sizeof...(P)>::type());
}
