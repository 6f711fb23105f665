/* Gumbel-max draws: the compiled form of `paceline.verification.noisy_best`.
 *
 * Every id is hashed with integers (SplitMix64). The upper bits then bound its noise from above without a
 * logarithm; only ids whose bound still reaches the best score so far are scored in float64.
 */
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
#include "token_noise_rows.h"
#undef REAL
#undef NAMED

#define REAL double
#define NAMED(name) CAT(name, _double)
#include "token_noise_rows.h"

