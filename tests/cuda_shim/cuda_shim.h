// Runs a CUDA C++ kernel on the CPU from its own source: include this first, then the .cu file, and call shim::launch.
//
// Blocks run one after the other. The threads of a block are fibres that are resumed warp by warp and give way only at
// barriers and shuffles, or, with SHIM_THREADS, real threads, so that a race detector sees what the kernel shares.
// Covered: one dimension, static shared memory, __syncthreads, votes and shuffles of full warps, atomics on int, and the
// intrinsics below; arithmetic is IEEE float32 (compile with -ffp-contract=off). Shared memory keeps what the last block
// left in it, as on a device: nothing may count on zeros.
#pragma once
#undef _FORTIFY_SOURCE  // its longjmp refuses to go to another stack
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>
#ifdef SHIM_THREADS
#include <condition_variable>
#include <mutex>
#include <thread>
#else
#include <csetjmp>
#include <ucontext.h>
#endif

namespace shim {

struct Index { unsigned x = 0, y = 0, z = 0; };
inline thread_local Index thread_index;
inline Index block_index, block_size, grid_size;

#ifdef SHIM_THREADS
class Barrier {
public:
    void size(int n) { expected = n; arrived = 0; }
    void wait()
    {
        std::unique_lock<std::mutex> lock(mutex);
        const unsigned mine = turn;
        if (++arrived == expected) {
            arrived = 0;
            ++turn;
            all.notify_all();
        } else {
            all.wait(lock, [&] { return turn != mine; });
        }
    }
private:
    std::mutex mutex;
    std::condition_variable all;
    int expected = 0, arrived = 0;
    unsigned turn = 0;
};
#else
// A fibre is started with its context and goes on by a jump: swapcontext makes a system call each time.
struct Fibre {
    ucontext_t context;
    jmp_buf place;
    std::vector<char> stack = std::vector<char>(64 * 1024);
    bool started = false, done = false, parked = false;  // parked: at a barrier of the block
    Index index;
};
inline jmp_buf scheduler;
inline Fibre* current = nullptr;
inline const std::function<void()>* body = nullptr;

__attribute__((noinline)) inline void give_way()
{
    if (_setjmp(current->place) == 0) _longjmp(scheduler, 1);
    thread_index = current->index;
}

__attribute__((noinline)) inline void resume(Fibre& fibre)
{
    current = &fibre;
    thread_index = fibre.index;
    if (_setjmp(scheduler) != 0) return;
    if (fibre.started) _longjmp(fibre.place, 1);
    fibre.started = true;
    setcontext(&fibre.context);
}

class Barrier {
public:
    void size(int n) { expected = n; arrived = 0; }
    void wait()
    {
        const unsigned mine = turn;
        if (++arrived == expected) {
            arrived = 0;
            ++turn;
        }
        while (turn == mine) give_way();
    }
private:
    int expected = 0, arrived = 0;
    unsigned turn = 0;
};

inline void enter()
{
    (*body)();
    current->done = true;
    _longjmp(scheduler, 1);
}
#endif

constexpr int MOST = 1024;
inline Barrier block_barrier, warp_barrier[MOST / 32];

inline void synchronise_block()
{
#ifdef SHIM_THREADS
    block_barrier.wait();
#else
    current->parked = true;
    block_barrier.wait();
    current->parked = false;
#endif
}

inline int posted[MOST];

inline unsigned ballot(int vote)
{
    const unsigned t = thread_index.x, warp = t / 32;
    posted[t] = vote;
    warp_barrier[warp].wait();
    unsigned result = 0;
    for (unsigned i = 0; i < 32; i++) result |= (unsigned)(posted[32 * warp + i] != 0) << i;
    warp_barrier[warp].wait();
    return result;
}

// The value of another lane of the warp; the own one where there is no such lane.
inline int from_lane(int value, unsigned lane)
{
    const unsigned t = thread_index.x, warp = t / 32;
    posted[t] = value;
    warp_barrier[warp].wait();
    const int result = lane < 32 ? posted[32 * warp + lane] : value;
    warp_barrier[warp].wait();
    return result;
}

// Runs `kernel()` in `blocks` blocks of `threads` threads, a multiple of 32 and at most 1024.
inline void launch(unsigned blocks, unsigned threads, const std::function<void()>& kernel)
{
    grid_size.x = blocks;
    block_size.x = threads;
    block_barrier.size((int)threads);
    for (unsigned i = 0; i < threads / 32; i++) warp_barrier[i].size(32);
#ifndef SHIM_THREADS
    static std::vector<std::unique_ptr<Fibre>> fibres;  // kept for the next launch
    while (fibres.size() < threads) {
        fibres.push_back(std::make_unique<Fibre>());
        fibres.back()->index.x = (unsigned)fibres.size() - 1;
    }
    body = &kernel;
#endif
    for (unsigned b = 0; b < blocks; b++) {
        block_index.x = b;
#ifdef SHIM_THREADS
        std::vector<std::thread> team;
        for (unsigned t = 0; t < threads; t++)
            team.emplace_back([&kernel, t] {
                thread_index.x = t;
                kernel();
            });
        for (auto& member : team) member.join();
#else
        for (unsigned t = 0; t < threads; t++) {
            Fibre* fibre = fibres[t].get();
            getcontext(&fibre->context);
            fibre->context.uc_stack.ss_sp = fibre->stack.data();
            fibre->context.uc_stack.ss_size = fibre->stack.size();
            fibre->context.uc_link = nullptr;
            fibre->started = fibre->done = fibre->parked = false;
            makecontext(&fibre->context, enter, 0);
        }
        // A warp runs as far as it can before the next one does, and every second block begins with its last warp: no
        // order is promised between two barriers.
        static bool backwards = false;
        backwards = !backwards;
        for (unsigned left = threads; left > 0;) {
            for (unsigned i = 0; i < threads; i += 32) {
                const unsigned first = backwards ? threads - 32 - i : i;
                for (bool running = true; running;) {
                    running = false;
                    for (unsigned t = first; t < first + 32; t++) {
                        Fibre& fibre = *fibres[t];
                        if (fibre.done) continue;
                        resume(fibre);
                        if (fibre.done) --left;
                        else if (!fibre.parked) running = true;
                    }
                }
            }
        }
#endif
    }
}

}  // namespace shim

