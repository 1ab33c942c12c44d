// The end of a layer: gelu(norm(weight x + bias + callers + callees)), a block of services at a time.
#pragma once

#include "attend.h"

namespace TAGAE_ISA {

template <class T>
void normalize(const tagae::JoinSides<T>& j, const T* row, const T* callers, const T* callees, T* scratch, T* out) {
    constexpr int N = LANES<T>;
    const int64_t width = j.own.weight.count;
    Vector<T> total = {}, squares = {};
    for (int64_t c = 0; c < width; c += N) {
        const Vector<T> sides = load_first(callers + c, width - c) + load_first(callees + c, width - c);
        const Vector<T> x = load_first(row + c, width - c) + sides;
        store(scratch + c, x);
        total += x;
    }
    const T mean = sum<T>(total) / T(width);
    for (int64_t c = 0; c < width; c += N) {
        Vector<T> x = load(scratch + c) - mean;
        for (int64_t l = width - c; l < N; ++l) x[l] = 0;
        store(scratch + c, x);
        squares += x * x;
    }
    const T variance = sum<T>(squares) / T(width) + j.eps;
    const T scale = T(1) / (sizeof(T) == 4 ? T(__builtin_sqrtf(float(variance))) : T(__builtin_sqrt(double(variance))));
    for (int64_t c = 0; c < width; c += N) {
        const Vector<T> weight = load_first(j.norm_weight + c, width - c);
        const Vector<T> bias = load_first(j.norm_bias + c, width - c);
        store_first(out + c, gelu(load(scratch + c) * scale * weight + bias), width - c);
    }
}

template <class T>
void join_sides(const tagae::JoinSides<T>& j, T* out) {
    const Layout<T> layout(1, j.own.weight.count);
    const int64_t width = layout.width(), outputs = j.own.weight.count;
    T* panels = numbers<T>(Use::PANELS, width * j.x.columns);
    T* bias = numbers<T>(Use::VECTORS, width);
    pack_weight(j.own.weight, layout, panels);
    spread(j.own.bias, layout, bias);
    in_parallel(j.x.count, BLOCK, [&](int64_t from, int64_t to) {
        T* own = numbers<T>(Use::VALUES, BLOCK * width);
        T* scratch = numbers<T>(Use::ROWS, width);
        for (int64_t begin = from; begin < to; begin += BLOCK) {
            const int64_t end = least(begin + BLOCK, to);
            project(j.x, begin, end, panels, bias, layout, own);
            for (int64_t i = begin; i < end; ++i)
                normalize(j, own + (i - begin) * width, j.callers[i], j.callees[i], scratch, out + i * outputs);
        }
    });
}

}  // namespace TAGAE_ISA
