// Two linear layers with a GELU between them, a block of rows at a time.
#pragma once

#include "attend.h"

namespace TAGAE_ISA {

constexpr int64_t FEW_OUTPUTS = 4;  // up to here, inner products across lanes are quicker than panels

// hidden[i - begin] = gelu(bias + weight row i) for rows [begin, end).
template <class T>
void hidden_layer(
    const tagae::Perceptron<T>& f, const T* panels, const T* bias, const Layout<T>& layout, int64_t begin, int64_t end,
    T* hidden) {
    const int64_t width = layout.width();
    for_panels(layout, [&](int64_t place, auto vectors) __attribute__((always_inline)) {
        constexpr int V = decltype(vectors)::value;
        const T* panel = panels + place * f.hidden.weight.columns;
        const auto multiply_rows = [&](int64_t first, auto& acc) __attribute__((always_inline)) {
            constexpr int R = sizeof(acc) / sizeof(acc[0]);
            const T *rows[R], *others[R];
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r) {
                rows[r] = f.rows[first + r];
                others[r] = f.others[f.positions ? f.positions[first + r] : first + r];
            }
            multiply<R, V, T>(rows, f.rows.columns, panel, acc);
            multiply<R, V, T>(others, f.others.columns, panel + f.rows.columns * WIDTH<T>, acc);
        };
        const auto keep = [&](int64_t i, int v, Vector<T> sum) __attribute__((always_inline)) {
            store(hidden + (i - begin) * width + place + v * LANES<T>, gelu(sum));
        };
        project_panel<V, T>(begin, end, bias + place, multiply_rows, keep);
    });
}

// out[i][o] = bias[o] + weight[o] . hidden[i], over the first `columns` of rows of `width`; out has no gaps.
template <class T>
void few_outputs(
    const T* weight, const T* bias, int64_t outputs, const T* hidden, int64_t columns, int64_t width, int64_t count,
    T* out) {
    constexpr int N = LANES<T>;
    int64_t row = 0, output = 0;
    for (int64_t i = 0; i < count * outputs; i += N) {
        Vector<T> products[N], biases = {};
        for (int l = 0; l < N; ++l) {
            Vector<T> total = {};
            if (row < count) {
                for (int64_t c = 0; c < columns; c += N)
                    total += load(hidden + row * width + c) * load(weight + output * width + c);
                biases[l] = bias[output];
                if (++output == outputs) output = 0, ++row;
            }
            products[l] = total;
        }
        store_first(out + i, sums<T>(products) + biases, count * outputs - i);
    }
}

template <class T>
void perceptron(const tagae::Perceptron<T>& f, T* out) {
    const int64_t inputs = f.hidden.weight.columns, outputs = f.output.weight.count;
    const Layout<T> between(1, f.hidden.weight.count), after(1, outputs);
    const int64_t width = between.width(), wide = after.width();
    const bool few = outputs <= FEW_OUTPUTS;
    T* panels = numbers<T>(Use::PANELS, width * inputs + (few ? outputs * width : wide * width));
    T* last = panels + width * inputs;
    T* bias = numbers<T>(Use::VECTORS, width + wide);
    pack_weight(f.hidden.weight, between, panels);
    spread(f.hidden.bias, between, bias);
    spread(f.output.bias, after, bias + width);
    if (few)
        for (int64_t o = 0; o < outputs; ++o) spread(f.output.weight[o], between, last + o * width);
    else
        pack_weight(f.output.weight, after, last);
    in_parallel(f.count, BLOCK, [&](int64_t from, int64_t to) {
        T* hidden = numbers<T>(Use::VALUES, BLOCK * width);
        T* results = numbers<T>(Use::ROWS, BLOCK * wide);
        for (int64_t begin = from; begin < to; begin += BLOCK) {
            const int64_t end = least(begin + BLOCK, to);
            hidden_layer(f, panels, bias, between, begin, end, hidden);
            if (few) {
                const int64_t columns = between.all_vectors() * LANES<T>;  // beyond, `hidden` is not written
                few_outputs(last, bias + width, outputs, hidden, columns, width, end - begin, out + begin * outputs);
            } else {
                const Rows<T> rows{hidden, end - begin, between.channels, width};
                project(rows, 0, end - begin, last, bias + width, after, results);
                for (int64_t i = begin; i < end; ++i)
                    gather(results + (i - begin) * wide, after, out + i * outputs);
            }
        }
    });
}

}  // namespace TAGAE_ISA
