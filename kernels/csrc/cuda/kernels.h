// The kernels of the ops for a GPU: plain CUDA, without torch, so that the tests can also run them on a CPU.
//
// Index tensors stay on the GPU, and the host never reads them. So the kernels check each index before they use it. A
// wrong one reads nothing, and the result that needed it is NaN, which no caller can take for a score.
//
// Sums have a fixed order, so the same input gives the same bits. Numbers T are float, double or bfloat16, and sums of
// them are Sum<T>.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "../bodies.h"

namespace tagae::cuda {

using std::erf;
using std::exp;
using std::sqrt;

constexpr int WARP = 32;
constexpr int WARPS = 8;  // of a block
constexpr int THREADS = WARP * WARPS;

template <class T>
constexpr T NOT_A_NUMBER = std::numeric_limits<T>::quiet_NaN();
template <class T>
constexpr T LOWEST = std::numeric_limits<T>::lowest();

__device__ inline bool is_below(int64_t index, int64_t limit) { return index >= 0 && index < limit; }

template <class T>
__device__ T sum_of_warp(T x) {
    for (int apart = WARP / 2; apart; apart /= 2) x += __shfl_xor_sync(0xffffffffu, x, apart);
    return x;
}

template <class T>
__device__ T gelu(T x) {
    return T(0.5) * x * (T(1) + erf(x * T(0.70710678118654752440)));
}

#ifdef __CUDACC__  // the tests define another one, as of `launch` in bodies.cu
__device__ inline char* shared_memory() {
    extern __shared__ __align__(16) char memory[];
    return memory;
}
#endif

// What a block of `attend` keeps in shared memory: weights, then sums. Weights of wide heads do not fit, and stay where
// they are.
template <class T>
struct AttendMemory {
    int64_t channels, times;  // of one head
    bool has_weights;

    TAGAE_ANYWHERE int64_t weight() const { return has_weights ? channels * times : 0; }  // numbers
    TAGAE_ANYWHERE size_t weight_bytes() const { return (2 * weight() * sizeof(T) + 7) / 8 * 8; }
    TAGAE_ANYWHERE int64_t sums() const { return channels + times; }
    TAGAE_ANYWHERE size_t bytes() const {
        return weight_bytes() + ((WARPS + 1) * sums() + 2 * WARPS) * sizeof(Sum<T>);
    }
};

// The weight of one head, [channels, times].
template <class T>
struct HeadWeight {
    const T* data;
    int64_t of_channel, of_time;  // strides

