/* From logits to the ids that may be drawn: the compiled form of `paceline.verification.truncation`.
 *
 * Temperature, min-p, top-k and top-p of one row, without a sort of the vocabulary: candidates are gathered by
 * a threshold that provably keeps every id in question, and only those are partitioned. Order is (score
 * descending, id ascending). Sums are written out lane by lane, so their bits do not depend on the vector width
 * or on the number of threads.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { LANES = 8, MAX_BLOCKS = 4096, BUCKETS = 1024 };
enum { NOT_FINITE = -1, ALL_MASKED = -2, NO_MEMORY = -3 };

/* Two buffers of each thread that are kept between calls: fresh pages would cost more than the work on them. */
static __thread struct {
    void *memory;
    size_t size;
} kept_buffers[2];

static void *buffer(int which, size_t size) {
    if (kept_buffers[which].size < size) {
        free(kept_buffers[which].memory);
        kept_buffers[which].memory = malloc(size);
        kept_buffers[which].size = kept_buffers[which].memory == NULL ? 0 : size;
    }
    return kept_buffers[which].memory;
}

typedef double lanes __attribute__((vector_size(LANES * sizeof(double))));
typedef int64_t lanes_int __attribute__((vector_size(LANES * sizeof(double))));

/* e^x for x <= 0 within an ulp or two; below -700, where 0 would be as good, e^-700. */
static inline lanes exp_lanes(lanes x) {
    const lanes floor = {-700, -700, -700, -700, -700, -700, -700, -700};
    const double shift = 0x1.8p52; /* adding it rounds to an integer and leaves that in the low bits */
    lanes_int low = x < floor;
    x = (lanes)((~low & (lanes_int)x) | (low & (lanes_int)floor));
    lanes k = x * 0x1.71547652b82fep0 + shift;
    lanes_int power = (lanes_int)k << 52;
    k -= shift;
    lanes r = x - k * 0x1.62e42fefa0000p-1 - k * 0x1.cf79abc9e3b39p-40; /* ln 2 in two parts */
    lanes series = r * (1.0 / 6227020800.0) + 1.0 / 479001600.0;
    series = series * r + 1.0 / 39916800.0;
    series = series * r + 1.0 / 3628800.0;
    series = series * r + 1.0 / 362880.0;
    series = series * r + 1.0 / 40320.0;
    series = series * r + 1.0 / 5040.0;
    series = series * r + 1.0 / 720.0;
    series = series * r + 1.0 / 120.0;
    series = series * r + 1.0 / 24.0;
    series = series * r + 1.0 / 6.0;
    series = series * r + 0.5;
    series = series * r + 1.0;
    series = series * r + 1.0;
    return (lanes)((lanes_int)series + power); /* times 2^k, by its exponent bits */
}

static inline double sum_lanes(lanes x) {
    return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
}

#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)

#define REAL float
#define NAMED(name) CAT(name, _float)
#include "token_law_rows.h"
#undef REAL
#undef NAMED

#define REAL double
#define NAMED(name) CAT(name, _double)
#include "token_law_rows.h"

