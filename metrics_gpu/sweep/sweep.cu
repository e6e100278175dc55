// The fused sweep on a GPU: saliency grids and bit masks to counts, without ever writing a full-size map.
//
// One launch for a batch, one block per (image, class) pair. The counts equal those of the canonical arithmetic
// (docs/metrics.md §2, §3): float32, horizontal before vertical, true division, nothing fused. A block's steps:
//
// 1. Smallest and largest value of every grid row after horizontal interpolation.
// 2. Exact minimum and maximum. Rounded products with weights >= 0 and rounded sums are monotone in the two values they
//    join, so the ends of two grid rows bound every pixel of an output row. The two rows with the widest bounds are
//    computed, then those whose bounds reach beyond what these hold: a handful of rows for most maps.
// 3. The first pixel that holds the maximum, in the rows whose bounds admit it.
// 4. Edges: for each threshold the smallest float32 that passes it. The normalised value rises with the pixel's value,
//    rounding included, so a search over the floats with the canonical subtraction, division and comparison finds it
//    once per pair, and no pixel needs a division.
// 5. Counts. A product estimates a pixel's value in steps of the thresholds, good to a hundredth of a step: all
//    thresholds below the nearest one are passed, all above are not, and the nearest one's edge decides. Every lane has
//    counters of its own, one per bin and all in one memory bank, so that neighbouring pixels, which mostly share a
//    bin, never queue. A counter holds the pixels in its lower and those inside the region in its upper 16 bits. Rows
//    come in runs between the same two grid rows: those that are equal are counted once, and a band, 16 rows whose
//    weights are the odd 32nds as between the rows of a 14 x 14 grid on 224 x 224, needs no table of weights.
// 6. Sums of the counters from above.
//
// Compiled at run time; needs no header. Threads per block: a multiple of 32, at most THREADS. No architecture spills
// registers; what nvcc -Xptxas -v says of each is held by tests/cpu/metrics_gpu/test_sweep_build.py.

#include "sweep_map.cu"   // put in its place by gpu.source, as run-time compilation has no folder to look in

#define BINS (LEVELS + 1)   // bin b: the pixel passes b of the thresholds
#define RUN 16              // rows of a run, at most
#define EQUAL 1             // of a run: all rows have the same weight
#define BAND 2              // of a run: RUN rows, the weights are 1/32, 3/32, .., 31/32
#define INSIDE 65536u       // one pixel in a counter's upper half
#define MOST 65535          // what a half holds

// Blocks on a multiprocessor: as many as its shared memory holds, at 31,956 bytes each, and its registers without spills.
#if __CUDA_ARCH__ == 900 && __CUDACC_VER_MAJOR__ >= 13
#define BLOCKS 6            // 40 registers; with 32, for a seventh, some are spilled
#elif __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200
#define BLOCKS 5            // 48 registers; with 40, for six, up to 60 bytes are spilled, on 9.0 by CUDA 12
#elif __CUDA_ARCH__ == 800 || __CUDA_ARCH__ == 870
#define BLOCKS 4            // 64 registers; with 48, for five, 16 bytes are spilled
#else
#define BLOCKS 3            // 100 kB of shared memory (8.6, 8.9, 12.x) hold no more
#endif

// What the lanes of all warps count in, every lane in a memory bank of its own, and the edges, copied for each lane.
struct Banks {
    word counters[BINS * LANES];
    float edges[LEVELS * LANES];
};

#define ROW (sizeof(word) * LANES)   // bytes from one bin's counters to the next one's
#define EDGES (ROW * BINS)           // bytes from a counter to the edge of its threshold

// Rows between the same two grid rows.
struct alignas(16) Run {
    int first;
    short rows, kind;   // at most RUN; 0, EQUAL or BAND
    int lo, hi;         // the grid rows
};

// Counts pixels of one value, by an estimate of its place among the thresholds.
static __device__ void estimate(Banks& bank, int lane, float value, float offset, float inverse, word pixels)
{
    const float place = __saturatef(__fmul_rn(__fsub_rn(value, offset), inverse));
    // In [2^16, 2^17) a float's last bit is worth 1/128: the last seven bits are the fraction behind the number of the
    // nearest threshold, which without them is a distance in bytes.
    const word sum = __float_as_int(__fmaf_rn(place, LEVELS - 1, 65536.5f));
    byte* counter = (byte*)&bank + ((sum & 0x3f80u) | (word)(sizeof(word) * lane));
    if (value >= *(const float*)(counter + EDGES)) counter += ROW;
    atomicAdd((word*)counter, pixels);
}

