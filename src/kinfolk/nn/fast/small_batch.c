/* A stack of post-norm blocks over few tokens, in one call:

       x = norm(x + attend(x Wqkv' + b) Wo' + b)
       x = norm(x + gelu(x W1' + b) W2' + b)

   One short text meets every weight once, so that fetching them from memory is most of the work. They are read where
   torch keeps them, as (outputs, inputs): four rows side by side from their beginning to their end, while the next four
   are on their way. Each thread computes some columns of a product, then all wait for each other.

   inference_cache.py is the way in. Compiled once for AVX-512 and once for AVX2; all widths are multiples of BLOCK. */

#include <immintrin.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>

#ifdef __AVX512F__
#define LANES 16
#define TALL 6 /* rows of a tile: 6 x 4 sums, 4 weights and 1 input take 29 of 32 registers */
#else
#define LANES 8
#define TALL 2 /* 2 x 4 sums, 4 weights and 1 input take 13 of 16 */
#endif
#define WIDE 4    /* columns of a tile */
#define DEPTH 768 /* inputs of a tile: its four rows of weights stay in the nearest cache for the next tile */
#define BLOCK 16
#define ROUNDED(count) (((count) + BLOCK - 1) / BLOCK * BLOCK)

typedef float vector __attribute__((vector_size(4 * LANES)));
typedef int whole __attribute__((vector_size(4 * LANES)));
typedef float loose __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

static inline vector load(const float *from) { return *(const loose *)from; }
static inline void store(float *to, vector what) { *(loose *)to = what; }
static inline vector all(float number) { return number - (vector){0}; }

/* The larger of each two; `a` where it is no number. */
static inline vector larger(vector a, vector b) {
    whole second = b > a;
    return (vector)(((whole)b & second) | ((whole)a & ~second));
}

static inline float total(vector v) {
    float sum = 0;
    for (int lane = 0; lane < LANES; lane++) sum += v[lane];
    return sum;
}

/* The totals of four vectors at once. */
static inline __m128 totals(vector a, vector b, vector c, vector d) {
#ifdef __AVX512F__
    __m512 ab = _mm512_unpacklo_ps(a, b) + _mm512_unpackhi_ps(a, b);
    __m512 cd = _mm512_unpacklo_ps(c, d) + _mm512_unpackhi_ps(c, d);
    __m512 abcd = _mm512_shuffle_ps(ab, cd, 0x44) + _mm512_shuffle_ps(ab, cd, 0xEE);
    __m256 upper = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(abcd), 1));
    __m256 half = _mm512_castps512_ps256(abcd) + upper;
#else
    __m256 ab = _mm256_unpacklo_ps(a, b) + _mm256_unpackhi_ps(a, b);
    __m256 cd = _mm256_unpacklo_ps(c, d) + _mm256_unpackhi_ps(c, d);
    __m256 half = _mm256_shuffle_ps(ab, cd, 0x44) + _mm256_shuffle_ps(ab, cd, 0xEE);
#endif
    return _mm256_castps256_ps128(half) + _mm256_extractf128_ps(half, 1);
}

/* e^x = 2^n e^r, |r| <= ln 2 / 2, with the polynomial of Cephes; x above 88 does not occur here. */
static inline vector exponential(vector x) {
    x = larger(x, all(-87));
    vector n = (x * 1.44269504f + 12582912) - 12582912; /* rounds: above 2^23 floats have no fraction */
    vector r = x - n * 0.693359375f + n * 2.12194440e-4f;
    vector p = 1.9875691500e-4f * r + 1.3981999507e-3f;
    p = ((p * r + 8.3334519073e-3f) * r + 4.1665795894e-2f) * r + 1.6666665459e-1f;
    p = (p * r + 5.0000001201e-1f) * r * r + r + 1;
    return p * (vector)((__builtin_convertvector(n, whole) + 127) << 23);
}

/* x Phi(x), with the error function of Abramowitz and Stegun 7.1.26 (within 1.5e-7). */
static inline vector gelu(vector x) {
    vector size = larger(x, -x), z = size * 0.70710678f, t = 1 / (1 + 0.3275911f * z);
    vector p = ((1.061405429f * t - 1.453152027f) * t + 1.421413741f) * t - 0.284496736f;
    p = (p * t + 0.254829592f) * t;
    return larger(x, all(0)) - size * 0.5f * p * exponential(-z * z);
}

