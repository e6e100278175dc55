// The sweep's kernels as plain functions; with SHIM_MAIN a program that runs them on made-up data for a race detector.
#include "cuda_shim.h"
#include SWEEP_SOURCE

extern "C" void shim_sweep(
    unsigned blocks, unsigned threads, const float* saliency, const word* masks, const int* tables, int step,
    const int* y_cells, const float* y_shares, const int* y_seen, const int* y_runs, int runs, const int* x_cells,
    const float* x_shares, const int* x_seen, const float* thresholds, int h, int w, int height, int width, int stride,
    int normalise,
    int* area, int* overlap, int* region, int* argmax, byte* hit, byte* degenerate)
{
    shim::launch(blocks, threads, [=] {
        sweep(saliency, masks, tables, step, y_cells, y_shares, y_seen, y_runs, runs, x_cells, x_shares, x_seen,
              thresholds, h, w, height, width, stride, normalise, area, overlap, region, argmax, hit, degenerate);
    });
}

extern "C" void shim_pack_rows(
    unsigned blocks, unsigned threads, const byte* flags, word* words, long long rows, int width, int stride)
{
    shim::launch(blocks, threads, [=] { pack_rows(flags, words, rows, width, stride); });
}

extern "C" void shim_mean_maps(
    unsigned blocks, unsigned threads, const float* saliency, const int* starts, const int* places, int cells,
    long long total, float* means)
{
    shim::launch(blocks, threads, [=] { mean_maps(saliency, starts, places, cells, total, means); });
}

#ifdef SHIM_MAIN
#include <cstdio>
#include <random>

int main()
{
    const int h = 7, w = 7, height = 130, width = 70, stride = 3, pairs = 4, threads = 128;
    std::mt19937 random(1);
    std::vector<float> maps(pairs * h * w), y_shares(2 * height), x_shares(2 * width), thresholds(LEVELS);
    for (float& value : maps) value = (float)(random() % 1000) / 1000;
    for (int i = 0; i < w; i++) maps[2 * h * w + i] = NAN;
    // The output row with the highest bound, just below the peak, does not hold the maximum: the one above it does.
    float* peak = &maps[3 * h * w];
    for (int i = 0; i < h * w; i++) peak[i] = 0.0f;
    peak[3 * w + 2] = 1.0f;
    peak[2 * w + 2] = 0.5f;
    peak[2 * w + 5] = 0.8f;
    peak[4 * w + 5] = 0.9f;
    std::vector<word> masks(pairs * height * stride);
    for (word& bits : masks) bits = random();
    auto axis = [](int cells, int pixels, std::vector<float>& shares) {
        std::vector<int> table(2 * pixels);
        for (int i = 0; i < pixels; i++) {
            const double at = std::fmin(std::fmax((i + 0.5) / pixels * cells - 0.5, 0.0), cells - 1.0);
            table[i] = (int)at;
            table[pixels + i] = std::min(table[i] + 1, cells - 1);
            shares[2 * i + 1] = (float)(at - table[i]);
            shares[2 * i] = 1.0f - shares[2 * i + 1];
        }
        return table;
    };
    const auto y_cells = axis(h, height, y_shares), x_cells = axis(w, width, x_shares);
    std::vector<int> runs;
    for (int y = 0, end = 0; y < height; y = end) {
        while (end < height && end - y < RUN && y_cells[end] == y_cells[y]) end++;
        runs.insert(runs.end(), {y, end - y, y_cells[y], y_cells[height + y]});
    }
    for (int k = 0; k < LEVELS; k++) thresholds[k] = (float)(k / 100.0);
    const int tables[2] = {}, y_seen[2] = {0, height}, x_seen[2] = {0, width};
    std::vector<int> area(pairs * LEVELS), overlap(area), region(pairs), argmax(pairs);
    std::vector<byte> hit(pairs), degenerate(pairs);
    shim_sweep(pairs, threads, maps.data(), masks.data(), tables, 0, y_cells.data(), y_shares.data(), y_seen,
               runs.data(), (int)runs.size() / 4, x_cells.data(), x_shares.data(), x_seen, thresholds.data(), h, w,
               height, width, stride, MINMAX, area.data(), overlap.data(), region.data(),
               argmax.data(), hit.data(), degenerate.data());
    const int unseen[2] = {0, 0};
    std::vector<int> marked(1), first(1), none(2 * LEVELS);
    shim_sweep(1, threads, maps.data(), masks.data(), tables, 0, y_cells.data(), y_shares.data(), unseen,
               nullptr, 0, x_cells.data(), x_shares.data(), x_seen, thresholds.data(), h, w, height, width, stride,
               MINMAX, none.data(), none.data() + LEVELS, marked.data(), first.data(), hit.data(), degenerate.data());
    if (none[0] != height * width || none[LEVELS] != region[0] || marked[0] != region[0]) return 2;
    for (int p = 0; p < pairs; p++) std::printf("%d %d %d\n", area[p * LEVELS], area[p * LEVELS + 50], argmax[p]);
    return area[0] == height * width && area[LEVELS] == height * width && degenerate[2] ? 0 : 1;
}
#endif
