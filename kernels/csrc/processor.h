// What both libraries share: the choice of an instruction set, and the check of indices.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#define TAGAE_EXPORT extern "C" __attribute__((visibility("default")))

namespace tagae {

// Code for one instruction set. TAGAE_COMPILED lists what exists for this kind of processor, the best first.
template <class Code>
struct Compiled {
    const char* name;
    bool is_supported;  // by this processor
    const Code* code;
};

#if defined(__aarch64__)

#define TAGAE_COMPILED(neon, avx2, avx512) {{"cpu-neon", true, &neon}}

#else

inline bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

inline bool has_avx512() {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
}

#define TAGAE_COMPILED(neon, avx2, avx512) \
    {{"cpu-avx512", tagae::has_avx512(), &avx512}, {"cpu-avx2", tagae::has_avx2(), &avx2}}

#endif

// The first that this processor supports, or the one that is `wanted` if that is not empty; nullptr if there is none.
template <class Code, size_t N>
const Compiled<Code>* choose(const Compiled<Code> (&compiled)[N], const char* wanted) {
    for (const auto& one : compiled)
        if (one.is_supported && (!*wanted || !std::strcmp(wanted, one.name))) return &one;
    return nullptr;
}

inline bool are_below(const int64_t* numbers, int64_t count, int64_t limit) {
    uint64_t largest = 0;
    for (int64_t i = 0; i < count; ++i) largest = std::max(largest, static_cast<uint64_t>(numbers[i]));
    return !count || largest < static_cast<uint64_t>(limit);  // negative ones are large
}

}  // namespace tagae
