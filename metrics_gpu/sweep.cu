// The fused sweep on a GPU: saliency grids and bit masks to counts, without ever writing a full-size map.
//
// One launch for a batch, one block per (image, class) pair. The counts equal those of the canonical arithmetic (metrics
// specification 2 and 3): float32, horizontal before vertical, true division, nothing fused. Steps of a block:
//
// 1. Smallest and largest value of every grid row after horizontal interpolation.
// 2. Exact minimum and maximum. Rounded products with weights >= 0 and rounded sums are monotone in the two values they
//    join, so the ends of two grid rows bound every pixel of an output row; only rows whose bounds reach beyond what is
//    known already are computed.
// 3. Edges: for each threshold the smallest float32 that passes it. The normalised value rises with the pixel's value,
//    rounding included, so a search over the floats with the canonical subtraction, division and comparison finds it
//    once per pair, and no pixel needs a division.
// 4. A warp takes 32 neighbouring columns and walks down a segment of rows. A thread counts the run of pixels that
//    stay between the same two edges in registers, and adds it to its warp's own histogram when the run ends:
//    neighbouring pixels mostly share a bin, which is where plain shared-memory histograms queue up.
// 5. Sums of the histograms from above.
//
// Compiled at run time; needs no header. Threads per block: a multiple of 32, at most 32 * WARPS.

#define LEVELS 101
#define BINS (LEVELS + 1)   // bin b: the pixel passes b of the thresholds
#define WARPS 8
#define ROWS 512            // grid rows whose ends fit; of taller grids every output row is computed
#define MINMAX 0
#define MAX_ONLY 1

typedef unsigned int word;
typedef unsigned char byte;

struct Axis { const int* lo; const int* hi; const float* weight; int first; int end; };

static __device__ Axis pick(const int* cells, const float* weights, const int* seen, int table, int length)
{
    Axis axis;
    axis.lo = cells + (size_t)table * 2 * length;
    axis.hi = axis.lo + length;
    axis.weight = weights + (size_t)table * length;
    axis.first = seen[2 * table];
    axis.end = seen[2 * table + 1];
    return axis;
}

static __device__ float blend(float a, float b, float rest, float weight)
{
    return __fadd_rn(__fmul_rn(a, rest), __fmul_rn(b, weight));
}

static __device__ float across(const float* row, const Axis& columns, int x)
{
    const float weight = columns.weight[x];
    return blend(row[columns.lo[x]], row[columns.hi[x]], __fsub_rn(1.0f, weight), weight);
}

// Integers in the order of the floats, -0 just below +0; rounded products and sums keep that order too.
static __device__ int key_of(float value)
{
    const int bits = __float_as_int(value);
    return bits ^ ((bits >> 31) & 0x7fffffff);
}

static __device__ float value_of(int key)
{
    return __int_as_float(key ^ ((key >> 31) & 0x7fffffff));
}

static __device__ bool finite(float value)
{
    return (__float_as_int(value) & 0x7f800000) != 0x7f800000;
}

static __device__ bool passes(float value, float offset, float scale, float threshold)
{
    return __fdiv_rn(__fsub_rn(value, offset), scale) >= threshold;
}

// Key of the smallest value in low..high that passes, high + 1 if none does. Gallops from where exact numbers would
// have it, since the edge is a few roundings away.
static __device__ int edge_of(int low, int high, float offset, float scale, float threshold)
{
    const float guess = __fadd_rn(offset, __fmul_rn(threshold, scale));
    int key = finite(guess) ? key_of(guess) : high;
    key = min(max(key, low), high);
    word step = 1;
    if (passes(value_of(key), offset, scale, threshold)) {
        for (high = key;; step *= 2) {
            const word room = (word)high - (word)low;
            if (room == 0) return low;
            const int next = (int)((word)high - min(step, room));
            if (!passes(value_of(next), offset, scale, threshold)) { low = next; break; }
            high = next;
        }
    } else {
        for (low = key;; step *= 2) {
            const word room = (word)high - (word)low;
            if (room == 0) return high + 1;
            const int next = (int)((word)low + min(step, room));
            if (passes(value_of(next), offset, scale, threshold)) { high = next; break; }
            low = next;
        }
    }
    while ((word)high - (word)low > 1) {  // low fails, high passes
        const int middle = (int)((word)low + ((word)high - (word)low) / 2);
        if (passes(value_of(middle), offset, scale, threshold)) high = middle; else low = middle;
    }
    return high;
}

