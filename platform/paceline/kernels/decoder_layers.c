// The layers of a decoder of Llama's shape, as one call: norm, attention with rotary positions over paged K and V,
// norm, gated feed-forward; each of the two is added to what came in.
//
// Values are rounded to the model's type where Transformers' modules would round them. Every step gives a token what
// depends on that token and its own keys only; see packed_linear.c and paged_attention.c.

#include "lanes.h"
#include "packed_linear.c"
#include "paged_attention.c"

typedef struct {
  const void *weight;  // panels
  const float *bias;   // or NULL
} PackedWeight;

typedef struct {
  PackedWeight qkv, out, gate_up, down;
  const void *input_norm, *post_norm;   // [hidden]; input_norm may be NULL: none
  const void *query_norm, *key_norm;    // [head_dim], or NULL: none
  void *keys, *values;                  // [slots, num_kv_heads, head_dim]
  int64_t window;                       // 0: all keys are seen
} DecoderLayer;

typedef struct {
  void *hidden;                          // [tokens, hidden_size], in and out
  void *normed, *qkv, *mixed, *active;   // working memory: hidden_size, all heads, query heads, intermediate_size
  const float *cos, *sin;                // [tokens, head_dim / 2]
  const int32_t *write_slots;            // [tokens]
  const AttentionSequence *sequences;
  int64_t tokens, num_sequences, hidden_size, intermediate_size;
  int32_t num_heads, num_kv_heads, head_dim, is_bf16, threads;
  float epsilon, scaling;
} DecoderPass;

static ALWAYS_INLINE int64_t at_most(int64_t left) { return left < LANES ? left : LANES; }

// x / sqrt(mean of x * x + epsilon) * weight; the quotient and the product are rounded.
static ALWAYS_INLINE void norm_row(const void *x, int64_t place, const void *weight, void *out, int64_t out_place,
                                   int64_t size, float epsilon, const int is_bf16) {
  Lanes squares = ZERO_LANES;
  for (int64_t d = 0; d < size; d += LANES) {
    Lanes value = load_some(x, place + d, at_most(size - d), is_bf16);
    squares = fma_lanes(value, value, squares);
  }
  float scale = 1.0f / sqrtf(sum_lanes(squares) / size + epsilon);
  for (int64_t d = 0; d < size; d += LANES) {
    int64_t count = at_most(size - d);
    Lanes value = round_to(load_some(x, place + d, count, is_bf16) * scale, is_bf16);
    store_some(out, out_place + d, load_some(weight, d, count, is_bf16) * value, count, is_bf16);
  }
}

static void norm_rows(const void *x, const void *weight, void *out, int64_t first, int64_t last, int64_t size,
                      float epsilon, int32_t is_bf16) {
  for (int64_t row = first; row < last; row++) {
    if (is_bf16)
      norm_row(x, row * size, weight, out, row * size, size, epsilon, 1);
    else
      norm_row(x, row * size, weight, out, row * size, size, epsilon, 0);
  }
}

void rms_norm(const void *x, const void *weight, void *out, int64_t rows, int64_t size, float epsilon,
              int32_t is_bf16) {
  norm_rows(x, weight, out, 0, rows, size, epsilon, is_bf16);
}

// Turns one head by its position: pairs (d, d + half) by the angle of d. May write in place.
static ALWAYS_INLINE void rotate_head(const void *x, int64_t place, void *out, int64_t out_place, const float *cos,
                                      const float *sin, int64_t half, const int is_bf16) {
  for (int64_t d = 0; d < half; d += LANES) {
    int64_t count = at_most(half - d);
    Lanes a = load_some(x, place + d, count, is_bf16), b = load_some(x, place + half + d, count, is_bf16);
    Lanes c = load_some(cos, d, count, 0), s = load_some(sin, d, count, 0);
    Lanes low = round_to(a * c, is_bf16) - round_to(b * s, is_bf16);
    Lanes high = round_to(b * c, is_bf16) + round_to(a * s, is_bf16);
    store_some(out, out_place + d, low, count, is_bf16);
    store_some(out, out_place + half + d, high, count, is_bf16);
  }
}

static ALWAYS_INLINE void place_row(const DecoderPass *pass, const DecoderLayer *layer, int64_t row,
                                    const int is_bf16) {
  int64_t dim = pass->head_dim, half = dim / 2, heads = pass->num_heads, kv_heads = pass->num_kv_heads;
  int64_t start = row * (heads + 2 * kv_heads) * dim;
  const float *cos = pass->cos + row * half, *sin = pass->sin + row * half;
  for (int64_t head = 0; head < heads + kv_heads; head++) {
    int64_t place = start + head * dim;
    const void *norm = head < heads ? layer->query_norm : layer->key_norm;
    if (norm) norm_row(pass->qkv, place, norm, pass->qkv, place, dim, pass->epsilon, is_bf16);
    if (head < heads)
      rotate_head(pass->qkv, place, pass->qkv, place, cos, sin, half, is_bf16);
    else
      rotate_head(pass->qkv, place, layer->keys, (pass->write_slots[row] * kv_heads + head - heads) * dim, cos, sin,
                  half, is_bf16);
  }
  int64_t bytes = is_bf16 ? 2 : 4, size = kv_heads * dim * bytes;
  memcpy((char *)layer->values + pass->write_slots[row] * size,
         (const char *)pass->qkv + (start + (heads + kv_heads) * dim) * bytes, size);
}

