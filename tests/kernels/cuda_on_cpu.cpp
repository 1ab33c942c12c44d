// See cuda_on_cpu.h. Also the part of kernels/csrc/cuda/bodies.h that asks torch for the stream of a GPU.
#include "cuda_on_cpu.h"

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/csrc/cuda/bodies.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#else
static void __sanitizer_start_switch_fiber(void**, const void*, size_t) {}
static void __sanitizer_finish_switch_fiber(void*, const void**, size_t*) {}
#endif

dim3 gridDim, blockDim, blockIdx, threadIdx;

namespace cuda_on_cpu {

namespace {

constexpr int WARP = 32;
constexpr size_t STACK = 256 << 10;

struct Fiber {
    ucontext_t context;  // where it begins
    jmp_buf continuation;  // where it waits; a jump is several times faster than swapcontext, which calls the kernel
    std::vector<char> stack = std::vector<char>(STACK);
    void* sanitizer = nullptr;
    bool begun = false, done = false, waits_for_block = false;
    long of_warp = 0, of_block = 0;  // how often it has waited
};

jmp_buf scheduler;
void* sanitizer_of_scheduler;
const void* stack_of_scheduler;
size_t size_of_scheduler;
std::vector<std::unique_ptr<Fiber>> fibers;
std::vector<double> letters;
std::vector<long> least_of_warps;  // for each warp, a lower bound of `of_warp`
long least_of_block;               // and one of `of_block`
int current, threads_of_block;
const std::function<void()>* body;

void switch_to_scheduler() {
    Fiber& fiber = *fibers[current];
    __sanitizer_start_switch_fiber(fiber.done ? nullptr : &fiber.sanitizer, stack_of_scheduler, size_of_scheduler);
    if (!_setjmp(fiber.continuation)) _longjmp(scheduler, 1);
    __sanitizer_finish_switch_fiber(fiber.sanitizer, nullptr, nullptr);
}

void start() {
    __sanitizer_finish_switch_fiber(nullptr, &stack_of_scheduler, &size_of_scheduler);
    (*body)();
    fibers[current]->done = true;
    switch_to_scheduler();
}

void switch_to(int thread) {
    Fiber& fiber = *fibers[thread];
    current = thread;
    threadIdx = dim3(unsigned(thread));
    __sanitizer_start_switch_fiber(&sanitizer_of_scheduler, fiber.stack.data(), STACK);
    if (!_setjmp(scheduler)) {
        if (fiber.begun) _longjmp(fiber.continuation, 1);
        fiber.begun = true;
        setcontext(&fiber.context);
    }
    __sanitizer_finish_switch_fiber(sanitizer_of_scheduler, nullptr, nullptr);
}

// Whether a fiber has what it waits for: all of its group have waited as often.
bool may_continue(int thread) {
    const Fiber& fiber = *fibers[thread];
    const int begin = fiber.waits_for_block ? 0 : thread / WARP * WARP;
    const int end = fiber.waits_for_block ? threads_of_block : begin + WARP;
    const auto times = fiber.waits_for_block ? &Fiber::of_block : &Fiber::of_warp;
    long& least = fiber.waits_for_block ? least_of_block : least_of_warps[thread / WARP];
    if (least < fiber.*times) {
        least = fiber.*times;
        for (int t = begin; t < end; ++t) least = std::min(least, (*fibers[t]).*times);
    }
    return least >= fiber.*times;
}

void prepare(Fiber& fiber) {
    fiber.begun = fiber.done = fiber.waits_for_block = false;
    fiber.of_warp = fiber.of_block = 0;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.data();
    fiber.context.uc_stack.ss_size = STACK;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, start, 0);
}

void run_block() {
    for (int t = 0; t < threads_of_block; ++t) prepare(*fibers[t]);
    least_of_warps.assign(threads_of_block / WARP, 0);
    least_of_block = 0;
    for (int left = threads_of_block; left;) {
        bool moved = false;
        for (int t = 0; t < threads_of_block; ++t) {
            if (fibers[t]->done || !may_continue(t)) continue;
            switch_to(t);
            moved = true;
            left -= fibers[t]->done;
        }
        if (!moved) {
            std::fprintf(stderr, "cuda_on_cpu: threads of a block wait for others that have ended\n");
            std::abort();
        }
    }
}

}  // namespace

char* shared_memory;

int lane() { return current % WARP; }
void* letterbox(int lane) { return &letters[current / WARP * WARP + lane]; }

void wait_for_warp() {
    ++fibers[current]->of_warp;
    fibers[current]->waits_for_block = false;
    switch_to_scheduler();
}

void wait_for_block() {
    ++fibers[current]->of_block;
    fibers[current]->waits_for_block = true;
    switch_to_scheduler();
}

void run(dim3 blocks, int threads, size_t shared, const std::function<void()>& kernel) {
    if (threads % WARP) std::abort();
    while (fibers.size() < size_t(threads)) fibers.push_back(std::make_unique<Fiber>());
    letters.resize(threads);
    threads_of_block = threads;
    body = &kernel;
    gridDim = blocks, blockDim = dim3(unsigned(threads));
    for (unsigned y = 0; y < blocks.y; ++y)
        for (unsigned x = 0; x < blocks.x; ++x) {
            const std::unique_ptr<char[]> memory(new char[shared]);
            std::memset(memory.get(), 0xff, shared);  // NaN, in float and in double
            shared_memory = memory.get();
            blockIdx = dim3(x, y);
            run_block();
        }
}

}  // namespace cuda_on_cpu

namespace tagae::cuda {

struct OnDevice::Guard {};
bool has_streams() { return true; }
OnDevice::OnDevice(int32_t device) : device_(device) {}
OnDevice::~OnDevice() = default;
void* OnDevice::stream() const { return nullptr; }

}  // namespace tagae::cuda