#define __global__
#define __device__
#define __shared__ static
#define threadIdx shim::thread_index
#define blockIdx shim::block_index
#define blockDim shim::block_size
#define gridDim shim::grid_size
#define __syncthreads() shim::synchronise_block()
#define __launch_bounds__(...)
#define __noinline__
#define __ballot_sync(lanes, vote) shim::ballot(vote)
#define __shfl_sync(lanes, value, lane) shim::from_lane(value, lane)
#define __shfl_xor_sync(lanes, value, bits) shim::from_lane(value, threadIdx.x % 32 ^ (unsigned)(bits))
#define __shfl_down_sync(lanes, value, distance) shim::from_lane(value, threadIdx.x % 32 + (unsigned)(distance))

inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline float __double2float_rn(double a) { return (float)a; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __saturatef(float a) { return a > 0 ? (a < 1 ? a : 1.0f) : 0.0f; }  // 0 of NaN
inline int __ffs(int bits) { return __builtin_ffs(bits); }
inline int __float_as_int(float value) { int bits; std::memcpy(&bits, &value, 4); return bits; }
inline float __int_as_float(int bits) { float value; std::memcpy(&value, &bits, 4); return value; }
inline int atomicAdd(int* at, int value) { return __atomic_fetch_add(at, value, __ATOMIC_RELAXED); }
inline unsigned atomicAdd(unsigned* at, unsigned value) { return __atomic_fetch_add(at, value, __ATOMIC_RELAXED); }
inline int atomicMin(int* at, int value)
{
    int seen = __atomic_load_n(at, __ATOMIC_RELAXED);
    while (value < seen && !__atomic_compare_exchange_n(at, &seen, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
    return seen;
}
inline int atomicMax(int* at, int value)
{
    int seen = __atomic_load_n(at, __ATOMIC_RELAXED);
    while (value > seen && !__atomic_compare_exchange_n(at, &seen, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
    return seen;
}
