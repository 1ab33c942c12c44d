// Vectors of LANES numbers, and what the ops need of them: exp, GELU, transposition and sums across lanes.
//
// This file and those that include it are compiled once per instruction set, each time into another namespace
// (TAGAE_ISA). They use no function of the standard library: the linker would keep one copy of an inline function for
// all instruction sets, and that copy could use instructions that the processor does not have.
#pragma once

#include <cstddef>
#include <cstdint>

#define TAGAE_INLINE inline __attribute__((always_inline))

namespace TAGAE_ISA {

template <class T>
struct VectorOf {
    typedef T type __attribute__((vector_size(TAGAE_VECTOR_BYTES)));
};
template <class T>
using Vector = typename VectorOf<T>::type;
template <class T>
constexpr int LANES = TAGAE_VECTOR_BYTES / sizeof(T);

template <class T>
TAGAE_INLINE Vector<T> load(const T* from) {
    Vector<T> v;
    __builtin_memcpy(&v, from, sizeof v);
    return v;
}

template <class T>
TAGAE_INLINE void store(T* to, Vector<T> v) {
    __builtin_memcpy(to, &v, sizeof v);
}

// The first `count` lanes; zeros in the others.
template <class T>
TAGAE_INLINE Vector<T> load_first(const T* from, int64_t count) {
    Vector<T> v = {};
    if (count >= LANES<T>) return load(from);
    for (int64_t i = 0; i < count; ++i) v[i] = from[i];
    return v;
}

template <class T>
TAGAE_INLINE void store_first(T* to, Vector<T> v, int64_t count) {
    if (count >= LANES<T>) return store(to, v);
    for (int64_t i = 0; i < count; ++i) to[i] = v[i];
}

template <class T>
TAGAE_INLINE Vector<T> broadcast(T x) {
    return Vector<T>{} + x;
}

template <class T>
TAGAE_INLINE T sum(Vector<T> v) {
    T total = 0;
    for (int i = 0; i < LANES<T>; ++i) total += v[i];
    return total;
}

// exp: 2^n times a polynomial of the rest, |rest| <= ln 2 / 2 (Cephes); below -87 as at -87, which is 1.6e-38.
TAGAE_INLINE Vector<float> exp(Vector<float> x) {
    typedef int32_t Integers __attribute__((vector_size(TAGAE_VECTOR_BYTES)));
    x = x < -87.0f ? broadcast(-87.0f) : x;
    x = x > 88.0f ? broadcast(88.0f) : x;
    const Vector<float> shifted = x * 1.44269504088896341f + 12582912.0f;  // 1.5 * 2^23: rounds to whole numbers
    const Vector<float> n = shifted - 12582912.0f;
    const Vector<float> r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    Vector<float> p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    return p * (Vector<float>)((__builtin_convertvector(n, Integers) + 127) << 23);
}

TAGAE_INLINE Vector<double> exp(Vector<double> x) {
    for (int i = 0; i < LANES<double>; ++i) x[i] = __builtin_exp(x[i]);
    return x;
}

// x/2 (1 + erf(x / sqrt 2)). Between -5.6 and 5.6, erf(x / sqrt 2) / x is a polynomial of x^2, fitted at Chebyshev
// nodes; the largest error of the result is 9e-7, at 5.6. Beyond, the result is x or 0 to the last bit.
TAGAE_INLINE Vector<float> gelu(Vector<float> x) {
    constexpr float LIMIT = 5.6f;
    constexpr float FIT[] = {
        0.2525192201137543f,  -0.12610290944576263f,  0.09395982325077057f,  -0.0766768679022789f,
        0.0639745369553566f,  -0.052792202681303024f, 0.04165184497833252f,  -0.03063349984586239f,
        0.022699253633618355f, -0.01739904098212719f, 0.009490388445556164f, -0.002466758945956826f,
        0.0025316718965768814f, -0.0035849360283464193f, 0.001400932320393622f,
    };
    const Vector<float> t = x * x * (2.0f / (LIMIT * LIMIT)) - 1.0f;
    Vector<float> p = broadcast(FIT[14]);
#pragma GCC unroll 14
    for (int i = 13; i >= 0; --i) p = p * t + FIT[i];
    const Vector<float> half = x * 0.5f;
    const Vector<float> inside = half + half * (x * p);
    const Vector<float> above = x > LIMIT ? x : inside;
    return x < -LIMIT ? Vector<float>{} : above;
}

TAGAE_INLINE Vector<double> gelu(Vector<double> x) {
    for (int i = 0; i < LANES<double>; ++i) x[i] *= 0.5 * (1.0 + __builtin_erf(x[i] * 0.70710678118654752440));
    return x;
}

// Lanes of two vectors mixed so that blocks of STEP lanes change places: one stage of a transposition.
template <int STEP, class V, int... LANE>
TAGAE_INLINE void swap_blocks(V& a, V& b, __attribute__((unused)) const int (*)[sizeof...(LANE)]) {
    constexpr int N = sizeof...(LANE);
    const V low = __builtin_shufflevector(a, b, ((LANE & STEP) ? N + LANE - STEP : LANE)...);
    b = __builtin_shufflevector(a, b, ((LANE & STEP) ? N + LANE : LANE + STEP)...);
    a = low;
}

template <int STEP, class V>
TAGAE_INLINE void swap_blocks(V& a, V& b) {
    constexpr int N = sizeof(V) / sizeof(a[0]);
    if constexpr (N == 16)
        swap_blocks<STEP, V, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15>(a, b, nullptr);
    else if constexpr (N == 8)
        swap_blocks<STEP, V, 0, 1, 2, 3, 4, 5, 6, 7>(a, b, nullptr);
    else if constexpr (N == 4)
        swap_blocks<STEP, V, 0, 1, 2, 3>(a, b, nullptr);
    else
        swap_blocks<STEP, V, 0, 1>(a, b, nullptr);
}

template <class T, int STEP = LANES<T> / 2>
TAGAE_INLINE void transpose(Vector<T> (&x)[LANES<T>]) {
    if constexpr (STEP > 0) {
#pragma GCC unroll 16
        for (int i = 0; i < LANES<T>; ++i)
            if (!(i & STEP)) swap_blocks<STEP>(x[i], x[i + STEP]);
        transpose<T, STEP / 2>(x);
    }
}

// Lane i of the result is the sum of all lanes of x[i]: a transposition that adds as it goes.
template <class T, int STEP = LANES<T> / 2>
TAGAE_INLINE Vector<T> sums(Vector<T> (&x)[LANES<T>]) {
    if constexpr (STEP > 0) {
#pragma GCC unroll 16
        for (int i = 0; i < STEP; ++i) {
            swap_blocks<STEP>(x[i], x[i + STEP]);
            x[i] += x[i + STEP];
        }
        return sums<T, STEP / 2>(x);
    } else {
        return x[0];
    }
}

}  // namespace TAGAE_ISA
