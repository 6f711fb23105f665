/* The part of token_law.c that is compiled once for each REAL; NAMED gives each form names of its own. */

typedef struct {
    REAL score;
    int64_t id;
    double mass; /* 1 where ids are counted */
} NAMED(candidate);

#define CANDIDATE NAMED(candidate)

typedef REAL NAMED(lanes) __attribute__((vector_size(LANES * sizeof(REAL))));

static inline int NAMED(before)(const CANDIDATE *one, const CANDIDATE *other) {
    return (one->score > other->score) | ((one->score == other->score) & (one->id < other->id));
}

/* The last candidate of the smallest best-first set that takes the mass from ``done`` to ``goal``.
 *
 * The last of all if they fall short. Quickselect: what is ranked before the pivot is either searched further or counted whole. Reorders.
 */
static CANDIDATE NAMED(last_kept)(CANDIDATE *items, int64_t size, double goal, double done) {
    CANDIDATE *low = items, *high = items + size; /* the answer is in [low, high); ``done`` is ranked before */
    uint64_t dice = (uint64_t)size;
    while (high - low > 1) {
        dice = dice * 6364136223846793005ULL + 1442695040888963407ULL;
        CANDIDATE pivot = low[(dice >> 33) % (uint64_t)(high - low)];
        CANDIDATE *end = low;
        double mass = 0.0;
        for (CANDIDATE *item = low; item < high; item++) {
            CANDIDATE here = *item;
            if (NAMED(before)(&here, &pivot)) {
                mass += here.mass;
                *item = *end;
                *end++ = here;
            }
        }
        if (done + mass >= goal) {
            high = end;
        } else if (done + mass + pivot.mass >= goal) {
            return pivot;
        } else {
            /* Move the pivot, and leave it behind. */
            for (CANDIDATE *item = end; item < high; item++)
                if (item->id == pivot.id) {
                    *item = *end;
                    *end = pivot;
                    break;
                }
            done += mass + pivot.mass;
            low = end + 1;
            if (low == high) return pivot; /* rounding: the whole mass falls short of the goal */
        }
    }
    return *low;
}

/* Copy the items among which the goal is reached, and those next to them; ``done`` is the mass ranked before.
 *
 * Found by a histogram of mass over scores. Few items, or scores that cannot be spread, are copied whole.
 */
static int64_t NAMED(near_goal)(const CANDIDATE *items, CANDIDATE *found, int64_t size, double goal, double *done) {
    double masses[BUCKETS] = {0};
    REAL high = -INFINITY, low = INFINITY;
    for (int64_t i = 0; i < size; i++) {
        high = items[i].score > high ? items[i].score : high;
        low = items[i].score < low ? items[i].score : low;
    }
    double scale = (BUCKETS - 1) / ((double)high - (double)low);
    *done = 0.0;
    if (size <= BUCKETS / 2 || !(scale < INFINITY)) {
        memcpy(found, items, (size_t)size * sizeof *items);
        return size;
    }
#define BUCKET(item) ((int)(((double)high - (double)(item).score) * scale))
    for (int64_t i = 0; i < size; i++) masses[BUCKET(items[i])] += items[i].mass;
    int at = 0;
    for (double mass = masses[0]; mass < goal && at < BUCKETS - 1; mass += masses[at]) at++;
    for (int bucket = 0; bucket < at - 1; bucket++) *done += masses[bucket];
    int64_t near = 0;
    for (int64_t i = 0; i < size; i++) {
        found[near] = items[i];
        near += abs(BUCKET(items[i]) - at) <= 1;
    }
#undef BUCKET
    return near;
}

/* Keep, in place and in order of ids, the smallest best-first set whose mass reaches ``goal``; returns its size.
 *
 * There is room for as many items behind them.
 */
static int64_t NAMED(keep_until)(CANDIDATE *items, int64_t size, double goal) {
    CANDIDATE *scratch = items + size;
    double done;
    int64_t near = NAMED(near_goal)(items, scratch, size, goal, &done);
    CANDIDATE last = NAMED(last_kept)(scratch, near, goal, done);
    int64_t kept = 0;
    for (int64_t i = 0; i < size; i++) {
        items[kept] = items[i];
        kept += !NAMED(before)(&last, &items[i]);
    }
    return kept;
}