/* out (tall, 4) += x (tall, depth) w' (depth, 4). `ahead`: how far behind these weights lie those to be fetched next. */
static inline __attribute__((always_inline)) void tile(const int tall, const float *x, long x_step, const float *w,
                                                       long w_step, int depth, float *out, long out_step, long ahead) {
    vector sums[TALL][WIDE] = {{{0}}};
    for (int k = 0; k < depth; k += LANES) {
        vector weight[WIDE];
        for (int column = 0; column < WIDE; column++) {
            weight[column] = load(w + column * w_step + k);
            if (ahead) __builtin_prefetch(w + ahead + column * w_step + k);
        }
        for (int row = 0; row < tall; row++) {
            vector input = load(x + row * x_step + k);
            for (int column = 0; column < WIDE; column++) sums[row][column] += input * weight[column];
        }
    }
    for (int row = 0; row < tall; row++) {
        vector *sum = sums[row];
        float *place = out + row * out_step;
        _mm_storeu_ps(place, _mm_loadu_ps(place) + totals(sum[0], sum[1], sum[2], sum[3]));
    }
}

/* out (rows, from..to) += x (rows, inputs) w' (inputs, from..to), in tiles of nearly equal height. */
static void multiply(const float *x, long x_step, int rows, const float *w, long w_step, int inputs, float *out,
                     long out_step, int from, int to) {
    int tiles = (rows + TALL - 1) / TALL;
    for (int start = 0; start < inputs; start += DEPTH) {
        int depth = inputs - start < DEPTH ? inputs - start : DEPTH;
        for (int column = from; column < to; column += WIDE) {
            for (int number = 0; number < tiles; number++) {
                int row = rows * number / tiles, tall = rows * (number + 1) / tiles - row;
                long ahead = number == 0 && column + WIDE < to ? WIDE * w_step : 0;
                const float *inputs_at = x + row * x_step + start, *weights_at = w + column * w_step + start;
                float *out_at = out + row * out_step + column;
#define TILE(height)                                                                                \
    case height:                                                                                    \
        tile(height, inputs_at, x_step, weights_at, w_step, depth, out_at, out_step, ahead); \
        break;
                switch (tall) {
                    TILE(1)
                    TILE(2)
#if TALL == 6
                    TILE(3)
                    TILE(4)
                    TILE(5)
                    TILE(6)
#endif
                }
            }
        }
    }
}

typedef struct {
    int from, to;
} Span;

/* A thread's share of `count` things, in whole blocks. */
static Span share(int count, int block, int thread, int threads) {
    int blocks = count / block;
    return (Span){blocks * thread / threads * block, blocks * (thread + 1) / threads * block};
}

/* Some columns of out (rows, outputs) = x w' + bias (+ kept). */
static void linear(const float *x, int rows, int inputs, const float *w, const float *bias, const float *kept,
                   float *out, int outputs, Span columns) {
    for (int row = 0; row < rows; row++) {
        for (int column = columns.from; column < columns.to; column += LANES) {
            vector start = load(bias + column);
            if (kept) start += load(kept + row * outputs + column);
            store(out + row * outputs + column, start);
        }
    }
    multiply(x, inputs, rows, w, inputs, inputs, out, outputs, columns.from, columns.to);
}

/* out (length, head_width) = softmax(q k' / sqrt(head_width)) v: one head of one sequence. Scores are computed in fours,
   so that up to three rows behind the last key are read; what comes of them is not used. */
static void attend(const float *q, const float *k, const float *v, long step, int length, int head_width,
                   float *scores, float *out, long out_step) {
    int padded = ROUNDED(length);
    float scale = 1 / sqrtf(head_width);
    for (int place = 0; place < length * padded; place++) scores[place] = 0;
    multiply(q, step, length, k, step, head_width, scores, padded, 0, (length + WIDE - 1) / WIDE * WIDE);
    for (int row = 0; row < length; row++) {
        float *score = scores + row * padded, top = score[0];
        for (int place = 1; place < length; place++) top = score[place] > top ? score[place] : top;
        for (int place = length; place < padded; place++) score[place] = -INFINITY;
        vector sum = all(0);
        for (int place = 0; place < padded; place += LANES) {
            vector weight = exponential((load(score + place) - top) * scale);
            store(score + place, weight);
            sum += weight;
        }
        float share = 1 / total(sum);
        for (int column = 0; column < head_width; column += LANES) {
            vector mixed = all(0);
            for (int place = 0; place < length; place++) mixed += load(v + place * step + column) * score[place];
            store(out + row * out_step + column, mixed * share);
        }
    }
}

