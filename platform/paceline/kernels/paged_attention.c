// Attention of a flat batch over paged K and V, for chains and trees of drafts, on CPU.
//
// Every query reads its own list of keys: the places [0, base) of its sequence in order, then, for a node of a draft
// tree, its ancestors from the root down and itself. The list is cut into blocks of 64 keys, counted from its start,
// and all sums run along the list: what a query gives depends on its own list only, not on the other queries, on how
// a text was cut into passes or on the number of threads. No query's result reads a key outside its list.

#include <stdlib.h>

#include "lanes.h"
#include "team.h"

enum { BLOCK = 64, PARTS = BLOCK / LANES, ROWS_PER_TILE = 48 };
// What fits the registers: rows of sums, and neighbouring parts of a block.
enum { MOST_ROWS = 6, ROWS_AT_ONCE = LANES == 16 ? MOST_ROWS : 2, PARTS_AT_ONCE = 4 };

typedef struct {
  const int32_t *slots;    // [start + num_queries] slot of each place
  const int32_t *parents;  // [num_nodes] of the last num_nodes queries, which form a tree; -1: the token before it
  int64_t first_row;       // of its queries in the flat batch
  int64_t start;           // places before its first query
  int64_t num_queries, num_nodes;
} AttentionSequence;

typedef struct {
  const void *query;         // element (row, head, d) at row * query_row + head * query_head + d
  void *out;                 // likewise
  const void *keys, *values; // [slots, num_kv_heads, head_dim]
  const AttentionSequence *sequences;
  int64_t num_sequences, query_row, query_head, out_row, out_head;
  int32_t num_heads, num_kv_heads, head_dim, is_bf16, threads;
  int32_t window;            // keys that a query sees at most, itself included; 0: all
  float scaling, softcap;    // softcap 0: none
} AttentionCall;

// Working memory of one thread.
typedef struct {
  uint32_t *query; // [rows, width] units
  float *out;      // [rows, width]
  float *weights;  // [rows, BLOCK] scores, then weights
  float *sums;     // [rows, LANES] of weights, lane by lane
  float *top;      // [rows] largest score so far
  float *rescale;  // [rows] factor for what was summed before this block
  uint32_t *keys;  // [width, BLOCK] units, transposed
  float *values;   // [BLOCK, width]
  int32_t *path;   // slots of one query's keys in one block
} Scratch;

typedef struct {
  int32_t low, high;  // keys [low, high) of the block are seen
} Span;

static int64_t width_of(int64_t head_dim) { return (head_dim + LANES - 1) / LANES * LANES; }

static Scratch scratch_for(const AttentionCall *call, int64_t rows) {
  static __thread float *memory;
  static __thread int64_t size;
  int64_t width = width_of(call->head_dim);
  int64_t needed = rows * (2 * width + BLOCK + LANES + 2 * LANES) + 2 * width * BLOCK + 2 * BLOCK;
  if (needed > size) {
    free(memory);
    memory = aligned_alloc(64, (needed * sizeof(float) + 63) / 64 * 64);
    size = needed;
  }
  Scratch s;
  s.query = (uint32_t *)memory;
  s.keys = s.query + rows * width;
  s.out = memory + (rows + BLOCK) * width;
  s.values = s.out + rows * width;
  s.weights = s.values + width * BLOCK;
  s.sums = s.weights + rows * BLOCK;
  s.top = s.sums + rows * LANES;
  s.rescale = s.top + rows * LANES;
  s.path = (int32_t *)(s.rescale + rows * LANES);
  return s;
}

// LANES rows of units become as many columns: ever larger squares change places across the diagonal.
#define LOW(l, s) ((l) & (s) ? LANES + (l) - (s) : (l))
#define HIGH(l, s) ((l) & (s) ? LANES + (l) : (l) + (s))
#define FOUR(f, l, s) f(l, s), f(l + 1, s), f(l + 2, s), f(l + 3, s)
#if LANES == 16
#define EACH(f, s) FOUR(f, 0, s), FOUR(f, 4, s), FOUR(f, 8, s), FOUR(f, 12, s)
#elif LANES == 8
#define EACH(f, s) FOUR(f, 0, s), FOUR(f, 4, s)
#else
#define EACH(f, s) FOUR(f, 0, s)
#endif
#define SWAP_SQUARES(s)                                      \
  for (int i = 0; i < LANES; i++) {                          \
    if (i & s) continue;                                     \
    Units a = r[i], b = r[i + s];                            \
    r[i] = __builtin_shufflevector(a, b, EACH(LOW, s));      \
    r[i + s] = __builtin_shufflevector(a, b, EACH(HIGH, s)); \
  }