/* Largest score; 0, or NOT_FINITE or ALL_MASKED where there is no distribution. */
static int NAMED(best_of)(const REAL *scores, int64_t size, REAL *best) {
    REAL highest = -INFINITY;
    int broken = 0;
#pragma omp simd reduction(max : highest) reduction(| : broken)
    for (int64_t i = 0; i < size; i++) {
        highest = scores[i] > highest ? scores[i] : highest;
        broken |= scores[i] != scores[i];
    }
    *best = highest;
    if (broken || highest == INFINITY) return NOT_FINITE;
    return highest == -INFINITY ? ALL_MASKED : 0;
}

/* The lowest id of that score; there is one. */
static int64_t NAMED(first_equal)(const REAL *scores, int64_t size, REAL wanted) {
    int64_t start = 0;
    for (; start + 64 <= size; start += 64) {
        int any = 0;
#pragma omp simd reduction(| : any)
        for (int64_t i = start; i < start + 64; i++) any |= scores[i] == wanted;
        if (any) break;
    }
    while (scores[start] != wanted) start++;
    return start;
}

/* sum of e^(scores - best). */
static double NAMED(total_mass)(const REAL *scores, int64_t size, REAL best) {
    lanes sum = {0};
    int64_t start = 0;
    for (; start + LANES <= size; start += LANES) {
        NAMED(lanes) x;
        memcpy(&x, scores + start, sizeof x);
        sum += exp_lanes(__builtin_convertvector(x, lanes) - (double)best);
    }
    if (start < size) {
        lanes x = {0};
        for (int j = 0; start + j < size; j++) x[j] = (double)scores[start + j] - (double)best;
        x = exp_lanes(x);
        for (int j = 0; start + j < size; j++) sum[j] += x[j];
    }
    return sum_lanes(sum);
}

/* A score that at least ``count`` ids reach: the count-th largest of the maxima of blocks. */
static REAL NAMED(reached_by)(const REAL *scores, int64_t size, int64_t count) {
    CANDIDATE maxima[MAX_BLOCKS];
    int64_t block = 16;
    while ((size + block - 1) / block > MAX_BLOCKS) block *= 2;
    int64_t blocks = (size + block - 1) / block;
    if (count > blocks) return -INFINITY;
    for (int64_t b = 0; b < blocks; b++) {
        int64_t stop = (b + 1) * block < size ? (b + 1) * block : size;
        REAL highest = -INFINITY;
#pragma omp simd reduction(max : highest)
        for (int64_t i = b * block; i < stop; i++) highest = scores[i] > highest ? scores[i] : highest;
        maxima[b] = (CANDIDATE){highest, b, 1.0};
    }
    return NAMED(last_kept)(maxima, blocks, (double)count, 0.0).score;
}

/* Ids whose score is finite and at least ``least``, in order, with room for as many more behind them.
 *
 * In the thread's second buffer; NULL without memory.
 */
static CANDIDATE *NAMED(gather)(const REAL *scores, int64_t size, REAL least, int64_t *found) {
    int64_t count = 0;
#pragma omp simd reduction(+ : count)
    for (int64_t i = 0; i < size; i++) count += scores[i] >= least;
    CANDIDATE *items = buffer(1, 2 * (size_t)(count + 1) * sizeof *items);
    if (items == NULL) return NULL;
    int64_t taken = 0;
    for (int64_t start = 0; start < size; start += 64) {
        int64_t stop = start + 64 < size ? start + 64 : size;
        int any = 0;
#pragma omp simd reduction(| : any)
        for (int64_t i = start; i < stop; i++) any |= scores[i] >= least;
        if (!any) continue;
        for (int64_t i = start; i < stop; i++) {
            items[taken] = (CANDIDATE){scores[i], i, 1.0}; /* kept or overwritten: no branch to be mispredicted */
            taken += (scores[i] >= least) & (scores[i] > -INFINITY);
        }
    }
    *found = taken;
    return items;
}

/* Give every item the mass e^(score - best); returns their sum. */
static double NAMED(weigh)(CANDIDATE *items, int64_t size, REAL best) {
    double total = 0.0;
    for (int64_t start = 0; start < size; start += LANES) {
        lanes x = {0};
        for (int j = 0; j < LANES && start + j < size; j++) x[j] = (double)items[start + j].score - (double)best;
        x = exp_lanes(x);
        for (int j = 0; j < LANES && start + j < size; j++) total += items[start + j].mass = x[j];
    }
    return total;
}

