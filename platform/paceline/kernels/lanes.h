// A register of float32 lanes: the unit in which the kernels of this folder compute. There are as many lanes as the
// processor's registers hold; wider vectors would live in memory.
//
// Each function acts lane by lane, in a fixed order of operations, so that no result depends on what is in the other
// lanes. Contraction is off (-ffp-contract=off): a product and a sum become one operation only where fma_lanes says so.

#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>
#if defined(__AVX512F__)
#include <immintrin.h>
#define LANES 16
#elif defined(__AVX2__)
#include <immintrin.h>
#define LANES 8
#else
#define LANES 4
#endif

typedef float Lanes __attribute__((vector_size(4 * LANES)));
typedef uint32_t Units __attribute__((vector_size(4 * LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * LANES)));
typedef uint16_t Halves __attribute__((vector_size(2 * LANES)));

#define ALWAYS_INLINE inline __attribute__((always_inline))
#define ZERO_LANES ((Lanes){0})

static ALWAYS_INLINE Lanes splat_bits(uint32_t bits) { return (Lanes)((Units){0} + bits); }
static ALWAYS_INLINE Lanes splat(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  return splat_bits(bits);
}
static ALWAYS_INLINE Lanes load_lanes(const float *from) {
  Lanes value;
  memcpy(&value, from, sizeof value);
  return value;
}
static ALWAYS_INLINE Units load_units(const uint32_t *from) {
  Units value;
  memcpy(&value, from, sizeof value);
  return value;
}
// `count` units from `place` on; the other lanes are zero.
static ALWAYS_INLINE Units load_units_some(const void *base, int64_t place, int64_t count) {
  Units value = {0};
  memcpy(&value, (const uint32_t *)base + place, 4 * count);
  return value;
}
static ALWAYS_INLINE Lanes fma_lanes(Lanes a, Lanes b, Lanes c) {
#ifdef __AVX512F__
  return (Lanes)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__) && defined(__FMA__)
  return (Lanes)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__FP_FAST_FMAF)
  for (int i = 0; i < LANES; i++) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return c;
#else
  return a * b + c;
#endif
}

// sum + x[0] * weight[0] + x[1] * weight[1] for pairs of bfloat16.
static ALWAYS_INLINE Lanes dot_bf16_pairs(Lanes sum, uint32_t x, Units weight) {
#ifdef __AVX512BF16__
  return (Lanes)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_set1_epi32((int)x), (__m512bh)weight);
#else
  sum = fma_lanes(splat_bits(x << 16), (Lanes)(weight << 16), sum);
  return fma_lanes(splat_bits(x & 0xffff0000u), (Lanes)(weight & 0xffff0000u), sum);
#endif
}

// A *unit* is 32 bits of a row: one float32, or two neighbouring bfloat16. sum + x * y, unit by unit.
static ALWAYS_INLINE Lanes multiply_add(Lanes sum, uint32_t x, Units y, int is_bf16) {
  return is_bf16 ? dot_bf16_pairs(sum, x, y) : fma_lanes(splat_bits(x), (Lanes)y, sum);
}

// To bfloat16, half to even; NaN stays NaN.
static ALWAYS_INLINE Halves to_bf16(Lanes value) {
#ifdef __AVX512BF16__
  return (Halves)_mm512_cvtneps_pbh((__m512)value);
#else
  Units bits = (Units)value;
  Units rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  Units nan = (Units)(value != value);
  return __builtin_convertvector((rounded & ~nan) | (0x7fc0u & nan), Halves);
#endif
}
static ALWAYS_INLINE Lanes from_bf16(Halves value) { return (Lanes)(__builtin_convertvector(value, Units) << 16); }

static ALWAYS_INLINE Lanes round_to(Lanes value, int is_bf16) { return is_bf16 ? from_bf16(to_bf16(value)) : value; }

