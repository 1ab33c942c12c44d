// Vectors of float32 for the passes over series.
//
// Compiled without contraction (a * b + c rounds twice), so that +, -, *, / and sqrt give the bits that numpy gives.
#pragma once

#include "lanes.h"

namespace TAGAE_ISA {

using Floats = Vector<float>;
constexpr int N = LANES<float>;
typedef int32_t Mask __attribute__((vector_size(TAGAE_VECTOR_BYTES)));  // -1: true
typedef uint8_t Bytes __attribute__((vector_size(TAGAE_VECTOR_BYTES / 4)));

// How many of the N lanes are in use: all, or the first ones at the end of an array. The others read as 0.
struct All {
    static constexpr size_t count = N;
};
struct First {
    size_t count;
};

template <class Lanes>
TAGAE_INLINE Floats get(const float* from, Lanes lanes) {
    Floats v = {};
    __builtin_memcpy(&v, from, lanes.count * sizeof(float));
    return v;
}

template <class Lanes>
TAGAE_INLINE void put(float* to, Floats v, Lanes lanes) {
    __builtin_memcpy(to, &v, lanes.count * sizeof(float));
}

template <class Lanes>
TAGAE_INLINE Mask get_mask(const uint8_t* from, Lanes lanes) {
    Bytes bytes = {};
    __builtin_memcpy(&bytes, from, lanes.count);
    return __builtin_convertvector(bytes, Mask) != 0;
}

template <class Lanes>
TAGAE_INLINE void put_mask(uint8_t* to, Mask mask, Lanes lanes) {
    const Bytes bytes = __builtin_convertvector(mask & 1, Bytes);
    __builtin_memcpy(to, &bytes, lanes.count);
}

// body(i, lanes) for i = 0, N, 2 N, ... below count.
template <class Body>
TAGAE_INLINE void in_vectors(int64_t count, Body body) {
    int64_t i = 0;
    for (; i + N <= count; i += N) body(i, All{});
    if (i < count) body(i, First{size_t(count - i)});
}

TAGAE_INLINE bool any(Mask mask) {
    int32_t found = 0;
    for (int i = 0; i < N; ++i) found |= mask[i];
    return found;
}

// As in numpy, not a number wins.
TAGAE_INLINE Floats larger(Floats a, Floats b) { return ((a >= b) | (a != a)) ? a : b; }
TAGAE_INLINE Floats smaller(Floats a, Floats b) { return ((a <= b) | (a != a)) ? a : b; }
TAGAE_INLINE Floats larger(Floats a, float b) { return larger(a, broadcast(b)); }
TAGAE_INLINE Floats smaller(Floats a, float b) { return smaller(a, broadcast(b)); }
TAGAE_INLINE Floats clip(Floats x, Floats low, Floats high) { return smaller(larger(x, low), high); }
TAGAE_INLINE Floats clip(Floats x, float low, float high) { return smaller(larger(x, low), high); }
TAGAE_INLINE Floats absolute(Floats x) { return (Floats)((Mask)x & 0x7fffffff); }

TAGAE_INLINE Floats square_root(Floats x) {
    float lanes[N];
    store(lanes, x);
    for (int i = 0; i < N; ++i) lanes[i] = __builtin_sqrtf(lanes[i]);
    return load(lanes);
}

// Natural logarithm of normal numbers above 0, to some units in the last place: a polynomial on [sqrt 1/2, sqrt 2]
// (Cephes).
TAGAE_INLINE Floats log(Floats x) {
    const Mask bits = (Mask)x, exponent = (bits - 0x3f3504f3) >> 23;
    const Floats f = (Floats)(bits - (exponent << 23)) - 1.0f, z = f * f, e = __builtin_convertvector(exponent, Floats);
    Floats p = f * 7.0376836292e-2f - 1.1514610310e-1f;
    p = p * f + 1.1676998740e-1f;
    p = p * f - 1.2420140846e-1f;
    p = p * f + 1.4249322787e-1f;
    p = p * f - 1.6668057665e-1f;
    p = p * f + 2.0000714765e-1f;
    p = p * f - 2.4999993993e-1f;
    p = p * f + 3.3333331174e-1f;
    const Floats y = (p * f * z + e * -2.12194440e-4f) - 0.5f * z;
    return (f + y) + e * 0.693359375f;
}

TAGAE_INLINE Floats log10(Floats x) { return log(x) * 0.43429448190325182f; }

// Rows in blocks: the numbers of a block fill whole vectors, except those of the last block.
constexpr int BLOCK_ROWS = 16;
template <class Body>
TAGAE_INLINE void in_blocks(int64_t rows, Body body) {
    for (int64_t first = 0; first < rows; first += BLOCK_ROWS)
        body(first, first + BLOCK_ROWS < rows ? BLOCK_ROWS : rows - first);
}

}  // namespace TAGAE_ISA