static ALWAYS_INLINE void transpose(Units r[LANES]) {
#pragma GCC unroll 16
  SWAP_SQUARES(1)
#pragma GCC unroll 16
  SWAP_SQUARES(2)
#if LANES > 4
#pragma GCC unroll 16
  SWAP_SQUARES(4)
#endif
#if LANES > 8
#pragma GCC unroll 16
  SWAP_SQUARES(8)
#endif
}

// K (transposed, in units) and V (as float32) of `count` slots. What lies behind them in the block is left as it is.
static ALWAYS_INLINE void load_block(const AttentionCall *call, const Scratch *s, int64_t kv_head,
                                     const int32_t *slots, int64_t count, const int is_bf16) {
  const int64_t dim = call->head_dim, width = width_of(dim), stride = call->num_kv_heads * dim;
  const int64_t steps = is_bf16 ? dim / 2 : dim, bytes = is_bf16 ? 2 : 4;
  for (int64_t first = 0; first < count; first += LANES) {
    int64_t num_keys = count - first < LANES ? count - first : LANES;
    for (int64_t step = 0; step < steps; step += LANES) {
      int64_t left = steps - step < LANES ? steps - step : LANES;
      Units r[LANES];
#pragma GCC unroll 16
      for (int k = 0; k < LANES; k++) {
        r[k] = (Units){0};
        if (k >= num_keys) continue;
        const char *key = (const char *)call->keys + (slots[first + k] * stride + kv_head * dim) * bytes;
        r[k] = left == LANES ? load_units((const uint32_t *)key + step) : load_units_some(key, step, left);
      }
      transpose(r);
#pragma GCC unroll 16
      for (int i = 0; i < LANES; i++) memcpy(s->keys + (step + i) * BLOCK + first, &r[i], sizeof r[i]);
    }
  }
  for (int64_t k = 0; k < count; k++)
    for (int64_t d = 0; d < dim; d += LANES) {
      int64_t left = dim - d < LANES ? dim - d : LANES;
      Lanes value = load_some(call->values, slots[k] * stride + kv_head * dim + d, left, is_bf16);
      memcpy(s->values + k * width + d, &value, sizeof value);
    }
}

// Products of `num_rows` queries with the block's keys, each summed over the dimensions in order.
static ALWAYS_INLINE void score_rows(const Scratch *s, int64_t row, const int num_rows, int64_t steps, int64_t width,
                                     const int is_bf16) {
  for (int part = 0; part < PARTS; part += PARTS_AT_ONCE) {
    Lanes sum[MOST_ROWS][PARTS_AT_ONCE];
#pragma GCC unroll 6
    for (int r = 0; r < num_rows; r++)
#pragma GCC unroll 4
      for (int c = 0; c < PARTS_AT_ONCE; c++) sum[r][c] = ZERO_LANES;
    for (int64_t step = 0; step < steps; step++) {
      Units key[PARTS_AT_ONCE];
#pragma GCC unroll 4
      for (int c = 0; c < PARTS_AT_ONCE; c++) key[c] = load_units(s->keys + step * BLOCK + (part + c) * LANES);
#pragma GCC unroll 6
      for (int r = 0; r < num_rows; r++) {
        uint32_t query = s->query[(row + r) * width + step];
#pragma GCC unroll 4
        for (int c = 0; c < PARTS_AT_ONCE; c++) sum[r][c] = multiply_add(sum[r][c], query, key[c], is_bf16);
      }
    }
#pragma GCC unroll 6
    for (int r = 0; r < num_rows; r++) memcpy(s->weights + (row + r) * BLOCK + part * LANES, sum[r], sizeof sum[r]);
  }
}

