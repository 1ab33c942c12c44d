// What both libraries share: the choice of an instruction set, and the check of indices.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#define TAGAE_EXPORT extern "C" __attribute__((visibility("default")))

namespace tagae {

inline constexpr const char* AVX512_NAME = "cpu-avx512";
inline constexpr const char* AVX2_NAME = "cpu-avx2";

// The best instruction set of this processor, or the `wanted` one if that is not empty; nullptr if there is none.
inline const char* choose_instructions(const char* wanted) {
    const auto is_wanted = [wanted](const char* name) { return !*wanted || !std::strcmp(wanted, name); };
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
    if (avx512 && is_wanted(AVX512_NAME)) return AVX512_NAME;
    return avx2 && is_wanted(AVX2_NAME) ? AVX2_NAME : nullptr;
}

inline bool are_below(const int64_t* numbers, int64_t count, int64_t limit) {
    uint64_t largest = 0;
    for (int64_t i = 0; i < count; ++i) largest = std::max(largest, static_cast<uint64_t>(numbers[i]));
    return !count || largest < static_cast<uint64_t>(limit);  // negative ones are large
}

}  // namespace tagae