// Widens the block's extremes, kept as keys, by an output row; every thread of a warp calls it for the same row.
static __device__ void widen(const float* grid, int w, const Axis& rows, const Axis& columns, int y, int lane,
                             int* least, int* greatest, int* bad)
{
    const float weight = rows.weight[y], rest = __fsub_rn(1.0f, weight);
    const float* upper = grid + (size_t)rows.lo[y] * w;
    const float* lower = grid + (size_t)rows.hi[y] * w;
    int low = 0x7fffffff, high = (int)0x80000000;
    for (int x = columns.first + lane; x < columns.end; x += 32) {
        const float value = blend(across(upper, columns, x), across(lower, columns, x), rest, weight);
        if (!finite(value)) atomicMax(bad, 1);
        low = min(low, key_of(value));
        high = max(high, key_of(value));
    }
    atomicMin(least, low);
    atomicMax(greatest, high);
}

extern "C" __global__ void sweep(
    const float* saliency,     // [P, h, w]
    const word* masks,         // [P, height, stride], lowest bit first
    const int* tables,         // [P, 2], which axis table a pair uses (vertical, horizontal)
    const int* y_cells, const float* y_weights, const int* y_seen,   // [T, 2, height], [T, height], [T, 2]
    const int* x_cells, const float* x_weights, const int* x_seen,   // likewise over the width
    const float* thresholds,   // [101], rising
    int h, int w, int height, int width, int stride, int normalise,
    int* area, int* overlap,   // [P, 101]
    int* region, int* argmax,  // [P]
    byte* hit, byte* degenerate)
{
    __shared__ int row_least[ROWS], row_greatest[ROWS];
    __shared__ int edges[BINS + 1];
    __shared__ int inside[WARPS][BINS], outside[WARPS][BINS];
    __shared__ int least, greatest, bad, marked, found;

    const size_t pair = blockIdx.x;
    const int thread = threadIdx.x, threads = blockDim.x, lane = thread & 31, warp = thread >> 5, warps = threads >> 5;
    const float* grid = saliency + pair * h * w;
    const word* mask = masks + pair * height * stride;
    const Axis rows = pick(y_cells, y_weights, y_seen, tables[2 * pair], height);
    const Axis columns = pick(x_cells, x_weights, x_seen, tables[2 * pair + 1], width);
    const word valid = 0xffffffffu >> (32 * stride - width);
    const bool nothing = rows.first >= rows.end || columns.first >= columns.end;

    if (thread == 0) {
        least = found = 0x7fffffff;
        greatest = (int)0x80000000;
        bad = nothing;
        marked = 0;
    }
    for (int i = thread; i < WARPS * BINS; i += threads) (&inside[0][0])[i] = (&outside[0][0])[i] = 0;
    for (int r = thread; r < min(h, ROWS); r += threads) {
        row_least[r] = 0x7fffffff;
        row_greatest[r] = (int)0x80000000;
    }
    __syncthreads();

    int count = 0;
    for (int i = thread; i < height * stride; i += threads) {
        const word bits = mask[i];
        count += __popc((i + 1) % stride == 0 ? bits & valid : bits);
    }
    if (count) atomicAdd(&marked, count);

    if (!nothing && h <= ROWS) {
        for (int r = rows.lo[rows.first] + warp; r <= rows.hi[rows.end - 1]; r += warps) {
            int low = 0x7fffffff, high = (int)0x80000000;
            for (int x = columns.first + lane; x < columns.end; x += 32) {
                const int key = key_of(across(grid + (size_t)r * w, columns, x));
                low = min(low, key);
                high = max(high, key);
            }
            atomicMin(&row_least[r], low);
            atomicMax(&row_greatest[r], high);
        }
    }
    __syncthreads();
    if (!nothing) {
        for (int y = rows.first + warp; y < rows.end; y += warps) {
            bool needed = h > ROWS;
            if (h <= ROWS && lane == 0) {
                const float weight = rows.weight[y], rest = __fsub_rn(1.0f, weight);
                const int a = rows.lo[y], b = rows.hi[y];
                const float low = blend(value_of(row_least[a]), value_of(row_least[b]), rest, weight);
                const float high = blend(value_of(row_greatest[a]), value_of(row_greatest[b]), rest, weight);
                // Others may widen the extremes meanwhile: at worst a row is computed that adds nothing.
                needed = !finite(low) || !finite(high) || key_of(low) < atomicMin(&least, 0x7fffffff)
                    || key_of(high) > atomicMax(&greatest, (int)0x80000000);
            }
            if (__any_sync(0xffffffffu, needed)) widen(grid, w, rows, columns, y, lane, &least, &greatest, &bad);
        }
    }
    __syncthreads();

    const float minimum = bad ? 0.0f : value_of(least), maximum = bad ? 0.0f : value_of(greatest);
    const float span = __fsub_rn(maximum, minimum);
    const bool flat = bad || !(span > 0.0f) || !finite(span) || (normalise == MAX_ONLY && !(maximum > 0.0f));
    const float offset = normalise == MINMAX ? minimum : 0.0f;
    const float scale = normalise == MINMAX ? span : normalise == MAX_ONLY ? maximum : 1.0f;

    if (!flat) {
        // edges[b] is the first key of bin b: edges[0] below every pixel, edges[BINS] above.
        const int last = key_of(maximum);
        for (int k = thread; k < LEVELS; k += threads)
            edges[k + 1] = edge_of(key_of(minimum), last, offset, scale, thresholds[k]);
        if (thread == 0) { edges[0] = (int)0x80000000; edges[BINS] = 0x7fffffff; }
        __syncthreads();

        const float inverse = __fdiv_rn((float)(LEVELS - 1), __fmul_rn(scale, thresholds[LEVELS - 1]));
        const int groups = (columns.end + 31) / 32 - columns.first / 32;
        const int seen_rows = rows.end - rows.first;
        const int segments = max(1, min((4 * warps + groups - 1) / groups, (seen_rows + 15) / 16));
        const int length = (seen_rows + segments - 1) / segments;
        for (int task = warp; task < groups * segments; task += warps) {
            const int group = columns.first / 32 + task % groups, x = 32 * group + lane;
            const int top = rows.first + task / groups * length, bottom = min(top + length, rows.end);
            if (x < columns.first || x >= columns.end) continue;
            int bin = 0, low = 1, high = 0;   // an empty bin: the first pixel opens one
            int run = 0, run_inside = 0, at_upper = -1, at_lower = -1;
            float upper = 0.0f, lower = 0.0f;
            for (int y = top; y < bottom; y++) {
                if (rows.lo[y] != at_upper || rows.hi[y] != at_lower) {
                    at_upper = rows.lo[y];
                    at_lower = rows.hi[y];
                    upper = across(grid + (size_t)at_upper * w, columns, x);
                    lower = across(grid + (size_t)at_lower * w, columns, x);
                }
                const float weight = rows.weight[y];
                const float value = blend(upper, lower, __fsub_rn(1.0f, weight), weight);
                const int key = key_of(value);
                if (key < low || key >= high) {
                    if (run > run_inside) atomicAdd(&outside[warp][bin], run - run_inside);
                    if (run_inside) atomicAdd(&inside[warp][bin], run_inside);
                    run = run_inside = 0;
                    const float place = __fmul_rn(__fsub_rn(value, offset), inverse);  // only where to look first
                    bin = place > 0.0f ? (place < (float)LEVELS ? (int)place + 1 : LEVELS) : 0;
                    while (key >= edges[bin + 1]) bin++;
                    while (key < edges[bin]) bin--;
                    low = edges[bin];
                    high = edges[bin + 1];
                }
                if (value == maximum) atomicMin(&found, y * width + x);
                run++;
                run_inside += (mask[(size_t)y * stride + group] >> lane) & 1u;
            }
            if (run > run_inside) atomicAdd(&outside[warp][bin], run - run_inside);
            if (run_inside) atomicAdd(&inside[warp][bin], run_inside);
        }
    }
    __syncthreads();

    // Unseen pixels have the smallest value's bin, all pixels of a degenerate map the bin of 0.
    const float rest_value = flat ? 0.0f : __fdiv_rn(__fsub_rn(minimum, offset), scale);
    for (int b = thread; b < BINS; b += threads)
        for (int i = 1; i < warps; i++) {
            inside[0][b] += inside[i][b];
            outside[0][b] += outside[i][b];
        }
    __syncthreads();
    for (int k = thread; k < LEVELS; k += threads) {
        int seen = 0, seen_inside = 0, total = 0, total_inside = 0;
        for (int b = 0; b < BINS; b++) {
            const int in = inside[0][b], all = in + outside[0][b];
            seen += all;
            seen_inside += in;
            total += b > k ? all : 0;
            total_inside += b > k ? in : 0;
        }
        const bool rest_passes = rest_value >= thresholds[k];
        area[pair * LEVELS + k] = total + (rest_passes ? height * width - seen : 0);
        overlap[pair * LEVELS + k] = total_inside + (rest_passes ? marked - seen_inside : 0);
    }
    if (thread == 0) {
        const int first = flat ? 0 : found;
        region[pair] = marked;
        argmax[pair] = first;
        hit[pair] = !flat && ((mask[(size_t)(first / width) * stride + first % width / 32] >> (first % width % 32)) & 1u);
        degenerate[pair] = flat;
    }
}

// Rows of bytes, each 0 or not, to rows of bits: bool [rows, width] to words [rows, stride], lowest bit first.
extern "C" __global__ void pack_rows(const byte* flags, word* words, long long rows, int width, int stride)
{
    const long long index = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= rows * stride) return;
    const byte* source = flags + index / stride * width;
    const int first = 32 * (int)(index % stride), end = min(first + 32, width);
    word bits = 0;
    for (int x = first; x < end; x++) bits |= (word)(source[x] != 0) << (x - first);
    words[index] = bits;
}