// Scores of one row become weights relative to its largest score so far; returns nothing for keys outside the span.
static ALWAYS_INLINE void weigh_row(const AttentionCall *call, const Scratch *s, int64_t row, Span span) {
#define PLACE(l, s) (l)
  static const Ints ORDER = {EACH(PLACE, 0)};
  Lanes score[PARTS], largest = splat(-INFINITY);
  memcpy(score, s->weights + row * BLOCK, sizeof score);
#pragma GCC unroll 16
  for (int c = 0; c < PARTS; c++) {
    Lanes x = score[c] * call->scaling;
    if (call->softcap > 0) {  // softcap * tanh(x / softcap)
      Lanes e = exp_lanes(x * (2.0f / call->softcap));
      x = call->softcap * (1.0f - 2.0f / (e + 1.0f));
    }
    Ints key = ORDER + c * LANES;
    score[c] = select_lanes((key >= span.low) & (key < span.high), x, splat(-INFINITY));
    largest = select_lanes(score[c] > largest, score[c], largest);
  }
  float before = s->top[row], now = max_lanes(largest);
  if (before > now) now = before;
  Lanes total = ZERO_LANES;
#pragma GCC unroll 16
  for (int c = 0; c < PARTS; c++) {
    score[c] = exp_lanes(score[c] - now);
    total += score[c];
  }
  memcpy(s->weights + row * BLOCK, score, sizeof score);
  float factor = now > before ? exp_lanes(splat(before - now))[0] : 1.0f;
  Lanes sums = load_lanes(s->sums + row * LANES) * factor + total;
  memcpy(s->sums + row * LANES, &sums, sizeof sums);
  s->top[row] = now;
  s->rescale[row] = factor;
}