/* x = (x - mean) / sqrt(variance + epsilon) * scale + shift, row by row. */
static void norm(float *x, Span rows, int width, const float *scale, const float *shift, float epsilon) {
    for (float *row = x + rows.from * width; row < x + rows.to * width; row += width) {
        vector sum = all(0), squares = all(0);
        for (int place = 0; place < width; place += LANES) sum += load(row + place);
        float mean = total(sum) / width;
        for (int place = 0; place < width; place += LANES) {
            vector apart = load(row + place) - mean;
            squares += apart * apart;
        }
        float spread = 1 / sqrtf(total(squares) / width + epsilon);
        for (int place = 0; place < width; place += LANES)
            store(row + place, (load(row + place) - mean) * spread * load(scale + place) + load(shift + place));
    }
}

typedef struct {
    const float *qkv, *qkv_bias, *output, *output_bias, *attention_scale, *attention_shift;
    const float *widen, *widen_bias, *narrow, *narrow_bias, *last_scale, *last_shift;
} Layer;

typedef struct {
    int sequences, length, width, heads, inner_width;
    float epsilon;
    float *x, *qkv, *mixed, *middle, *inner, *scores; /* scores: room for each thread */
} Batch;

/* One layer, as one of several threads. */
static void apply(const Layer *layer, const Batch *at, int thread, int threads) {
    int rows = at->sequences * at->length, width = at->width, inner_width = at->inner_width;
    int head_width = width / at->heads, padded = ROUNDED(at->length);
    Span wide = share(3 * width, BLOCK, thread, threads), narrow = share(width, BLOCK, thread, threads);
    Span inner = share(inner_width, BLOCK, thread, threads), own = share(rows, 1, thread, threads);
    Span heads = share(at->sequences * at->heads, 1, thread, threads);

    linear(at->x, rows, width, layer->qkv, layer->qkv_bias, NULL, at->qkv, 3 * width, wide);
#pragma omp barrier
    for (int head = heads.from; head < heads.to; head++) {
        int first = head / at->heads * at->length, column = head % at->heads * head_width;
        const float *q = at->qkv + first * 3 * width + column;
        float *scores = at->scores + thread * at->length * padded, *out = at->mixed + first * width + column;
        attend(q, q + width, q + 2 * width, 3 * width, at->length, head_width, scores, out, width);
    }
#pragma omp barrier
    linear(at->mixed, rows, width, layer->output, layer->output_bias, at->x, at->middle, width, narrow);
#pragma omp barrier
    norm(at->middle, own, width, layer->attention_scale, layer->attention_shift, at->epsilon);
#pragma omp barrier
    linear(at->middle, rows, width, layer->widen, layer->widen_bias, NULL, at->inner, inner_width, inner);
    for (int row = 0; row < rows; row++) {
        float *numbers = at->inner + row * inner_width;
        for (int column = inner.from; column < inner.to; column += LANES)
            store(numbers + column, gelu(load(numbers + column)));
    }
#pragma omp barrier
    linear(at->inner, rows, inner_width, layer->narrow, layer->narrow_bias, at->middle, at->x, width, narrow);
#pragma omp barrier
    norm(at->x, own, width, layer->last_scale, layer->last_shift, at->epsilon);
#pragma omp barrier
}

/* x (sequences * length, width) becomes what comes out of the last layer. Returns 1 where memory is lacking, else 0.
   The number in its name goes up when its arguments change: a library of another version must not be called. */
int small_batch_1(const Layer *layers, int depth, int sequences, int length, int width, int heads, int inner_width,
                 float epsilon, int threads, float *x) {
    long rows = (long)sequences * length, spare = WIDE - 1; /* rows that `attend` reads behind the last */
    long room = (rows + spare) * 3 * width + rows * (2 * width + inner_width) + threads * length * ROUNDED(length);
    float *qkv = aligned_alloc(64, room * sizeof(float));
    if (!qkv) return 1;
    float *mixed = qkv + (rows + spare) * 3 * width, *middle = mixed + rows * width, *inner = middle + rows * width;
    Batch batch = {sequences, length, width,  heads,  inner_width, epsilon,
                   x,         qkv,    mixed, middle, inner,       inner + rows * inner_width};
#pragma omp parallel num_threads(threads)
    for (const Layer *layer = layers; layer < layers + depth; layer++)
        apply(layer, &batch, omp_get_thread_num(), omp_get_num_threads());
    free(qkv);
    return 0;
}
