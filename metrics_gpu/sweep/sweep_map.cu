// What the sweep's kernel does to one map: interpolation, extremes, the first maximum, and the edges of the thresholds.
// All functions are called by whole blocks or warps of `sweep` (sweep.cu), which says what they are for.

#define LEVELS 101
#define LANES 32
#define THREADS 256
#define ROWS 512            // grid rows whose ends fit; of taller grids every output row is computed
#define MINMAX 0
#define MAX_ONLY 1
#define ALL 0xffffffffu
#define NONE 0x7fffffff     // above every row and every key of a number
#define LOWEST ((int)0x80000000)
#define ROLLED _Pragma("unroll 1")   // unrolled, loops that are not step 5 only take registers and instruction cache

typedef unsigned int word;
typedef unsigned char byte;

struct alignas(8) Share { float rest, weight; };   // 1 - weight and weight

struct Axis {
    const int* cells;     // [2, length]: lower cell, upper cell
    const Share* share;   // [length]
    int length, first, end;
    __device__ int lo(int i) const { return cells[i]; }
    __device__ int hi(int i) const { return cells[length + i]; }
};

static __device__ Axis pick(const int* cells, const float* shares, const int* seen, int table, int length)
{
    return {cells + (size_t)table * 2 * length, (const Share*)shares + (size_t)table * length, length,
            seen[2 * table], seen[2 * table + 1]};
}

static __device__ float blend(float a, float b, const Share& share)
{
    return __fadd_rn(__fmul_rn(a, share.rest), __fmul_rn(b, share.weight));
}

