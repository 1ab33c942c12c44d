// bfloat16: the upper half of a float. Numbers are stored in it, and sums are float.
//
// Our own type, so that the kernels need no header of CUDA and also run on a CPU in the tests.
#pragma once

#include <cstdint>
#include <cstring>

#include "../bodies.h"

namespace tagae {

struct BFloat16 {
    uint16_t bits = 0;

    BFloat16() = default;
    TAGAE_ANYWHERE explicit BFloat16(float x) {
        uint32_t whole;
        memcpy(&whole, &x, sizeof whole);
        // To the nearest, and to even if two are near. What is not a number stays so.
        bits = x != x ? 0x7fc0 : uint16_t((whole + 0x7fff + ((whole >> 16) & 1)) >> 16);
    }
    TAGAE_ANYWHERE operator float() const {
        const uint32_t whole = uint32_t(bits) << 16;
        float x;
        memcpy(&x, &whole, sizeof x);
        return x;
    }
};

template <>
struct SumOf<BFloat16> {
    using Type = float;
};

}  // namespace tagae
