// Starts the kernels: how many blocks, and how much shared memory.
#include "bodies.h"

#include "bfloat16.h"
#include "kernels.h"

namespace tagae::cuda {

#ifdef __CUDACC__  // the tests define another one, which runs the kernels on a CPU
template <class... P, class... A>
const char* launch(void (*kernel)(P...), dim3 blocks, int threads, size_t shared, void* stream, A... arguments) {
    kernel<<<blocks, threads, shared, static_cast<cudaStream_t>(stream)>>>(arguments...);
    const cudaError_t error = cudaGetLastError();
    return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}
#endif

namespace {

constexpr size_t SHARED = 48 << 10;       // bytes that every GPU gives a block
constexpr int64_t MAX_HEADS = 65535;     // of blocks in the second dimension
constexpr int64_t MAX_BLOCKS = 1 << 14;  // enough to fill a GPU; each block passes over several rows

dim3 blocks_for(int64_t rows, int64_t rows_of_block, int64_t heads = 1) {
    const int64_t blocks = (rows + rows_of_block - 1) / rows_of_block;
    return dim3(unsigned(blocks < MAX_BLOCKS ? blocks : MAX_BLOCKS), unsigned(heads));
}

}  // namespace

template <class T>
const char* Bodies<T>::attend(
    const Attend<T>& a, const Rows<T>& trajectory_value, T* values, T* trajectories, void* stream) {
    if (!a.query.count) return nullptr;
    AttendMemory<T> memory{a.attention.columns, a.trajectory.columns, true};
    memory.has_weights = memory.bytes() <= SHARED;
    const size_t shared = memory.bytes();
    if (shared > SHARED || a.attention.count > MAX_HEADS) return "the heads are too wide or too many for a GPU";
    const dim3 blocks = blocks_for(a.query.count, 1, a.attention.count);
    const bool has_weights = memory.has_weights;
    return launch(
        cuda::attend<T>, blocks, THREADS, shared, stream, a, trajectory_value, has_weights, values, trajectories);
}

template <class T>
const char* Bodies<T>::join_sides(const JoinSides<T>& j, T* out, void* stream) {
    if (!j.callers.count) return nullptr;
    return launch(cuda::join_sides<T>, blocks_for(j.callers.count, WARPS), THREADS, 0, stream, j, out);
}

template <class T>
const char* Bodies<T>::activate(
    T* hidden, int64_t count, int64_t width, const Rows<T>& others, const int64_t* positions, void* stream) {
    if (!count || !width) return nullptr;
    const dim3 blocks = blocks_for(count * width, THREADS);
    return launch(cuda::activate<T>, blocks, THREADS, 0, stream, hidden, count, width, others, positions);
}

template <class T>
const char* Bodies<T>::edge_dot(const EdgeDot<T>& f, T* out, void* stream) {
    if (!f.count) return nullptr;
    return launch(cuda::edge_dot<T>, blocks_for(f.count, WARPS), THREADS, 0, stream, f, out);
}

template struct Bodies<float>;
template struct Bodies<double>;
template struct Bodies<BFloat16>;

}  // namespace tagae::cuda
