/* Gumbel-max draws: the compiled form of `paceline.verification.law.best_by_noise`.
 *
 * Every id is hashed with integers (SplitMix64). The upper bits then bound its noise from above without a
 * logarithm; only ids whose bound still reaches the best score so far are scored in float64.
 *
 * This file includes itself once for each type of weight.
 */
#ifndef REAL

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { BLOCK = 256 };

static const uint64_t GOLDEN = 0x9E3779B97F4A7C15ULL;

static inline uint64_t mixed(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
    return x ^ (x >> 31);
}

static inline double gumbel(uint64_t bits) {
    double fraction = ((double)(bits >> 12) + 0.5) * 0x1p-52; /* exact, and never 0 or 1 */
    return -log(-log(fraction));
}

/* A number that the Gumbel noise of ``bits`` never exceeds, at most 0.07 above it in the upper half.
 *
 * G = -log(-log u) <= -log(1 - u), and 1 - u = (~bits) / 2^64. The bits of a float, read as an integer, are
 * its binary logarithm but for a piecewise linear error that only lowers it.
 */
static inline float noise_bound(uint64_t bits) {
    float complement = (float)(int32_t)((~bits) >> 40); /* 24 bits: exact */
    int32_t read;
    memcpy(&read, &complement, sizeof read);
    return 0.69314718f * ((float)(127 + 24) - (float)read * 0x1p-23f);
}

#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)

#define REAL float
#define NAMED(name) CAT(name, _float)
#include "token_noise.c"
#undef REAL
#undef NAMED

#define REAL double
#define NAMED(name) CAT(name, _double)
#include "token_noise.c"

#else

/* Keep the ``count`` best of (score descending, id ascending); ids arrive in ascending order. */
static int NAMED(keep)(double *scores, int64_t *slots, int kept, int count, double score, int64_t slot) {
    int at = kept < count ? kept : count - 1;
    for (; at > 0 && scores[at - 1] < score; at--) {
        scores[at] = scores[at - 1];
        slots[at] = slots[at - 1];
    }
    scores[at] = score;
    slots[at] = slot;
    return kept < count ? kept + 1 : count;
}

/* The ``count`` slots of largest weight + noise, best first; fewer where fewer weights are finite. */
static int NAMED(draw_row)(const REAL *weights, const int64_t *ids, int64_t size, uint64_t row_key, int count,
                           int64_t *slots, double *scores) {
    float bounds[BLOCK];
    uint64_t bits[BLOCK];
    int kept = 0;
    for (int64_t start = 0; start < size; start += BLOCK) {
        int length = size - start < BLOCK ? (int)(size - start) : BLOCK;
        uint64_t offset = row_key + GOLDEN;
        if (ids == NULL) {
#pragma omp simd
            for (int j = 0; j < length; j++) bits[j] = mixed((uint64_t)(start + j) * GOLDEN + offset);
        } else {
#pragma omp simd
            for (int j = 0; j < length; j++) bits[j] = mixed((uint64_t)ids[start + j] * GOLDEN + offset);
        }
        float highest = -INFINITY;
#pragma omp simd reduction(max : highest)
        for (int j = 0; j < length; j++) {
            bounds[j] = (float)weights[start + j] + noise_bound(bits[j]);
            highest = bounds[j] > highest ? bounds[j] : highest;
        }
        /* Lowered by more than the rounding of the bounds, which are floats near the level itself. */
        double worst = kept < count ? -INFINITY : scores[count - 1];
        double level = worst - 1e-4 - 1e-6 * (fabs(worst) + 128.0);
        if (highest == -INFINITY || highest < level) continue;
        for (int j = 0; j < length; j++) {
            if (bounds[j] < level || weights[start + j] == -INFINITY) continue;
            double score = (double)weights[start + j] + gumbel(bits[j]);
            if (kept == count && score <= scores[count - 1]) continue; /* a tie goes to the lower id */
            kept = NAMED(keep)(scores, slots, kept, count, score, start + j);
            if (kept == count) level = scores[count - 1] - 1e-4 - 1e-6 * (fabs(scores[count - 1]) + 128.0);
        }
    }
    return kept;
}

/* `draw_row` for many rows. ``ids[row]`` may be NULL: slots are ids. Outputs are [rows, count]. */
void NAMED(draw_rows)(int64_t rows, const REAL *const *weights, const int64_t *const *ids, const int64_t *sizes,
                      const uint64_t *row_keys, int64_t count, int64_t *slots, double *scores, int64_t *kept) {
#pragma omp parallel for schedule(dynamic, 1) if (rows > 1)
    for (int64_t row = 0; row < rows; row++)
        kept[row] = NAMED(draw_row)(weights[row], ids[row], sizes[row], row_keys[row], (int)count,
                                    slots + row * count, scores + row * count);
}

#endif
