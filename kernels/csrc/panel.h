// Products of matrices: rows of one operand, times a panel of the other.
//
// A panel holds WIDTH rows of a weight side by side: panel[k * WIDTH + lane] is column k of row `lane`. Packing costs
// a pass over the weight at each call, about 10 us for all weights of the network, and saves any memory between calls.
#pragma once

#include "bodies.h"
#include "lanes.h"

namespace TAGAE_ISA {

constexpr int ROWS = TAGAE_TILE_ROWS;  // rows and vectors whose sums fill the registers
constexpr int VECTORS = TAGAE_TILE_VECTORS;
template <class T>
constexpr int WIDTH = VECTORS * LANES<T>;

template <class T, int R, int V>
using Tile = Vector<T>[R][V];

TAGAE_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
TAGAE_INLINE int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

using tagae::Rows;

// sums[r][v] += rows[r][k] * panel[k][v], over k.
template <int R, int V, class T>
TAGAE_INLINE void multiply(const T* const (&rows)[R], int64_t columns, const T* panel, Tile<T, R, V>& sums) {
    for (int64_t k = 0; k < columns; ++k, panel += WIDTH<T>) {
        Vector<T> b[V];
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) b[v] = load(panel + v * LANES<T>);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
            for (int v = 0; v < V; ++v) sums[r][v] += b[v] * rows[r][k];
    }
}

template <int N>
struct Count {
    static constexpr int value = N;
};

// body(first, Count<R>) over [begin, end) in tiles of ROWS rows; the last tile has the rest.
template <class Body>
TAGAE_INLINE void for_tiles(int64_t begin, int64_t end, Body body) {
    for (; begin + ROWS <= end; begin += ROWS) body(begin, Count<ROWS>{});
    switch (end - begin) {
        case 5: if constexpr (ROWS > 5) body(begin, Count<5>{}); break;
        case 4: if constexpr (ROWS > 4) body(begin, Count<4>{}); break;
        case 3: if constexpr (ROWS > 3) body(begin, Count<3>{}); break;
        case 2: if constexpr (ROWS > 2) body(begin, Count<2>{}); break;
        case 1: if constexpr (ROWS > 1) body(begin, Count<1>{}); break;
    }
}

// Pack up to WIDTH rows of `columns` numbers; row(i) is the i-th, nullptr for zeros. Numbers before `end` may be read.
template <class T, class Row>
TAGAE_INLINE void pack(Row row, int64_t count, int64_t columns, const T* end, T* panel) {
    constexpr int N = LANES<T>;
    for (int v = 0; v < VECTORS; ++v) {
        const T* from[N];
        for (int i = 0; i < N; ++i) from[i] = v * N + i < count ? row(v * N + i) : nullptr;
        for (int64_t k = 0; k < columns; k += N) {
            const int64_t wide = least(N, columns - k);
            Vector<T> block[N];
#pragma GCC unroll 16
            for (int i = 0; i < N; ++i) {
                if (!from[i])
                    block[i] = Vector<T>{};
                else if (from[i] + k + N <= end)
                    block[i] = load(from[i] + k);
                else
                    block[i] = load_first(from[i] + k, wide);
            }
            transpose<T>(block);
            T* to = panel + k * WIDTH<T> + v * N;
#pragma GCC unroll 16
            for (int i = 0; i < N; ++i)
                if (i < wide) store(to + i * WIDTH<T>, block[i]);
        }
    }
}

// Where the channels of H heads stand in panels: each head starts a new vector.
template <class T>
struct Layout {
    int64_t heads, channels, vectors;  // `vectors` of one head

    Layout(int64_t heads, int64_t channels)
        : heads(heads), channels(channels), vectors(ceil_div(channels, LANES<T>)) {}
    int64_t all_vectors() const { return heads * vectors; }
    int64_t panels() const { return ceil_div(all_vectors(), VECTORS); }
    int64_t width() const { return panels() * WIDTH<T>; }
    // Rows of numbers have no gaps, so they can be read where they are.
    bool plain() const { return heads * channels == width(); }
    // The channel in a place of a panel's row; -1 where there is none.
    int64_t channel(int64_t place) const {
        const int64_t head = place / (vectors * LANES<T>), c = place % (vectors * LANES<T>);
        return head < heads && c < channels ? head * channels + c : -1;
    }
};