/* min-p, then top-k, then top-p on the rest, in the thread's second buffer; NULL without memory. */
static CANDIDATE *NAMED(truncate)(const REAL *scores, int64_t size, REAL best, double log_min_p, int64_t top_k,
                                  double top_p, int64_t *kept) {
    REAL least = best + (REAL)log_min_p; /* -inf without min-p */
    double total = 0.0;
    if (top_k > 0 && top_k < size) {
        REAL reached = NAMED(reached_by)(scores, size, top_k);
        least = reached > least ? reached : least;
    } else if (top_k == 0 && log_min_p == -INFINITY) {
        /* Ids lighter than this share of what top-p leaves out weigh less than that together. */
        total = NAMED(total_mass)(scores, size, best);
        least = best + (REAL)(log((1.0 - top_p) * total / (double)size) - 1e-3 - 1e-6 * fabs((double)best));
    }
    CANDIDATE *items = NAMED(gather)(scores, size, least, kept);
    if (items == NULL) return NULL;
    if (top_k > 0 && *kept > top_k) *kept = NAMED(keep_until)(items, *kept, (double)top_k);
    if (top_p < 1.0) {
        double mass = NAMED(weigh)(items, *kept, best);
        *kept = NAMED(keep_until)(items, *kept, top_p * (total > 0.0 ? total : mass));
    }
    return items;
}

static int64_t NAMED(warp_row)(const REAL *logits, int64_t size, double temperature, double log_min_p, int64_t top_k,
                               double top_p, REAL *weights, int64_t *ids, int64_t *best_id) {
    REAL best;
    int truncated = log_min_p > -INFINITY || top_k > 0 || top_p < 1.0;
    *best_id = NAMED(best_of)(logits, size, &best);
    if (*best_id < 0) return 0;
    if (temperature == 0.0) {
        *best_id = NAMED(first_equal)(logits, size, best);
        return 1;
    }
    if (temperature != 1.0) {
        /* From the maximum down: a tiny temperature then sends the others to -inf and never overflows. */
        REAL *scaled = truncated ? buffer(0, (size_t)size * sizeof *scaled) : weights;
        if (scaled == NULL) return *best_id = NO_MEMORY;
        for (int64_t i = 0; i < size; i++) scaled[i] = (logits[i] - best) / (REAL)temperature;
        logits = scaled;
        best = 0;
    }
    if (!truncated) return size;
    int64_t kept;
    CANDIDATE *items = NAMED(truncate)(logits, size, best, log_min_p, top_k, top_p, &kept);
    if (items == NULL) return *best_id = NO_MEMORY;
    for (int64_t i = 0; i < kept; i++) {
        weights[i] = items[i].score;
        ids[i] = items[i].id;
    }
    return kept;
}

/* Rows of logits into laws.
 *
 * ``kept[row]`` ids stay. Where min-p, top-k or top-p is set they are in ``ids[row]`` (ascending) and their scores
 * in ``weights[row]``; else all stay, and with a temperature other than 1 ``weights[row]`` is the whole row.
 * Temperature 0 gives ``best_ids[row]`` alone. Errors are negative values of ``best_ids[row]``.
 */
void NAMED(warp_rows)(int64_t rows, int64_t size, const REAL *const *logits, const double *temperatures,
                      const double *log_min_ps, const int64_t *top_ks, const double *top_ps, REAL *const *weights,
                      int64_t *const *ids, int64_t *best_ids, int64_t *kept) {
#pragma omp parallel for schedule(dynamic, 1) if (rows > 1)
    for (int64_t row = 0; row < rows; row++)
        kept[row] = NAMED(warp_row)(logits[row], size, temperatures[row], log_min_ps[row], top_ks[row], top_ps[row],
                                    weights[row], ids[row], &best_ids[row]);
}

/* log of the sum of e^scores; at least one score is finite, none is NaN or +inf. */
double NAMED(log_total)(const REAL *scores, int64_t size) {
    REAL best;
    if (NAMED(best_of)(scores, size, &best) < 0) return NAN;
    return (double)best + log(NAMED(total_mass)(scores, size, best));
}

#undef CANDIDATE
