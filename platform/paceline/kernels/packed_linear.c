// Linear layers over packed weights, for CPU: out = epilogue(x @ weight.T + bias).
//
// Row-invariant by construction: output (row, column) is one lane of one accumulator that runs over the input
// features in order, whatever the number of rows, the tiling of rows or the number of threads is.
//
// Layout, in units (see lanes.h): a row of x is its steps one after another. The weight [N, K] lies in panels of
// PANEL = 2 * LANES columns: unit (column n, step s) at panel[n / PANEL][s][n % PANEL]; columns behind N are zero. For
// SILU_MUL a panel holds LANES columns of the gate, then the same columns of the other factor.

#include "lanes.h"
#include "team.h"

enum { PANEL = 2 * LANES, MOST_ROWS_OF_TILE = 12, MAX_TILE = LANES == 16 ? MOST_ROWS_OF_TILE : 6 };
// A core that computes has to be told early what comes next, in units from here. Left to itself it fetches well on some
// machines with few rows, and at two thirds of the speed on others.
enum { AHEAD = 4096 };

// What becomes of a sum. ADD: it is added to the residual. SILU_MUL: silu(gate) times the other factor, columns counts
// the products. WIDEN: it is rounded as x is, and stored as float32.
typedef enum { PLAIN = 0, ADD = 1, SILU_MUL = 2, WIDEN = 3 } Epilogue;

typedef struct {
  const void *x;         // [rows, steps] units
  const void *weight;    // panels
  const float *bias;     // in the order of the panels' columns, or NULL
  const void *residual;  // ADD: [rows, columns], as out
  void *out;             // [rows, columns]; WIDEN: float32, else as x
  int64_t rows, steps, columns;
  int32_t is_bf16, epilogue, threads;
} LinearCall;

static ALWAYS_INLINE void finish(const LinearCall *call, int64_t row, int64_t column, Lanes low, Lanes high,
                                 int is_bf16) {
  if (call->bias) {
    low += load_lanes(call->bias + column);
    high += load_lanes(call->bias + column + LANES);
  }
  if (call->epilogue == SILU_MUL) {  // gate in the low half of the panel, up in the high half
    Lanes gate = round_to(low, is_bf16), up = round_to(high, is_bf16);
    Lanes active = round_to(gate / (1.0f + exp_lanes(-gate)), is_bf16);
    int64_t half = column / 2, count = call->columns - half;
    store_some(call->out, row * call->columns + half, active * up, count < LANES ? count : LANES, is_bf16);
    return;
  }
  for (int part = 0; part < 2; part++) {
    int64_t first = column + part * LANES, left = call->columns - first;
    if (left <= 0) break;
    int64_t count = left < LANES ? left : LANES, place = row * call->columns + first;
    Lanes value = part ? high : low;
    if (call->epilogue == ADD) value = load_some(call->residual, place, count, is_bf16) + round_to(value, is_bf16);
    if (call->epilogue == WIDEN)
      store_some(call->out, place, round_to(value, is_bf16), count, 0);
    else
      store_some(call->out, place, value, count, is_bf16);
  }
}

static ALWAYS_INLINE void tile(const LinearCall *call, int64_t row, const int num_rows, const uint32_t *panel,
                               int64_t column, const int is_bf16) {
  Lanes low[MOST_ROWS_OF_TILE], high[MOST_ROWS_OF_TILE];
  const int64_t steps = call->steps;
  const uint32_t *x = (const uint32_t *)call->x + row * steps;
#pragma GCC unroll 12
  for (int r = 0; r < num_rows; r++) low[r] = high[r] = ZERO_LANES;
  for (int64_t step = 0; step < steps; step++) {
    const uint32_t *weight = panel + step * PANEL;
    __builtin_prefetch(weight + AHEAD, 0, 2);
    __builtin_prefetch(weight + AHEAD + LANES, 0, 2);
#pragma GCC unroll 12
    for (int r = 0; r < num_rows; r++) {
      low[r] = multiply_add(low[r], x[r * steps + step], load_units(weight), is_bf16);
      high[r] = multiply_add(high[r], x[r * steps + step], load_units(weight + LANES), is_bf16);
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < num_rows; r++) finish(call, row + r, column, low[r], high[r], is_bf16);
}

#define TILE_CASE(n)                                               \
  case n:                                                          \
    if (n <= MAX_TILE) tile(call, row, n, panel, column, is_bf16); \
    break;

static ALWAYS_INLINE void panel_rows(const LinearCall *call, const uint32_t *panel, int64_t column, const int is_bf16) {
  int64_t num_tiles = (call->rows + MAX_TILE - 1) / MAX_TILE, row = 0;
  for (int64_t t = 0; t < num_tiles; t++) {  // tiles of equal size, give or take one row
    int64_t num_rows = (call->rows - row + num_tiles - t - 1) / (num_tiles - t);
    switch (num_rows) {
      TILE_CASE(1) TILE_CASE(2) TILE_CASE(3) TILE_CASE(4) TILE_CASE(5) TILE_CASE(6)
      TILE_CASE(7) TILE_CASE(8) TILE_CASE(9) TILE_CASE(10) TILE_CASE(11) TILE_CASE(12)
    }
    row += num_rows;
  }
}

static void panel_rows_f32(const LinearCall *call, const uint32_t *panel, int64_t column) {
  panel_rows(call, panel, column, 0);
}
static void panel_rows_bf16(const LinearCall *call, const uint32_t *panel, int64_t column) {
  panel_rows(call, panel, column, 1);
}

static void share_linear(const LinearCall *call, Team team) {
  int64_t packed_columns = call->epilogue == SILU_MUL ? 2 * ((call->columns + LANES - 1) / LANES * LANES) : call->columns;
  int64_t num_panels = (packed_columns + PANEL - 1) / PANEL, share = share_of(team, num_panels);
  for (int64_t first = take(team, share); first < num_panels; first = take(team, share))
    for (int64_t p = first; p < first + share && p < num_panels; p++) {
      const uint32_t *panel = (const uint32_t *)call->weight + p * PANEL * call->steps;
      if (call->is_bf16)
        panel_rows_bf16(call, panel, p * PANEL);
      else
        panel_rows_f32(call, panel, p * PANEL);
    }
}

void packed_linear(const LinearCall *call) {
  Meeting meeting = {0};
#pragma omp parallel num_threads(call->threads) if (call->threads > 1)
  share_linear(call, join(&meeting));
}
