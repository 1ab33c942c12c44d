// Two linear layers with a GELU between them. Both are narrow, so the lanes of vectors are rows of the input.
#pragma once

#include "attend.h"

namespace TAGAE_ISA {

// out = bias + weight panel, for a panel of `weight.columns`; through a GELU if asked for.
template <bool GELU, class T>
void layer(const tagae::Projection<T>& f, const T* panel, T* out) {
    for_tiles(0, f.weight.count, [&](int64_t first, auto tile) __attribute__((always_inline)) {
        constexpr int R = decltype(tile)::value;
        const T* rows[R];
        Tile<T, R, VECTORS> acc;
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
            rows[r] = f.weight[first + r];
#pragma GCC unroll 8
            for (int v = 0; v < VECTORS; ++v) acc[r][v] = broadcast(f.bias[first + r]);
        }
        multiply<R, VECTORS, T>(rows, f.weight.columns, panel, acc);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
            for (int v = 0; v < VECTORS; ++v)
                store(out + (first + r) * WIDTH<T> + v * LANES<T>, GELU ? gelu(acc[r][v]) : acc[r][v]);
    });
}

template <class T>
void perceptron(const tagae::Perceptron<T>& f, T* out) {
    const int64_t outputs = f.output.weight.count;
    in_parallel(f.count, WIDTH<T>, [&](int64_t from, int64_t to) {
        T* inputs = numbers<T>(Use::INPUTS, f.hidden.weight.columns * WIDTH<T>);
        T* hidden = numbers<T>(Use::HIDDEN, f.hidden.weight.count * WIDTH<T>);
        T* results = numbers<T>(Use::OUTPUTS, outputs * WIDTH<T>);
        for (int64_t begin = from; begin < to; begin += WIDTH<T>) {
            const int64_t count = least(WIDTH<T>, to - begin);
            pack<T>([&](int i) { return f.rows[begin + i]; }, count, f.rows.columns, f.rows.end(), inputs);
            const auto other = [&](int i) { return f.others[f.positions ? f.positions[begin + i] : begin + i]; };
            pack<T>(other, count, f.others.columns, f.others.end(), inputs + f.rows.columns * WIDTH<T>);
            layer<true>(f.hidden, inputs, hidden);
            layer<false>(f.output, hidden, results);
            unpack(results, count, outputs, out + begin * outputs);
        }
    });
}

}  // namespace TAGAE_ISA