// The same by the edges alone.
static __device__ void search(Banks& bank, int lane, float value, word pixels)
{
    int low = 0, high = LEVELS;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (value >= bank.edges[middle * LANES + lane]) low = middle + 1; else high = middle;
    }
    atomicAdd(&bank.counters[low * LANES + lane], pixels);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) sweep(
    const float* __restrict__ saliency,     // [P, h, w]
    const word* __restrict__ masks,         // [P, height, stride], lowest bit first
    const int* __restrict__ tables,         // the axis tables of a pair (vertical, horizontal): [P, 2], or [2] for all
    int step,                               // accordingly 2 or 0
    const int* __restrict__ y_cells,        // [T, 2, height], see Axis
    const float* __restrict__ y_shares,     // [T, height, 2], see Share
    const int* __restrict__ y_seen,         // [T, 2]: first seen pixel, and the one behind the last
    const int* __restrict__ y_runs,         // [T, runs, 4], see Run
    int runs,
    const int* __restrict__ x_cells,        // cells, shares and seen pixels likewise over the width
    const float* __restrict__ x_shares,
    const int* __restrict__ x_seen,
    const float* __restrict__ thresholds,   // [101], rising
    int h, int w, int height, int width, int stride, int normalise,
    int* __restrict__ area, int* __restrict__ overlap,   // [P, 101]
    int* __restrict__ region, int* __restrict__ argmax,  // [P]
    byte* __restrict__ hit, byte* __restrict__ degenerate)
{
    __shared__ Known known;
    __shared__ Banks bank;
    __shared__ int totals[2][BINS];   // all pixels, those inside the region
    __shared__ int marked, found;

    const size_t pair = blockIdx.x;   // below, 32-bit products: 64-bit ones cost several instructions each
    const int thread = threadIdx.x, threads = blockDim.x, lane = thread % LANES;
    const int warp = thread / LANES, warps = threads / LANES;
    const float* grid = saliency + pair * (word)(h * w);
    const word* mask = masks + pair * (word)(height * stride);
    const Axis rows = pick(y_cells, y_shares, y_seen, tables[step * pair], height);
    const Axis columns = pick(x_cells, x_shares, x_seen, tables[step * pair + 1], width);
    const bool nothing = rows.first >= rows.end || columns.first >= columns.end;

    if (thread == 0) {
        known.least = known.lowest_bound = known.lowest_row = known.highest_row = found = NONE;
        known.greatest = known.highest_bound = LOWEST;
        known.bad = nothing;
        marked = 0;
    }
    ROLLED for (int i = thread; i < BINS * LANES; i += threads) bank.counters[i] = 0;
    ROLLED for (int b = thread; b < BINS; b += threads) totals[0][b] = totals[1][b] = 0;
    __syncthreads();

    const word valid = ALL >> (32 * stride - width);   // of the last word of a row
    int count = 0;
    const int skip = threads % stride;
    ROLLED for (int i = thread, column = thread % stride; i < height * stride; i += threads) {
        count += __popc(column == stride - 1 ? mask[i] & valid : mask[i]);
        column += column + skip < stride ? skip : skip - stride;
    }
    count = sum_of_warp(count);
    if (lane == 0) atomicAdd(&marked, count);
    if (nothing) __syncthreads(); else find_extremes(&known, grid, h, w, rows, columns);

    if (const Scaling map = Scaling::of(known, normalise); !map.flat) {
        const float offset = map.offset, scale = map.scale;
        find_maximum(known, map.maximum, grid, h, w, width, rows, columns, &found);
        const int last = key_of(map.maximum);
        ROLLED for (int k = thread; k < LEVELS; k += threads) {
            const int key = edge_of(key_of(map.minimum), last, offset, scale, thresholds[k]);
            const float edge = key > last ? __int_as_float(0x7f800000) : value_of(key);
            ROLLED for (int i = 0; i < LANES; i++) bank.edges[k * LANES + (i + k) % LANES] = edge;
        }
        __syncthreads();

        // The estimate needs numbers that neither overflow nor lose their digits; a search needs none.
        const float reach = __fmul_rn(scale, thresholds[LEVELS - 1]), inverse = __fdiv_rn(1.0f, reach);
        const bool quick = finite(reach) && finite(inverse) && thresholds[LEVELS - 1] >= 1.17549435e-38f;
        const int first_group = columns.first / LANES, groups = (columns.end + LANES - 1) / LANES - first_group;
        const int at_once = max(1, MOST / RUN / groups);   // runs until a counter could be full
        const auto count = [&](float value, word pixels) { estimate(bank, lane, value, offset, inverse, pixels); };
        const Run* run_table = (const Run*)y_runs + (word)(tables[step * pair] * runs);
        ROLLED for (int from = 0; from < runs; from += at_once) {
            const int to = min(from + at_once, runs), length = (to - from + warps - 1) / warps;
            const int top = from + warp * length, bottom = min(top + length, to);
            ROLLED for (int group = first_group; group < first_group + groups; group++) {
                const int x = min(max(LANES * group + lane, columns.first), columns.end - 1);
                const word one = x == LANES * group + lane;   // the other lanes count nothing
                const word left = columns.lo(x), right = columns.hi(x);
                const Share share = columns.share[x];
                ROLLED for (int i = top; i < bottom; i++) {
                    const Run run = run_table[i];
                    const word top_row = run.lo * w, next_row = run.hi * w;
                    const float upper = blend(grid[top_row + left], grid[top_row + right], share);
                    const float lower = blend(grid[next_row + left], grid[next_row + right], share);
                    // Lane r has the mask of row r. Most bands lie outside the region and need none.
                    const word own_row = lane < run.rows ? mask[(word)((run.first + lane) * stride + group)] : 0;
                    const auto pixel = [=](int r) {
                        return __shfl_sync(ALL, own_row, r) >> lane & 1 ? one * (INSIDE + 1) : one;
                    };
                    if (run.kind == BAND && quick && !__ballot_sync(ALL, own_row)) {
                        #pragma unroll
                        for (int r = 0; r < RUN; r++) {
                            const float weight = (2 * r + 1) / (2.0f * RUN);
                            count(blend(upper, lower, {1.0f - weight, weight}), one);
                        }
                    } else if (run.kind == EQUAL) {
                        word pixels = 0;
                        ROLLED for (int r = 0; r < run.rows; r++) pixels += pixel(r);
                        const float value = blend(upper, lower, rows.share[run.first]);
                        if (quick) count(value, pixels); else search(bank, lane, value, pixels);
                    } else if (quick) {
                        #pragma unroll 4
                        for (int r = 0; r < run.rows; r++)
                            count(blend(upper, lower, rows.share[run.first + r]), pixel(r));
                    } else {
                        ROLLED for (int r = 0; r < run.rows; r++)
                            search(bank, lane, blend(upper, lower, rows.share[run.first + r]), pixel(r));
                    }
                }
            }
            __syncthreads();
            ROLLED for (int b = thread; b < BINS; b += threads) {
                int all = 0, inside = 0;
                for (int i = 0; i < LANES; i++) {
                    const int place = b * LANES + (i + b) % LANES;   // another bank for each thread
                    all += (int)(bank.counters[place] & MOST);
                    inside += (int)(bank.counters[place] / INSIDE);
                    bank.counters[place] = 0;
                }
                totals[0][b] += all;
                totals[1][b] += inside;
            }
            __syncthreads();
        }
    }

    // Unseen pixels have the smallest value's bin, all pixels of a degenerate map the bin of 0.
    const Scaling map = Scaling::of(known, normalise);   // again, as step 5 needs the registers
    const float rest_value = map.flat ? 0.0f : __fdiv_rn(__fsub_rn(map.minimum, map.offset), map.scale);
    for (int which = warp; which < 2; which += warps) {
        int* counts = (which ? overlap : area) + pair * LEVELS;
        int seen = 0;
        ROLLED for (int b = lane; b < BINS; b += LANES) seen += totals[which][b];
        const int unseen = (which ? marked : height * width) - sum_of_warp(seen);
        int above = 0;
        ROLLED for (int start = LEVELS / LANES * LANES; start >= 0; start -= LANES) {
            const int k = start + lane;
            int sum = k < LEVELS ? totals[which][k + 1] : 0;
            for (int gap = 1; gap < LANES; gap *= 2) {
                const int other = __shfl_down_sync(ALL, sum, gap);
                if (lane + gap < LANES) sum += other;
            }
            sum += above;
            above = __shfl_sync(ALL, sum, 0);
            if (k < LEVELS) counts[k] = sum + (rest_value >= thresholds[k] ? unseen : 0);
        }
    }
    if (thread == 0) {
        const int first = map.flat ? 0 : found;
        region[pair] = marked;
        argmax[pair] = first;
        const int y = first / width, x = first % width;
        hit[pair] = !map.flat && ((mask[(size_t)y * stride + x / 32] >> (x % 32)) & 1u);
        degenerate[pair] = map.flat;
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
    ROLLED for (int x = first; x < end; x++) bits |= (word)(source[x] != 0) << (x - first);
    words[index] = bits;
}

// The map of each pair: the mean of the maps in its list, summed in float64 in the list's order and rounded once; a list
// of one is copied.
extern "C" __global__ void mean_maps(
    const float* __restrict__ saliency,   // [M, cells]
    const int* __restrict__ starts,       // [P + 1]: where the list of each pair begins, and the end
    const int* __restrict__ places,       // the lists: numbers of maps among the M
    int cells, long long total,           // total: P * cells
    float* __restrict__ means)            // [P, cells]
{
    const long long index = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= total) return;
    const int pair = (int)(index / cells), first = starts[pair], end = starts[pair + 1];
    const float* column = saliency + index % cells;
    if (end - first == 1) {
        means[index] = column[(size_t)places[first] * cells];
        return;
    }
    double sum = 0;
    ROLLED for (int i = first; i < end; i++) sum = __dadd_rn(sum, (double)column[(size_t)places[i] * cells]);
    means[index] = __double2float_rn(__ddiv_rn(sum, (double)(end - first)));
}