enum { ROWS_PER_SHARE = 8 };  // of what takes a row little time

static void share_places(const DecoderPass *pass, const DecoderLayer *layer, Team team) {
  int64_t first;
  while ((first = take(team, ROWS_PER_SHARE)) < pass->tokens)
    for (int64_t row = first; row < first + ROWS_PER_SHARE && row < pass->tokens; row++) {
      if (pass->is_bf16)
        place_row(pass, layer, row, 1);
      else
        place_row(pass, layer, row, 0);
    }
}

static void share_attending(const DecoderPass *pass, const DecoderLayer *layer, Team team) {
  int64_t dim = pass->head_dim;
  AttentionCall call = {
      .query = pass->qkv, .out = pass->mixed, .keys = layer->keys, .values = layer->values,
      .sequences = pass->sequences, .num_sequences = pass->num_sequences,
      .query_row = (pass->num_heads + 2 * pass->num_kv_heads) * dim, .query_head = dim,
      .out_row = pass->num_heads * dim, .out_head = dim,
      .num_heads = pass->num_heads, .num_kv_heads = pass->num_kv_heads, .head_dim = dim,
      .is_bf16 = pass->is_bf16, .window = layer->window, .scaling = pass->scaling};
  share_attention(&call, team);
}

static void share_weight(const DecoderPass *pass, const PackedWeight *weight, const void *x, int64_t features,
                         void *out, int64_t columns, Epilogue epilogue, Team team) {
  LinearCall call = {
      .x = x, .weight = weight->weight, .bias = weight->bias, .residual = out, .out = out,
      .rows = pass->tokens, .steps = pass->is_bf16 ? features / 2 : features, .columns = columns,
      .is_bf16 = pass->is_bf16, .epilogue = epilogue};
  share_linear(&call, team);
  meet(team);
}

static void share_norm(const DecoderPass *pass, const void *weight, Team team) {
  int64_t first;
  while ((first = take(team, ROWS_PER_SHARE)) < pass->tokens) {
    int64_t last = first + ROWS_PER_SHARE < pass->tokens ? first + ROWS_PER_SHARE : pass->tokens;
    norm_rows(pass->hidden, weight, pass->normed, first, last, pass->hidden_size, pass->epsilon, pass->is_bf16);
  }
  meet(team);
}

static void share_layer(const DecoderPass *pass, const DecoderLayer *layer, Team team) {
  int64_t hidden = pass->hidden_size, mixed = pass->num_heads * pass->head_dim;
  int64_t projected = mixed + 2 * pass->num_kv_heads * pass->head_dim;
  if (layer->input_norm) share_norm(pass, layer->input_norm, team);
  const void *attended = layer->input_norm ? pass->normed : pass->hidden;
  share_weight(pass, &layer->qkv, attended, hidden, pass->qkv, projected, PLAIN, team);
  share_places(pass, layer, team);
  meet(team);
  share_attending(pass, layer, team);
  meet(team);
  share_weight(pass, &layer->out, pass->mixed, mixed, pass->hidden, hidden, ADD, team);
  share_norm(pass, layer->post_norm, team);
  share_weight(pass, &layer->gate_up, pass->normed, hidden, pass->active, pass->intermediate_size, SILU_MUL, team);
  share_weight(pass, &layer->down, pass->active, pass->intermediate_size, pass->hidden, hidden, ADD, team);
}

void decoder_layers(const DecoderPass *pass, const DecoderLayer *layers, int64_t num_layers) {
  Meeting meeting = {0};
#pragma omp parallel num_threads(pass->threads) if (pass->threads > 1)
  {
    Team team = join(&meeting);
    for (int64_t i = 0; i < num_layers; i++) share_layer(pass, layers + i, team);
  }
}

int32_t lanes(void) { return LANES; }

// How products are rounded, which the processor decides as it decides the lanes: where either differs, last bits may.
const char *arithmetic(void) {
#if defined(__AVX512BF16__)
  return "pairs of bfloat16";
#elif defined(__AVX512F__) || defined(__FMA__) || defined(__FP_FAST_FMAF)
  return "fused";
#else
  return "rounded twice";
#endif
}