// Adds the block's values, weighed, to `num_rows` outputs: key after key, `parts` * LANES dimensions from d on.
static ALWAYS_INLINE void add_values(const Scratch *s, int64_t row, const int num_rows, Span span, int64_t d,
                                     const int parts, int64_t width) {
  Lanes sum[MOST_ROWS][PARTS_AT_ONCE];
#pragma GCC unroll 6
  for (int r = 0; r < num_rows; r++)
#pragma GCC unroll 4
    for (int c = 0; c < parts; c++)
      sum[r][c] = load_lanes(s->out + (row + r) * width + d + c * LANES) * s->rescale[row + r];
  for (int k = span.low; k < span.high; k++) {
    Lanes value[PARTS_AT_ONCE];
#pragma GCC unroll 4
    for (int c = 0; c < parts; c++) value[c] = load_lanes(s->values + k * width + d + c * LANES);
#pragma GCC unroll 6
    for (int r = 0; r < num_rows; r++) {
      Lanes weight = splat(s->weights[(row + r) * BLOCK + k]);
#pragma GCC unroll 4
      for (int c = 0; c < parts; c++) sum[r][c] = fma_lanes(weight, value[c], sum[r][c]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < num_rows; r++)
    memcpy(s->out + (row + r) * width + d, sum[r], parts * sizeof(Lanes));
}

static ALWAYS_INLINE void add_all_values(const Scratch *s, int64_t row, const int num_rows, Span span, int64_t width) {
  int64_t d = 0;
  const int64_t together = PARTS_AT_ONCE * LANES;
  for (; d + together <= width; d += together) add_values(s, row, num_rows, span, d, PARTS_AT_ONCE, width);
  for (; d < width; d += LANES) add_values(s, row, num_rows, span, d, 1, width);
}

#define ROWS_CASE(n, f, s, row, ...)                  \
  case n:                                             \
    if (n <= ROWS_AT_ONCE) f(s, row, n, __VA_ARGS__); \
    break;
#define FOR_ROWS(count, f, ...)                                                         \
  switch (count) {                                                                      \
    ROWS_CASE(1, f, __VA_ARGS__) ROWS_CASE(2, f, __VA_ARGS__) ROWS_CASE(3, f, __VA_ARGS__) \
    ROWS_CASE(4, f, __VA_ARGS__) ROWS_CASE(5, f, __VA_ARGS__) ROWS_CASE(6, f, __VA_ARGS__) \
  }

static int same_span(const Span *spans, int64_t count) {
  for (int64_t i = 1; i < count; i++)
    if (spans[i].low != spans[0].low || spans[i].high != spans[0].high) return 0;
  return 1;
}

// One loaded block for rows [row, row + count), whose spans may differ.
static void attend_block(const AttentionCall *call, const Scratch *s, int64_t row, int64_t count, const Span *spans) {
  const int64_t dim = call->head_dim, width = width_of(dim);
  for (int64_t first = 0; first < count; first += ROWS_AT_ONCE) {
    int64_t num = count - first < ROWS_AT_ONCE ? count - first : ROWS_AT_ONCE, place = row + first;
    if (call->is_bf16)
      FOR_ROWS(num, score_rows, s, place, dim / 2, width, 1)
    else
      FOR_ROWS(num, score_rows, s, place, dim, width, 0)
    for (int64_t r = 0; r < num; r++)
      if (spans[first + r].low < spans[first + r].high) weigh_row(call, s, place + r, spans[first + r]);
    if (same_span(spans + first, num)) {
      if (spans[first].low < spans[first].high) FOR_ROWS(num, add_all_values, s, place, spans[first], width)
    } else {
      for (int64_t r = 0; r < num; r++)
        if (spans[first + r].low < spans[first + r].high)
          add_all_values(s, place + r, 1, spans[first + r], width);
    }
  }
}

static void load_any(const AttentionCall *call, const Scratch *s, int64_t kv_head, const int32_t *slots, int64_t n) {
  if (call->is_bf16)
    load_block(call, s, kv_head, slots, n, 1);
  else
    load_block(call, s, kv_head, slots, n, 0);
}

typedef struct {
  int64_t base;    // places [0, base) of the sequence head the list
  int64_t length;  // of the whole list
  int64_t low;     // first entry that a sliding window leaves
} KeyList;

static KeyList key_list(const AttentionCall *call, const AttentionSequence *sequence, int64_t query) {
  int64_t num_chained = sequence->num_queries - sequence->num_nodes, node = query - num_chained;
  KeyList list = {sequence->start + (node < 0 ? query + 1 : num_chained), 0, 0};
  list.length = list.base;
  for (; node >= 0; node = sequence->parents[node]) list.length++;
  if (call->window && list.length > call->window) list.low = list.length - call->window;
  return list;
}

// Slots of the entries [first, first + count) of a query's list.
static const int32_t *list_slots(const AttentionSequence *sequence, int64_t query, KeyList list, int64_t first,
                                 int64_t count, int32_t *buffer) {
  if (first + count <= list.base) return sequence->slots + first;
  for (int64_t i = first; i < list.base; i++) buffer[i - first] = sequence->slots[i];
  int64_t entry = list.length - 1, node = query - (sequence->num_queries - sequence->num_nodes);
  for (; entry >= list.base && entry >= first; entry--, node = sequence->parents[node])
    if (entry < first + count) buffer[entry - first] = sequence->slots[list.base + node];
  return buffer;
}

static Span span_in(KeyList list, int64_t first) {
  int64_t low = list.low - first, high = list.length - first;
  return (Span){low < 0 ? 0 : (low > BLOCK ? BLOCK : low), high < 0 ? 0 : (high > BLOCK ? BLOCK : high)};
}

static void start_rows(const AttentionCall *call, const Scratch *s, int64_t row, int64_t kv_head, int64_t first_query,
                       int64_t num_queries) {
  int64_t group = call->num_heads / call->num_kv_heads, width = width_of(call->head_dim);
  int64_t bytes = call->is_bf16 ? 2 : 4;
  for (int64_t r = 0; r < num_queries * group; r++) {
    int64_t head = kv_head * group + r % group;
    int64_t place = (row + first_query + r / group) * call->query_row + head * call->query_head;
    memcpy(s->query + r * width, (const char *)call->query + place * bytes, call->head_dim * bytes);
    memset(s->out + r * width, 0, width * sizeof(float));
    memset(s->sums + r * LANES, 0, LANES * sizeof(float));
    s->top[r] = -INFINITY;
  }
}

static void end_rows(const AttentionCall *call, const Scratch *s, int64_t row, int64_t kv_head, int64_t first_query,
                     int64_t num_queries) {
  int64_t group = call->num_heads / call->num_kv_heads, width = width_of(call->head_dim);
  for (int64_t r = 0; r < num_queries * group; r++) {
    int64_t head = kv_head * group + r % group;
    int64_t place = (row + first_query + r / group) * call->out_row + head * call->out_head;
    float total = sum_lanes(load_lanes(s->sums + r * LANES));
    for (int64_t d = 0; d < call->head_dim; d += LANES) {
      int64_t left = call->head_dim - d < LANES ? call->head_dim - d : LANES;
      store_some(call->out, place + d, load_lanes(s->out + r * width + d) / total, left, call->is_bf16);
    }
  }
}

// One kv head of `num_queries` neighbouring queries of one sequence.
static void attend_tile(const AttentionCall *call, const Scratch *s, const AttentionSequence *sequence,
                        int64_t kv_head, int64_t first_query, int64_t num_queries) {
  int64_t group = call->num_heads / call->num_kv_heads;
  KeyList lists[ROWS_PER_TILE];
  Span spans[num_queries * group];
  int64_t shared = INT64_MAX, end = 0, low = INT64_MAX;
  int has_nodes = first_query + num_queries > sequence->num_queries - sequence->num_nodes;
  for (int64_t q = 0; q < num_queries; q++) {
    lists[q] = key_list(call, sequence, first_query + q);
    if (lists[q].base < shared) shared = lists[q].base;
    if (lists[q].length > end) end = lists[q].length;
    if (lists[q].low < low) low = lists[q].low;
  }
  // Where nobody's path has begun, all read the same blocks; a chain's queries do so to the end.
  shared = has_nodes ? shared / BLOCK * BLOCK : end;
  start_rows(call, s, sequence->first_row, kv_head, first_query, num_queries);
  for (int64_t first = low / BLOCK * BLOCK; first < shared; first += BLOCK) {
    int64_t count = shared - first < BLOCK ? shared - first : BLOCK;
    load_any(call, s, kv_head, sequence->slots + first, count);
    for (int64_t r = 0; r < num_queries * group; r++) spans[r] = span_in(lists[r / group], first);
    attend_block(call, s, 0, num_queries * group, spans);
  }
  for (int64_t q = 0; has_nodes && q < num_queries; q++) {
    int64_t from = lists[q].low / BLOCK * BLOCK;
    for (int64_t first = from > shared ? from : shared; first < lists[q].length; first += BLOCK) {
      int64_t count = lists[q].length - first < BLOCK ? lists[q].length - first : BLOCK;
      load_any(call, s, kv_head, list_slots(sequence, first_query + q, lists[q], first, count, s->path), count);
      for (int64_t g = 0; g < group; g++) spans[g] = span_in(lists[q], first);
      attend_block(call, s, q * group, group, spans);
    }
  }
  end_rows(call, s, sequence->first_row, kv_head, first_query, num_queries);
}

static int64_t tiles_of(const AttentionSequence *sequence, int64_t per_tile) {
  return (sequence->num_queries + per_tile - 1) / per_tile;
}

static int64_t queries_per_tile(const AttentionCall *call) {
  int64_t group = call->num_heads / call->num_kv_heads;
  return group >= ROWS_PER_TILE ? 1 : ROWS_PER_TILE / group;
}

// The tile `task` of all, counted over sequences, heads and tiles of queries.
static void attend_task(const AttentionCall *call, const Scratch *scratch, int64_t task, int64_t per_tile) {
  const AttentionSequence *sequence = call->sequences;
  int64_t tiles = tiles_of(sequence, per_tile);
  while (task >= tiles * call->num_kv_heads) {
    task -= tiles * call->num_kv_heads;
    tiles = tiles_of(++sequence, per_tile);
  }
  int64_t first = task % tiles * per_tile, rest = sequence->num_queries - first;
  attend_tile(call, scratch, sequence, task / tiles, first, rest < per_tile ? rest : per_tile);
}

static void share_attention(const AttentionCall *call, Team team) {
  int64_t per_tile = queries_per_tile(call), num_tasks = 0;
  for (int64_t i = 0; i < call->num_sequences; i++)
    num_tasks += tiles_of(call->sequences + i, per_tile) * call->num_kv_heads;
  Scratch scratch = scratch_for(call, per_tile * (call->num_heads / call->num_kv_heads));
  for (int64_t task = take(team, 1); task < num_tasks; task = take(team, 1))
    attend_task(call, &scratch, task, per_tile);
}

void paged_attention(const AttentionCall *call) {
  Meeting meeting = {0};
#pragma omp parallel num_threads(call->threads) if (call->threads > 1)
  share_attention(call, join(&meeting));
}
