// Runs kernels of CUDA on a CPU, so that tests can check them without a GPU: included before the file with the kernels.
//
// The threads of a block are fibers in one thread. Each runs until it waits for its warp or its block. Shared memory has
// the size that the kernel asked for, and is filled with NaN. So the sanitizers of the compiler see every access out of
// bounds, and a test sees a number that was read before it was written. A block whose threads wait for each other in
// vain ends the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(threads)

struct dim3 {
    unsigned x = 1, y = 1, z = 1;
    explicit dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

extern dim3 gridDim, blockDim, blockIdx, threadIdx;

namespace cuda_on_cpu {

extern char* shared_memory;

// The other threads of the warp, or of the block, have come as far as this one.
void wait_for_warp();
void wait_for_block();
// The place where lane `lane` of this warp leaves a number for the others.
void* letterbox(int lane);
int lane();

// Runs one block after the other.
void run(dim3 blocks, int threads, size_t shared, const std::function<void()>& kernel);

}  // namespace cuda_on_cpu

inline void __syncthreads() { cuda_on_cpu::wait_for_block(); }

template <class T>
T __shfl_xor_sync(unsigned mask, T number, int apart) {
    using namespace cuda_on_cpu;
    static_assert(sizeof(T) <= 8);
    if (mask != 0xffffffffu) __builtin_trap();  // a part of a warp is not supported
    *static_cast<T*>(letterbox(lane())) = number;
    wait_for_warp();
    const T found = *static_cast<const T*>(letterbox(lane() ^ apart));
    wait_for_warp();
    return found;
}

namespace tagae::cuda {

inline char* shared_memory() { return cuda_on_cpu::shared_memory; }

template <class... P, class... A>
const char* launch(void (*kernel)(P...), dim3 blocks, int threads, size_t shared, void*, A... arguments) {
    cuda_on_cpu::run(blocks, threads, shared, [=] { kernel(arguments...); });
    return nullptr;
}

}  // namespace tagae::cuda