// `count` elements from `place` on; the other lanes are zero.
static ALWAYS_INLINE Lanes load_some(const void *base, int64_t place, int64_t count, int is_bf16) {
  if (is_bf16) {
    Halves value = {0};
    if (count == LANES)
      memcpy(&value, (const uint16_t *)base + place, sizeof value);
    else
      memcpy(&value, (const uint16_t *)base + place, 2 * count);
    return from_bf16(value);
  }
  Lanes value = ZERO_LANES;
  if (count == LANES)
    memcpy(&value, (const float *)base + place, sizeof value);
  else
    memcpy(&value, (const float *)base + place, 4 * count);
  return value;
}
static ALWAYS_INLINE void store_some(void *base, int64_t place, Lanes value, int64_t count, int is_bf16) {
  if (is_bf16) {
    Halves half = to_bf16(value);
    if (count == LANES)
      memcpy((uint16_t *)base + place, &half, sizeof half);
    else
      memcpy((uint16_t *)base + place, &half, 2 * count);
  } else if (count == LANES) {
    memcpy((float *)base + place, &value, sizeof value);
  } else {
    memcpy((float *)base + place, &value, 4 * count);
  }
}

static ALWAYS_INLINE Lanes select_lanes(Ints which, Lanes yes, Lanes no) {
  return (Lanes)(((Ints)yes & which) | ((Ints)no & ~which));
}

// e to the power of each lane, relative error below 2e-7; 0 below -87, and finite above 88.
static ALWAYS_INLINE Lanes exp_lanes(Lanes x) {
  Ints under = x < -87.0f;
  x = select_lanes(x > 88.0f, splat(88.0f), select_lanes(under, splat(-87.0f), x));
  Lanes scaled = x * 1.44269504f;
  Ints whole = __builtin_convertvector(scaled + select_lanes(scaled < 0.0f, splat(-0.5f), splat(0.5f)), Ints);
  Lanes n = __builtin_convertvector(whole, Lanes);
  Lanes r = fma_lanes(n, splat(-0.693359375f), x);
  r = fma_lanes(n, splat(2.12194440e-4f), r);
  Lanes p = splat(1.9875691500e-4f);
  p = fma_lanes(p, r, splat(1.3981999507e-3f));
  p = fma_lanes(p, r, splat(8.3334519073e-3f));
  p = fma_lanes(p, r, splat(4.1665795894e-2f));
  p = fma_lanes(p, r, splat(1.6666665459e-1f));
  p = fma_lanes(p, r, splat(5.0000001201e-1f));
  p = fma_lanes(p, r * r, r) + 1.0f;
  Lanes power = (Lanes)((whole + 127) << 23);
  return (Lanes)((Ints)(p * power) & ~under);
}

// Upper half of the lanes over the lower half, then quarters, down to single lanes: sum and largest of all lanes.
#if LANES == 16
#define FOLD(x, combine)                                                                        \
  combine(x, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);                             \
  combine(x, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11);                             \
  combine(x, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);                             \
  combine(x, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
#elif LANES == 8
#define FOLD(x, combine)                 \
  combine(x, 4, 5, 6, 7, 0, 1, 2, 3);    \
  combine(x, 2, 3, 0, 1, 6, 7, 4, 5);    \
  combine(x, 1, 0, 3, 2, 5, 4, 7, 6);
#else
#define FOLD(x, combine)     \
  combine(x, 2, 3, 0, 1);    \
  combine(x, 1, 0, 3, 2);
#endif
#define ADD_SHUFFLED(x, ...) x += __builtin_shufflevector(x, x, __VA_ARGS__)
#define TAKE_LARGER(x, ...)                                    \
  {                                                            \
    Lanes other = __builtin_shufflevector(x, x, __VA_ARGS__);  \
    x = select_lanes(other > x, other, x);                     \
  }
static ALWAYS_INLINE float sum_lanes(Lanes x) {
  FOLD(x, ADD_SHUFFLED)
  return x[0];
}
static ALWAYS_INLINE float max_lanes(Lanes x) {
  FOLD(x, TAKE_LARGER)
  return x[0];
}
