/* The part of token_noise.c that is compiled once for each REAL; NAMED gives each form names of its own. */

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
