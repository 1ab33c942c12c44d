// Attention over the neighbours of each service, for blocks of services whose numbers stay in the cache. The logits of
// a block are [slots, H]; there is no array of the size slots times channels.
#pragma once

#include "panel.h"

namespace TAGAE_ISA {

using tagae::Use;
using tagae::workspace;

constexpr int64_t BLOCK = 48;  // services
constexpr int64_t CHUNK = 24;  // slots whose products stay in the first-level cache

template <class T>
T* numbers(Use use, int64_t count) {
    return static_cast<T*>(workspace(use, count * sizeof(T)));
}

template <class Body>
void in_parallel(int64_t count, int64_t grain, Body body) {
    const auto call = [](void* context, int64_t begin, int64_t end) { (*static_cast<Body*>(context))(begin, end); };
    tagae::parallel(count, grain, call, &body);
}

// Arguments with weights packed, and rows of keys in the layout of panels. Shared by all threads.
template <class T>
struct Prepared {
    const tagae::Attend<T>& arguments;
    Layout<T> layout;
    Rows<T> key;
    const T* trajectory_panels;
    const T* attention;  // spread
};

// out[s - first][h] of the slots of services [begin, end): attention[h] . leaky_relu(query + key + weight trajectory).
// GROUP vectors of a panel belong to one head.
template <int GROUP, class T>
void logits(const Prepared<T>& p, const T* query, int64_t begin, int64_t end, T* out) {
    constexpr int N = LANES<T>;
    const tagae::Attend<T>& a = p.arguments;
    const int64_t first = a.indptr[begin], last = a.indptr[end];
    const int64_t heads = p.layout.heads, width = p.layout.width(), T_ = a.trajectory.columns;
    const bool whole = p.layout.vectors == GROUP;  // a group is a head, so products are written, not added
    int64_t* targets = numbers<int64_t>(Use::TARGETS, last - first);
    for (int64_t i = begin; i < end; ++i)
        for (int64_t s = a.indptr[i]; s < a.indptr[i + 1]; ++s) targets[s - first] = i - begin;
    T* parts = numbers<T>(Use::PARTS, (CHUNK * heads + N) * N);
    const T slope = a.negative_slope;
    for (int64_t chunk = first; chunk < last; chunk += CHUNK) {
        const int64_t count = least(CHUNK, last - chunk);
        if (!whole)
            for (int64_t i = 0; i < count * heads; ++i) store(parts + i * N, Vector<T>{});
        for (int64_t place = 0; place < width; place += WIDTH<T>) {
            int64_t head[VECTORS / GROUP];
            for (int g = 0; g < VECTORS / GROUP; ++g)
                head[g] = least((place / N + g * GROUP) / p.layout.vectors, heads - 1) * N;
            for_tiles(0, count, [&](int64_t slot, auto tile) __attribute__((always_inline)) {
                constexpr int R = decltype(tile)::value;
                const T* rows[R];
                Tile<T, R, VECTORS> u;
#pragma GCC unroll 8
                for (int r = 0; r < R; ++r) {
                    const int64_t s = chunk + slot + r;
                    rows[r] = a.trajectory[a.edges[s]];
                    const T* q = query + targets[s - first] * width + place;
                    const T* k = p.key[a.indices[s]] + place;
#pragma GCC unroll 8
                    for (int v = 0; v < VECTORS; ++v) u[r][v] = load(q + v * N) + load(k + v * N);
                }
                multiply<R, VECTORS, T>(rows, T_, p.trajectory_panels + place * T_, u);
#pragma GCC unroll 8
                for (int g = 0; g < VECTORS / GROUP; ++g) {
                    if (place / N + g * GROUP >= p.layout.all_vectors()) break;  // beyond, nothing is written
#pragma GCC unroll 8
                    for (int r = 0; r < R; ++r) {
                        Vector<T> total = {};
#pragma GCC unroll 8
                        for (int v = g * GROUP; v < (g + 1) * GROUP; ++v) {
                            const Vector<T> x = u[r][v] > 0 ? u[r][v] : u[r][v] * slope;
                            total += x * load(p.attention + place + v * N);
                        }
                        T* to = parts + (slot + r) * heads * N + head[g];
                        store(to, whole ? total : load<T>(to) + total);
                    }
                }
            });
        }
        for (int64_t i = 0; i < count * heads; i += N) {
            Vector<T> block[N];
#pragma GCC unroll 16
            for (int l = 0; l < N; ++l) block[l] = load(parts + (i + l) * N);
            store_first(out + (chunk - first) * heads + i, sums<T>(block), count * heads - i);
        }
    }
}

// Softmax over the slots of each service, in place. HEADS 0: any number of them.
template <int HEADS, class T>
void softmax(const Prepared<T>& p, int64_t begin, int64_t end, T* logits) {
    constexpr int N = LANES<T>;
    const int64_t* indptr = p.arguments.indptr;
    const int64_t heads = HEADS ? HEADS : p.layout.heads, first = indptr[begin];
    const auto each = [&](auto body) __attribute__((always_inline)) {
        for (int64_t i = begin; i < end; ++i)
            for (int64_t h = 0; h < heads; ++h)
                body(logits + (indptr[i] - first) * heads + h, (indptr[i + 1] - indptr[i]) * heads);
    };
    each([&](T* x, int64_t last) __attribute__((always_inline)) {
        if (!last) return;
        T largest = x[0];
        for (int64_t s = heads; s < last; s += heads) largest = x[s] > largest ? x[s] : largest;
        for (int64_t s = 0; s < last; s += heads) x[s] -= largest;
    });
    for (int64_t i = 0, count = (indptr[end] - first) * heads; i < count; i += N)
        store_first(logits + i, exp(load_first(logits + i, count - i)), count - i);
    each([&](T* x, int64_t last) __attribute__((always_inline)) {
        T total = 0;
        for (int64_t s = 0; s < last; s += heads) total += x[s];
        const T scale = T(1) / total;
        for (int64_t s = 0; s < last; s += heads) x[s] *= scale;
    });
}

// values[i - begin]: sums of alpha key, in the layout of panels. sums[i - begin][h]: of alpha trajectory.
template <class T>
void weighted_sums(const Prepared<T>& p, const T* alpha, int64_t begin, int64_t end, T* values, T* sums) {
    constexpr int N = LANES<T>;
    const tagae::Attend<T>& a = p.arguments;
    const int64_t heads = p.layout.heads, width = p.layout.width(), T_ = a.trajectory.columns, base = a.indptr[begin];
    for (int64_t i = begin; i < end; ++i) {
        const int64_t first = a.indptr[i], last = a.indptr[i + 1];
        for (int64_t place = 0; place < width; place += WIDTH<T>) {
            int64_t head[VECTORS];
            for (int v = 0; v < VECTORS; ++v) head[v] = least((place / N + v) / p.layout.vectors, heads - 1);
            Vector<T> total[VECTORS] = {};
            for (int64_t s = first; s < last; ++s) {
                const T* k = p.key[a.indices[s]] + place;
                const T* w = alpha + (s - base) * heads;
#pragma GCC unroll 8
                for (int v = 0; v < VECTORS; ++v) total[v] += load(k + v * N) * w[head[v]];
            }
#pragma GCC unroll 8
            for (int v = 0; v < VECTORS; ++v) store(values + (i - begin) * width + place + v * N, total[v]);
        }
        for (int64_t h = 0; h < heads; ++h)
            for (int64_t t = 0; t < T_; t += N) {
                Vector<T> total = {};
                for (int64_t s = first; s < last; ++s)
                    total += load_first(a.trajectory[a.edges[s]] + t, T_ - t) * alpha[(s - base) * heads + h];
                store_first(sums + ((i - begin) * heads + h) * T_ + t, total, T_ - t);
            }
    }
}

// One block of services, whose queries are in the layout of panels.
template <class T>
void attend_block(const Prepared<T>& p, const T* query, int64_t begin, int64_t end, T* values, T* sums) {
    const int64_t slots = p.arguments.indptr[end] - p.arguments.indptr[begin];
    T* alpha = numbers<T>(Use::LOGITS, slots * p.layout.heads);
    if (p.layout.vectors % 4 == 0 && VECTORS == 4)
        logits<VECTORS>(p, query, begin, end, alpha);
    else if (p.layout.vectors % 2 == 0)
        logits<2>(p, query, begin, end, alpha);
    else
        logits<1>(p, query, begin, end, alpha);
    if (p.layout.heads == 4)
        softmax<4>(p, begin, end, alpha);
    else
        softmax<0>(p, begin, end, alpha);
    weighted_sums(p, alpha, begin, end, values, sums);
}

// Rows [begin, end) in the layout of panels: where they are, or copied.
template <class T>
Rows<T> in_layout(const Rows<T>& rows, const Layout<T>& layout, int64_t begin, int64_t end, Use use) {
    if (layout.plain()) return {rows[begin], end - begin, rows.columns, rows.stride};
    T* to = numbers<T>(use, (end - begin) * layout.width());
    for (int64_t i = begin; i < end; ++i) spread(rows[i], layout, to + (i - begin) * layout.width());
    return {to, end - begin, layout.width(), layout.width()};
}

template <class T>
void attend(const tagae::Attend<T>& a, T* values, T* trajectories) {
    const Layout<T> layout(a.attention.count, a.attention.columns);
    const int64_t width = layout.width(), channels = layout.heads * layout.channels, T_ = a.trajectory.columns;
    T* panels = numbers<T>(Use::PANELS, width * T_);
    T* attention = numbers<T>(Use::VECTORS, width);
    pack_weight(a.trajectory_weight, layout, panels);
    spread(a.attention.data, layout, attention);
    const Prepared<T> p{a, layout, in_layout(a.key, layout, 0, a.key.count, Use::KEYS), panels, attention};
    in_parallel(a.query.count, BLOCK, [&](int64_t from, int64_t to) {
        for (int64_t begin = from; begin < to; begin += BLOCK) {
            const int64_t end = least(begin + BLOCK, to);
            T* query = numbers<T>(Use::QUERIES, BLOCK * width);
            T* block = numbers<T>(Use::VALUES, BLOCK * width);
            for (int64_t i = begin; i < end; ++i) spread(a.query[i], layout, query + (i - begin) * width);
            attend_block(p, query, begin, end, block, trajectories + begin * layout.heads * T_);
            for (int64_t i = begin; i < end; ++i) gather(block + (i - begin) * width, layout, values + i * channels);
        }
    });
}

template <class T>
void project_and_attend(const tagae::ProjectAndAttend<T>& f, T* out) {
    constexpr int N = LANES<T>;
    const tagae::Attend<T>& a = f.attend;
    const Layout<T> layout(a.attention.count, a.attention.columns);
    const int64_t width = layout.width(), channels = layout.heads * layout.channels, T_ = a.trajectory.columns;
    const int64_t nodes = f.x.count, inputs = f.x.columns;
    T* query_panels = numbers<T>(Use::PANELS, width * (2 * inputs + 2 * T_));
    T* key_panels = query_panels + width * inputs;
    T* trajectory_panels = key_panels + width * inputs;
    T* value_panels = trajectory_panels + width * T_;
    T* query_bias = numbers<T>(Use::VECTORS, 3 * width);
    T *key_bias = query_bias + width, *attention = key_bias + width;
    pack_weight(f.query.weight, layout, query_panels);
    pack_weight(f.key.weight, layout, key_panels);
    pack_weight(a.trajectory_weight, layout, trajectory_panels);
    pack_weight(f.trajectory_value, layout, value_panels);
    spread(f.query.bias, layout, query_bias);
    spread(f.key.bias, layout, key_bias);
    spread(a.attention.data, layout, attention);
    T* keys = numbers<T>(Use::KEYS, nodes * width);
    in_parallel(nodes, BLOCK, [&](int64_t from, int64_t to) {
        for (int64_t begin = from; begin < to; begin += BLOCK)
            project(f.x, begin, least(begin + BLOCK, to), key_panels, key_bias, layout, keys + begin * width);
    });
    const Prepared<T> p{a, layout, {keys, nodes, width, width}, trajectory_panels, attention};
    in_parallel(nodes, BLOCK, [&](int64_t from, int64_t to) {
        for (int64_t begin = from; begin < to; begin += BLOCK) {
            const int64_t end = least(begin + BLOCK, to);
            T* query = numbers<T>(Use::QUERIES, BLOCK * width);
            T* values = numbers<T>(Use::VALUES, BLOCK * width);
            T* sums = numbers<T>(Use::SUMS, BLOCK * layout.heads * T_);
            project(f.x, begin, end, query_panels, query_bias, layout, query);
            attend_block(p, query, begin, end, values, sums);
            for (int64_t vector = 0; vector < layout.all_vectors(); ++vector) {
                const int64_t head = vector / layout.vectors;
                const T* panel = value_panels + vector / VECTORS * WIDTH<T> * T_ + vector % VECTORS * N;
                for_tiles(0, end - begin, [&](int64_t first, auto tile) __attribute__((always_inline)) {
                    constexpr int R = decltype(tile)::value;
                    const T* rows[R];
                    Tile<T, R, 1> total;
#pragma GCC unroll 8
                    for (int r = 0; r < R; ++r) {
                        rows[r] = sums + ((first + r) * layout.heads + head) * T_;
                        total[r][0] = load(values + (first + r) * width + vector * N);
                    }
                    multiply<R, 1, T>(rows, T_, panel, total);
#pragma GCC unroll 8
                    for (int r = 0; r < R; ++r) store(values + (first + r) * width + vector * N, total[r][0]);
                });
            }
            for (int64_t i = begin; i < end; ++i) gather(values + (i - begin) * width, layout, out + i * channels);
        }
    });
}

}  // namespace TAGAE_ISA
