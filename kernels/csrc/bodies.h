// What the compiled bodies of the ops are called with. Independent of torch and of the instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef __CUDACC__
#define TAGAE_ANYWHERE __host__ __device__  // for kernels too
#else
#define TAGAE_ANYWHERE
#endif

namespace tagae {

// A matrix whose rows are `stride` numbers apart.
template <class T>
struct Rows {
    const T* data = nullptr;
    int64_t count = 0, columns = 0, stride = 0;

    TAGAE_ANYWHERE __attribute__((always_inline)) const T* operator[](int64_t i) const { return data + i * stride; }
    __attribute__((always_inline)) const T* end() const { return count ? data + (count - 1) * stride + columns : data; }
};

// The type that sums of T have; bfloat16.h has one more.
template <class T>
struct SumOf {
    using Type = T;
};
template <class T>
using Sum = typename SumOf<T>::Type;

// Names as in kernels/ops.py.
template <class T>
struct Attend {
    Rows<T> query, key, trajectory, trajectory_weight, attention;
    const int64_t *indptr, *indices, *edges;
    int64_t slots;  // the length of indices and edges
    Sum<T> negative_slope;
};

template <class T>
struct Projection {
    Rows<T> weight;
    const T* bias;
};

// Query and key of `attend` are empty: they are projected here.
template <class T>
struct ProjectAndAttend {
    Rows<T> x;
    Projection<T> query, key;
    Rows<T> trajectory_value;  // [H*C, T]
    Attend<T> attend;
};

template <class T>
struct JoinSides {
    Rows<T> x;
    Projection<T> own;
    Rows<T> callers, callees;
    const T *norm_weight, *norm_bias;
    Sum<T> eps;
};

template <class T>
struct Perceptron {
    Rows<T> rows, others;
    const int64_t* positions;  // nullptr: row i goes with row i of `others`
    int64_t count;
    Projection<T> hidden, output;
};

template <class T>
struct EdgeDot {
    Rows<T> source, target;
    const int64_t *source_index, *target_index;
    int64_t count;
};

// One body per op, compiled for one instruction set. Outputs are contiguous.
template <class T>
struct Bodies {
    void (*attend)(const Attend<T>&, T* values, T* trajectories);
    void (*project_and_attend)(const ProjectAndAttend<T>&, T* out);
    void (*join_sides)(const JoinSides<T>&, T* out);
    void (*perceptron)(const Perceptron<T>&, T* out);
    void (*edge_dot)(const EdgeDot<T>&, T* out);
};

struct InstructionSet {
    Bodies<float> floats;
    Bodies<double> doubles;
};
extern const InstructionSet NEON, AVX2, AVX512;  // those for this kind of processor are compiled

// Memory of this thread, by use; it is kept between calls, and grows. At least 64 bytes beyond `bytes` may be touched.
enum class Use { PANELS, VECTORS, KEYS, QUERIES, LOGITS, TARGETS, PARTS, VALUES, SUMS, ROWS, SIZE };
void* workspace(Use use, size_t bytes);

// body(context, begin, end) for ranges that cover [0, count), on torch's threads.
void parallel(int64_t count, int64_t grain, void (*body)(void*, int64_t, int64_t), void* context);

}  // namespace tagae