// Numbers that pack() fills for a weight [H*C, columns].
template <class T>
int64_t packed_size(const Layout<T>& layout, int64_t columns) {
    return layout.width() * columns;
}

template <class T>
void pack_weight(const Rows<T>& weight, const Layout<T>& layout, T* panels) {
    for (int64_t p = 0; p < layout.panels(); ++p) {
        const auto row = [&](int i) -> const T* {
            const int64_t c = layout.channel(p * WIDTH<T> + i);
            return c < 0 ? nullptr : weight[c];
        };
        pack<T>(row, WIDTH<T>, weight.columns, weight.end(), panels + p * WIDTH<T> * weight.columns);
    }
}

// A vector of H*C numbers in the places of its channels; zeros elsewhere.
template <class T>
void spread(const T* from, const Layout<T>& layout, T* to) {
    int64_t place = 0;
    for (int64_t h = 0; h < layout.heads; ++h)
        for (int64_t c = 0; c < layout.vectors * LANES<T>; c += LANES<T>, place += LANES<T>)
            store(to + place, load_first(from + h * layout.channels + c, layout.channels - c));
    for (; place < layout.width(); place += LANES<T>) store(to + place, Vector<T>{});
}

template <class T>
void gather(const T* from, const Layout<T>& layout, T* to) {
    const int64_t stride = layout.vectors * LANES<T>;
    for (int64_t h = 0; h < layout.heads; ++h)
        for (int64_t c = 0; c < layout.channels; c += LANES<T>)
            store_first(to + h * layout.channels + c, load(from + h * stride + c), layout.channels - c);
}

// finish(i, v, sum) for the sums of rows [begin, end), V vectors each: `bias`, and what multiply(first, sums) adds for
// a tile of rows that begins at `first`.
template <int V, class T, class Multiply, class Finish>
TAGAE_INLINE void project_panel(int64_t begin, int64_t end, const T* bias, Multiply multiply, Finish finish) {
    for_tiles(begin, end, [&](int64_t first, auto tile) __attribute__((always_inline)) {
        constexpr int R = decltype(tile)::value;
        Tile<T, R, V> acc;
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
            for (int v = 0; v < V; ++v) acc[r][v] = load(bias + v * LANES<T>);
        multiply(first, acc);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
            for (int v = 0; v < V; ++v) finish(first + r, v, acc[r][v]);
    });
}

// body(place, Count<V>) for each panel; V is less than VECTORS where the panel has fewer.
template <class T, class Body>
TAGAE_INLINE void for_panels(const Layout<T>& layout, Body body) {
    for (int64_t place = 0, left = layout.all_vectors(); left > 0; place += WIDTH<T>, left -= VECTORS)
        if (left == 1)
            body(place, Count<1>{});
        else if (left == 2)
            body(place, Count<2>{});
        else
            body(place, Count<VECTORS>{});
}

// to[i - begin] = bias + weight x[i] for rows [begin, end) of x; `panels` from pack_weight, `bias` spread.
template <class T>
void project(
    const Rows<T>& x, int64_t begin, int64_t end, const T* panels, const T* bias, const Layout<T>& layout, T* to) {
    const int64_t width = layout.width();
    for_panels(layout, [&](int64_t place, auto vectors) __attribute__((always_inline)) {
        constexpr int V = decltype(vectors)::value;
        const auto multiply_rows = [&](int64_t first, auto& acc) __attribute__((always_inline)) {
            constexpr int R = sizeof(acc) / sizeof(acc[0]);
            const T* rows[R];
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r) rows[r] = x[first + r];
            multiply<R, V, T>(rows, x.columns, panels + place * x.columns, acc);
        };
        const auto keep = [&](int64_t i, int v, Vector<T> sum) __attribute__((always_inline)) {
            store(to + (i - begin) * width + place + v * LANES<T>, sum);
        };
        project_panel<V, T>(begin, end, bias + place, multiply_rows, keep);
    });
}

}  // namespace TAGAE_ISA