    __device__ T operator()(int64_t c, int64_t t) const { return data[c * of_channel + t * of_time]; }
};

// Rows of `all` from `first` on. With `copy` they are there, turned, so that threads side by side read numbers side by
// side. The block has to wait before it reads them.
template <class T>
__device__ HeadWeight<T> weight_of_head(const Rows<T>& all, int64_t first, int64_t channels, T* copy) {
    if (!copy) return {all[first], all.stride, 1};
    for (int64_t n = threadIdx.x; n < channels * all.columns; n += THREADS) {
        const int64_t c = n / all.columns, t = n % all.columns;
        copy[t * channels + c] = all[first + c][t];
    }
    return {copy, 1, channels};
}

// Attention of one target and one head at a time, by one block. Each warp passes over every eighth slot with the online
// softmax (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018). Then the block joins the sums of
// its warps. With a `trajectory_value` the values include it, and `trajectories` is not written.
template <class T>
__global__ void __launch_bounds__(THREADS)
attend(Attend<T> a, Rows<T> trajectory_value, bool has_weights, T* values, T* trajectories) {
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const int64_t head = blockIdx.y, heads = a.attention.count, channels = a.attention.columns;
    const int64_t times = a.trajectory.columns, first = head * channels;
    const AttendMemory<T> sizes{channels, times, has_weights};
    T* weights = reinterpret_cast<T*>(shared_memory());
    // Weighted sums of keys and trajectories over all slots; the same of each warp; of each warp, its largest logit and
    // the sum of exp(logit - peak).
    Sum<T>* joined = reinterpret_cast<Sum<T>*>(shared_memory() + sizes.weight_bytes());
    Sum<T>* of_warps = joined + sizes.sums();
    Sum<T>* peaks = of_warps + WARPS * sizes.sums();
    Sum<T>* totals = peaks + WARPS;
    Sum<T> *keys = of_warps + warp * sizes.sums(), *sums = keys + channels;
    const T* attention = a.attention[head];

    const HeadWeight<T> weight = weight_of_head(a.trajectory_weight, first, channels, has_weights ? weights : nullptr);
    HeadWeight<T> value_weight{};
    if (trajectory_value.columns) {
        T* copy = has_weights ? weights + sizes.weight() : nullptr;
        value_weight = weight_of_head(trajectory_value, first, channels, copy);
    }
    for (int64_t i = blockIdx.x; i < a.query.count; i += gridDim.x) {
        __syncthreads();  // the weights are there, and the sums of the target before have been read
        const int64_t from = a.indptr[i], to = a.indptr[i + 1];
        const bool fits = from >= 0 && from <= to && to <= a.slots;
        const int64_t begin = fits ? from : 0, slots = fits ? to - from : 0;
        const T* query = a.query[i] + first;
        // Not minus infinity: the difference of two infinities is not a number.
        Sum<T> peak = LOWEST<Sum<T>>, total = 0;
        for (int64_t c = lane; c < channels; c += WARP) keys[c] = 0;  // as below, so each lane has its own numbers
        for (int64_t t = lane; t < times; t += WARP) sums[t] = 0;
        for (int64_t slot = begin + warp; slot < begin + slots; slot += WARPS) {
            const int64_t j = a.indices[slot], e = a.edges[slot];
            if (!is_below(j, a.key.count) || !is_below(e, a.trajectory.count)) {
                total = NOT_A_NUMBER<Sum<T>>;
                continue;
            }
            const T *key = a.key[j] + first, *trajectory = a.trajectory[e];
            Sum<T> logit = 0;
            for (int64_t c = lane; c < channels; c += WARP) {
                Sum<T> u = query[c] + key[c];
                for (int64_t t = 0; t < times; ++t) u += weight(c, t) * trajectory[t];
                logit += attention[c] * (u > 0 ? u : a.negative_slope * u);
            }
            logit = sum_of_warp(logit);
            const Sum<T> top = logit > peak ? logit : peak;
            const Sum<T> fade = exp(peak - top), alpha = exp(logit - top);
            total = total * fade + alpha;
            for (int64_t c = lane; c < channels; c += WARP) keys[c] = keys[c] * fade + alpha * key[c];
            for (int64_t t = lane; t < times; t += WARP) sums[t] = sums[t] * fade + alpha * trajectory[t];
            peak = top;
        }
        if (lane == 0) peaks[warp] = peak, totals[warp] = total;
        __syncthreads();
        const int used = slots < WARPS ? int(slots) : WARPS;  // the others had no slot
        Sum<T> top = LOWEST<Sum<T>>, all = 0;
        for (int w = 0; w < used; ++w) top = peaks[w] > top ? peaks[w] : top;
        for (int w = 0; w < used; ++w) all += totals[w] * exp(peaks[w] - top);
        for (int64_t n = threadIdx.x; n < sizes.sums(); n += THREADS) {
            Sum<T> sum = 0;
            for (int w = 0; w < used; ++w) sum += of_warps[w * sizes.sums() + n] * exp(peaks[w] - top);
            joined[n] = !fits ? NOT_A_NUMBER<Sum<T>> : used ? sum / all : Sum<T>(0);
        }
        __syncthreads();
        const Sum<T>* joined_sums = joined + channels;
        for (int64_t c = threadIdx.x; c < channels; c += THREADS) {
            Sum<T> value = joined[c];
            if (trajectory_value.columns)
                for (int64_t t = 0; t < times; ++t) value += value_weight(c, t) * joined_sums[t];
            values[i * heads * channels + first + c] = T(value);
        }
        if (!trajectory_value.columns)
            for (int64_t t = threadIdx.x; t < times; t += THREADS)
                trajectories[(i * heads + head) * times + t] = T(joined_sums[t]);
    }
}

// gelu(norm(out + callers + callees)) in place of `out`, a row for each warp. `out` has the own projection of the rows.
template <class T>
__global__ void __launch_bounds__(THREADS) join_sides(JoinSides<T> j, T* out) {
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const int64_t width = j.callers.columns;
    for (int64_t i = int64_t(blockIdx.x) * WARPS + warp; i < j.callers.count; i += int64_t(gridDim.x) * WARPS) {
        T* row = out + i * width;
        const T *callers = j.callers[i], *callees = j.callees[i];
        Sum<T> total = 0, squares = 0;
        for (int64_t c = lane; c < width; c += WARP) {
            row[c] = T(row[c] + (callers[c] + callees[c]));
            total += row[c];
        }
        const Sum<T> mean = sum_of_warp(total) / Sum<T>(width);
        for (int64_t c = lane; c < width; c += WARP) squares += (row[c] - mean) * (row[c] - mean);
        const Sum<T> scale = Sum<T>(1) / sqrt(sum_of_warp(squares) / Sum<T>(width) + j.eps);
        for (int64_t c = lane; c < width; c += WARP)
            row[c] = T(gelu((row[c] - mean) * scale * j.norm_weight[c] + j.norm_bias[c]));
    }
}

// gelu(hidden + others) in place of `hidden`, where row i of `hidden` goes with the row of `others` at positions[i].
// `others` may be empty. Without positions, row i goes with row i.
template <class T>
__global__ void __launch_bounds__(THREADS)
activate(T* hidden, int64_t count, int64_t width, Rows<T> others, const int64_t* positions) {
    const int64_t step = int64_t(gridDim.x) * THREADS;
    for (int64_t n = int64_t(blockIdx.x) * THREADS + threadIdx.x; n < count * width; n += step) {
        Sum<T> x = hidden[n];
        if (others.columns) {
            const int64_t row = positions ? positions[n / width] : n / width;
            x += is_below(row, others.count) ? Sum<T>(others[row][n % width]) : NOT_A_NUMBER<Sum<T>>;
        }
        hidden[n] = T(gelu(x));
    }
}

// Inner products of the ends of edges, an edge for each warp.
template <class T>
__global__ void __launch_bounds__(THREADS) edge_dot(EdgeDot<T> f, T* out) {
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    for (int64_t e = int64_t(blockIdx.x) * WARPS + warp; e < f.count; e += int64_t(gridDim.x) * WARPS) {
        const int64_t i = f.source_index[e], j = f.target_index[e];
        Sum<T> total = NOT_A_NUMBER<Sum<T>>;
        if (is_below(i, f.source.count) && is_below(j, f.target.count)) {
            total = 0;
            for (int64_t c = lane; c < f.source.columns; c += WARP) total += f.source[i][c] * f.target[j][c];
        }
        total = sum_of_warp(total);
        if (lane == 0) out[e] = T(total);
    }
}

}  // namespace tagae::cuda
