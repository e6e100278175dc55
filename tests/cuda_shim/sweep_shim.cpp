// The sweep's kernels as plain functions; with SHIM_MAIN a program that runs them on made-up data for a race detector.
#include "cuda_shim.h"
#include SWEEP_SOURCE

extern "C" void shim_sweep(
    unsigned blocks, unsigned threads, const float* saliency, const word* masks, const int* tables, const int* y_cells,
    const float* y_weights, const int* y_seen, const int* x_cells, const float* x_weights, const int* x_seen,
    const float* thresholds, int h, int w, int height, int width, int stride, int normalise, int* area, int* overlap,
    int* region, int* argmax, byte* hit, byte* degenerate)
{
    shim::launch(blocks, threads, [=] {
        sweep(saliency, masks, tables, y_cells, y_weights, y_seen, x_cells, x_weights, x_seen, thresholds, h, w, height,
              width, stride, normalise, area, overlap, region, argmax, hit, degenerate);
    });
}

extern "C" void shim_pack_rows(
    unsigned blocks, unsigned threads, const byte* flags, word* words, long long rows, int width, int stride)
{
    shim::launch(blocks, threads, [=] { pack_rows(flags, words, rows, width, stride); });
}

#ifdef SHIM_MAIN
#include <cstdio>
#include <random>

int main()
{
    const int h = 7, w = 7, height = 40, width = 70, stride = 3, pairs = 3, threads = 128;
    std::mt19937 random(1);
    std::vector<float> maps(pairs * h * w), y_weights(height), x_weights(width), thresholds(LEVELS);
    for (float& value : maps) value = (float)(random() % 1000) / 1000;
    for (int i = 0; i < w; i++) maps[2 * h * w + i] = NAN;
    std::vector<word> masks(pairs * height * stride);
    for (word& bits : masks) bits = random();
    auto axis = [](int cells, int pixels, std::vector<float>& weights) {
        std::vector<int> table(2 * pixels);
        for (int i = 0; i < pixels; i++) {
            const double at = std::fmin(std::fmax((i + 0.5) / pixels * cells - 0.5, 0.0), cells - 1.0);
            table[i] = (int)at;
            table[pixels + i] = std::min(table[i] + 1, cells - 1);
            weights[i] = (float)(at - table[i]);
        }
        return table;
    };
    const auto y_cells = axis(h, height, y_weights), x_cells = axis(w, width, x_weights);
    for (int k = 0; k < LEVELS; k++) thresholds[k] = (float)(k / 100.0);
    const int tables[2 * pairs] = {}, y_seen[2] = {0, height}, x_seen[2] = {0, width};
    std::vector<int> area(pairs * LEVELS), overlap(area), region(pairs), argmax(pairs);
    std::vector<byte> hit(pairs), degenerate(pairs);
    shim_sweep(pairs, threads, maps.data(), masks.data(), tables, y_cells.data(), y_weights.data(), y_seen, x_cells.data(),
               x_weights.data(), x_seen, thresholds.data(), h, w, height, width, stride, MINMAX, area.data(),
               overlap.data(), region.data(), argmax.data(), hit.data(), degenerate.data());
    for (int p = 0; p < pairs; p++) std::printf("%d %d %d\n", area[p * LEVELS], area[p * LEVELS + 50], argmax[p]);
    return area[0] == height * width && area[LEVELS] == height * width && degenerate[2] ? 0 : 1;
}
#endif
