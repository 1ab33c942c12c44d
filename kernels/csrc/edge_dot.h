// Inner products of the ends of edges, as many edges at a time as a vector has lanes.
#pragma once

#include "attend.h"

namespace TAGAE_ISA {

template <class T>
void edge_dot(const tagae::EdgeDot<T>& f, T* out) {
    constexpr int N = LANES<T>;
    const int64_t columns = f.source.columns;
    in_parallel(f.count, 1024, [&](int64_t begin, int64_t end) {
        for (int64_t e = begin; e < end; e += N) {
            Vector<T> products[N];
            for (int l = 0; l < N; ++l) {
                Vector<T> total = {};
                if (e + l < end) {
                    const T *a = f.source[f.source_index[e + l]], *b = f.target[f.target_index[e + l]];
                    int64_t c = 0;
                    for (; c + N <= columns; c += N) total += load(a + c) * load(b + c);
                    if (c < columns) total += load_first(a + c, columns - c) * load_first(b + c, columns - c);
                }
                products[l] = total;
            }
            store_first(out + e, sums<T>(products), end - e);
        }
    });
}

}  // namespace TAGAE_ISA