static __device__ float across(const float* row, const Axis& columns, int x)
{
    return blend(row[columns.lo(x)], row[columns.hi(x)], columns.share[x]);
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

static __device__ int least_of_warp(int value)
{
    for (int step = 16; step > 0; step /= 2) value = min(value, __shfl_xor_sync(ALL, value, step));
    return value;
}

static __device__ int greatest_of_warp(int value)
{
    for (int step = 16; step > 0; step /= 2) value = max(value, __shfl_xor_sync(ALL, value, step));
    return value;
}

static __device__ int sum_of_warp(int value)
{
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(ALL, value, step);
    return value;
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

// What the block knows of its map: keys of the extremes, whether a pixel is not finite, and the ends of the grid rows.
struct Known {
    int least, greatest, bad;
    int lowest_bound, highest_bound, lowest_row, highest_row;
    int row_least[ROWS], row_greatest[ROWS];
};

// A map's normalisation: (value - offset) / scale; flat where there is none.
struct Scaling {
    float minimum, maximum, offset, scale;
    bool flat;
    static __device__ Scaling of(const Known& known, int normalise)
    {
        const float minimum = known.bad ? 0.0f : value_of(known.least);
        const float maximum = known.bad ? 0.0f : value_of(known.greatest);
        const float span = __fsub_rn(maximum, minimum);
        const bool flat = known.bad || !(span > 0.0f) || !finite(span) || (normalise == MAX_ONLY && !(maximum > 0.0f));
        if (normalise == MINMAX) return {minimum, maximum, minimum, span, flat};
        return {minimum, maximum, 0.0f, normalise == MAX_ONLY ? maximum : 1.0f, flat};
    }
};

// Bounds of an output row; false where they are not finite, which says nothing about its pixels.
static __device__ bool bounds(const Known& known, const Axis& rows, int y, float* low, float* high)
{
    const Share share = rows.share[y];
    *low = blend(value_of(known.row_least[rows.lo(y)]), value_of(known.row_least[rows.hi(y)]), share);
    *high = blend(value_of(known.row_greatest[rows.lo(y)]), value_of(known.row_greatest[rows.hi(y)]), share);
    return finite(*low) && finite(*high);
}

// Widens the extremes by the pixels first, first + 32, .. below end of an output row; called by whole warps.
static __device__ void widen(Known* known, const float* grid, int w, const Axis& rows, const Axis& columns, int y,
                             int first, int end, int lane)
{
    const Share share = rows.share[y];
    const float* upper = grid + (size_t)rows.lo(y) * w;
    const float* lower = grid + (size_t)rows.hi(y) * w;
    int low = NONE, high = LOWEST;
    bool bad = false;
    ROLLED for (int x = first; x < end; x += LANES) {
        const float value = blend(across(upper, columns, x), across(lower, columns, x), share);
        bad = bad || !finite(value);
        low = min(low, key_of(value));
        high = max(high, key_of(value));
    }
    low = least_of_warp(low);
    high = greatest_of_warp(high);
    if (bad) atomicMax(&known->bad, 1);
    if (lane == 0) {
        atomicMin(&known->least, low);
        atomicMax(&known->greatest, high);
    }
}

// Steps 1 and 2; the block's threads meet at its end. Inlined, it would take registers from step 5.
static __device__ __noinline__ void find_extremes(Known* known, const float* grid, int h, int w, const Axis& rows,
                                     const Axis& columns)
{
    const int thread = threadIdx.x, threads = blockDim.x, lane = thread % LANES;
    const int warp = thread / LANES, warps = threads / LANES;
    const int left = columns.first + lane;
    int lowest_row = NONE, highest_row = NONE;
    if (h <= ROWS) {
        ROLLED for (int r = rows.lo(rows.first) + warp; r <= rows.hi(rows.end - 1); r += warps) {
            int low = NONE, high = LOWEST;
            ROLLED for (int x = left; x < columns.end; x += LANES) {
                const int key = key_of(across(grid + (size_t)r * w, columns, x));
                low = min(low, key);
                high = max(high, key);
            }
            low = least_of_warp(low);
            high = greatest_of_warp(high);
            if (lane == 0) {
                known->row_least[r] = low;
                known->row_greatest[r] = high;
            }
        }
        __syncthreads();
        float low, high;
        int lowest = NONE, highest = LOWEST;
        ROLLED for (int y = rows.first + thread; y < rows.end; y += threads) {
            if (!bounds(*known, rows, y, &low, &high)) continue;
            lowest = min(lowest, key_of(low));
            highest = max(highest, key_of(high));
        }
        lowest = least_of_warp(lowest);
        highest = greatest_of_warp(highest);
        if (lane == 0) {
            atomicMin(&known->lowest_bound, lowest);
            atomicMax(&known->highest_bound, highest);
        }
        __syncthreads();
        ROLLED for (int y = rows.first + thread; y < rows.end; y += threads) {
            if (!bounds(*known, rows, y, &low, &high)) continue;
            if (lowest_row == NONE && key_of(low) == known->lowest_bound) lowest_row = y;
            if (highest_row == NONE && key_of(high) == known->highest_bound) highest_row = y;
        }
        lowest_row = least_of_warp(lowest_row);
        highest_row = least_of_warp(highest_row);
        if (lane == 0) {
            atomicMin(&known->lowest_row, lowest_row);
            atomicMin(&known->highest_row, highest_row);
        }
        __syncthreads();
        lowest_row = known->lowest_row;
        highest_row = known->highest_row;
        const int groups = (columns.end - columns.first + LANES - 1) / LANES;
        ROLLED for (int task = warp; task < 2 * groups; task += warps) {
            const int y = task % 2 ? highest_row : lowest_row, x = left + task / 2 * LANES;
            if (y != NONE) widen(known, grid, w, rows, columns, y, x, min(x + 1, columns.end), lane);
        }
        __syncthreads();
    }
    const int least = known->least, greatest = known->greatest;
    __syncthreads();
    ROLLED for (int top = rows.first + warp * LANES; top < rows.end; top += threads) {
        const int y = top + lane;
        bool needed = y < rows.end && y != lowest_row && y != highest_row;
        float low, high;
        if (needed && h <= ROWS && bounds(*known, rows, y, &low, &high))
            needed = key_of(low) < least || key_of(high) > greatest;
        for (word left_over = __ballot_sync(ALL, needed); left_over; left_over &= left_over - 1)
            widen(known, grid, w, rows, columns, top + __ffs((int)left_over) - 1, left, columns.end, lane);
    }
    __syncthreads();
}

// Step 3: lowers `found` to the index of the first pixel that equals the maximum.
static __device__ void find_maximum(const Known& known, float maximum, const float* grid, int h, int w, int width,
                                    const Axis& rows, const Axis& columns, int* found)
{
    const int lane = threadIdx.x % LANES;
    ROLLED for (int top = rows.first + (int)threadIdx.x - lane; top < rows.end; top += blockDim.x) {
        const int own = top + lane;
        bool possible = own < rows.end;
        float low, high;
        if (possible && h <= ROWS && bounds(known, rows, own, &low, &high)) possible = high >= maximum;
        word left_over = __ballot_sync(ALL, possible);
        int first = NONE;
        while (left_over && first == NONE) {
            const int y = top + __ffs((int)left_over) - 1;
            left_over &= left_over - 1;
            const Share share = rows.share[y];
            const float* upper = grid + (size_t)rows.lo(y) * w;
            const float* lower = grid + (size_t)rows.hi(y) * w;
            ROLLED for (int x = columns.first + lane; x < columns.end; x += LANES) {
                const float value = blend(across(upper, columns, x), across(lower, columns, x), share);
                if (value == maximum && first == NONE) first = y * width + x;
            }
            first = least_of_warp(first);
        }
        if (lane == 0 && first != NONE) atomicMin(found, first);
    }
}
