// The filters of series, and how far each is from its own past: `update_filters` of model/state/filters.py in one pass.
#pragma once

#include "numbers.h"
#include "passes.h"

namespace TAGAE_ISA {

enum Slot { CENTRE, VARIANCE, SLOW_CENTRE, SLOW_VARIANCE, SHORT, LONG, SEEN, COUNT, SUM = COUNT + tagae::SCALES };

constexpr int MAX_IN_BLOCK = BLOCK_ROWS * tagae::MAX_CHANNELS;

// One pair of centre and variance moves towards the value. Young filters move faster, like a plain mean.
TAGAE_INLINE void learn(
    const tagae::FilterConstants& k, Mask learns, float forget, Floats value, Floats spread, Floats seen,
    Floats& centre, Floats& variance) {
    const Floats none = {}, reach = k.clip * spread;
    const Floats innovation = learns ? clip(value - centre, -reach, reach) : none;
    const Floats change = k.clip_consistency * (innovation * innovation) - variance;
    variance += learns ? larger(1.0f / (seen + k.prior_weight), forget) * change : none;
    centre += larger(1.0f / (seen + 1.0f), forget) * innovation;
}

// The vector at `at`. `limit` is of deviations; `sure` is how far the snapshot confirms or denies the averages: 1 unless
// its block has rows with few requests.
template <bool HAS_FEW, class Lanes>
TAGAE_INLINE void update_vector(
    const tagae::FilterPass& f, const tagae::FilterConstants& k, int64_t at, Lanes lanes, Floats floor, Mask two_sided,
    Mask muted, Mask paused, Floats limit, Floats sure) {
    const int64_t size = f.rows * f.channels;
    const auto slot = [&](int i) { return get(f.before + i * size + at, lanes); };
    const auto keep = [&](int i, Floats v) { put(f.after + i * size + at, v, lanes); };
    const Floats none = {}, one = none + 1.0f;
    const Floats value = get(f.value + at, lanes), noise = get(f.noise + at, lanes), seen = slot(SEEN);
    const Mask measured = get_mask(f.measured + at, lanes), known = measured & (seen > 0.0f);
    const Mask first = measured & (seen == 0.0f);
    Floats centre = first ? value : slot(CENTRE), slow_centre = first ? value : slot(SLOW_CENTRE);
    Floats variance = slot(VARIANCE), slow_variance = slot(SLOW_VARIANCE);
    const Floats uncertainty = 1.0f + 1.0f / larger(seen, 1.0f);
    const Floats spread = square_root((larger(variance, noise) + floor) * uncertainty);
    const Floats slow_spread = square_root((larger(slow_variance, noise) + floor) * uncertainty);
    const Floats fast = (value - centre) / spread, slow = (value - slow_centre) / slow_spread;
    const Mask nearer = absolute(slow) < absolute(fast), same_side = fast * slow > 0.0f;
    const Floats smallest = nearer ? slow : fast;
    const Floats now = clip((known & same_side) ? smallest : none, -limit, limit);
    put(f.now + at, now, lanes);
    put(f.expected + at, nearer ? slow_centre : centre, lanes);
    put(f.spread + at, nearer ? slow_spread : spread, lanes);
    put_mask(f.known + at, known, lanes);

    const Mask learns = measured & ~(paused & (absolute(now) >= k.clip));
    learn(k, learns, k.fast, value, spread, seen, centre, variance);
    learn(k, learns, k.slow, value, slow_spread, seen, slow_centre, slow_variance);
    keep(CENTRE, centre);
    keep(VARIANCE, variance);
    keep(SLOW_CENTRE, slow_centre);
    keep(SLOW_VARIANCE, slow_variance);
    const Floats past_short = slot(SHORT), past_long = slot(LONG), bounded = clip(now, -k.bound, k.bound);
    const Floats lately = past_short + (measured ? bounded - past_short : none) * k.short_rate;
    const Floats longer = past_long + (measured ? bounded - past_long : none) * k.long_rate;
    keep(SHORT, lately);
    keep(LONG, longer);
    keep(SEEN, seen + (measured ? one : none));

    const Mask remembered = absolute(lately) > k.memorable;
    const Floats recent = HAS_FEW ? sure * now + (1.0f - sure) * lately : now;
    const Floats share = clip(recent / (remembered ? k.support * lately : one), 0.0f, 1.0f);
    const Floats present = remembered ? share : one;
    const Mask lasted = absolute(longer) > k.memorable;
    const Floats surely = smaller(sure / k.short_rate, 1.0f);
    const Floats recently = HAS_FEW ? surely * lately + (1.0f - surely) * longer : lately;
    const Floats confirmed = clip(recently / (lasted ? k.support * longer : one), 0.0f, 1.0f);
    const Floats going_on = lasted ? confirmed : one;
    const Floats signed_levels[] = {
        now * present, lately * present * k.short_scale, longer * present * going_on * k.long_scale};
    const Floats past[] = {past_short, past_short, past_long};
    const Mask teaches = known & ~muted;
    const Floats fade = teaches ? none + k.fade : one;
#pragma GCC unroll 3
    for (int s = 0; s < tagae::SCALES; ++s) {
        const Floats level = two_sided ? absolute(signed_levels[s]) : signed_levels[s];
        put(f.level + s * size + at, level, lanes);
        const Mask begins = teaches & (level > k.tail_start) & (absolute(past[s]) < k.rested[s]);
        keep(COUNT + s, slot(COUNT + s) * fade + (begins ? one : none));
        keep(SUM + s, slot(SUM + s) * fade + (begins ? smaller(level - k.tail_start, k.excess_limit) : none));
    }
}

template <bool VALUE>
struct Flag {
    static constexpr bool value = VALUE;
};

inline void update_filters(const tagae::FilterPass& f) {
    const tagae::FilterConstants k = *f.constants;
    float floor[MAX_IN_BLOCK], alone[MAX_IN_BLOCK], weight[MAX_IN_BLOCK], requests[MAX_IN_BLOCK];
    uint8_t two_sided[MAX_IN_BLOCK], muted[MAX_IN_BLOCK], paused[MAX_IN_BLOCK];
    for (int64_t r = 0; r < BLOCK_ROWS; ++r)
        for (int64_t c = 0; c < f.channels; ++c) {
            floor[r * f.channels + c] = f.floor[c];
            alone[r * f.channels + c] = f.alone[c];
            weight[r * f.channels + c] = f.weight[c];
            two_sided[r * f.channels + c] = f.two_sided[c];
        }
    in_blocks(f.rows, [&](int64_t row, int64_t rows) {
        bool has_few = false;
        for (int64_t r = 0; r < rows; ++r) has_few |= f.requests[row + r] < k.enough;
        for (int64_t r = 0; r < rows; ++r) {
            __builtin_memset(muted + r * f.channels, f.muted[row + r], f.channels);
            __builtin_memset(paused + r * f.channels, f.paused[row + r], f.channels);
        }
        const auto update = [&](auto few) {
            in_vectors(rows * f.channels, [&](int64_t i, auto lanes) {
                Floats limit = broadcast(k.limit), sure = broadcast(1.0f);
                if constexpr (few.value) {
                    const Floats made = get(requests + i, lanes);
                    limit = made < get(alone + i, lanes) ? broadcast(k.clip) : limit;
                    sure = smaller(made * get(weight + i, lanes), sure);
                }
                update_vector<few.value>(
                    f, k, row * f.channels + i, lanes, get(floor + i, lanes), get_mask(two_sided + i, lanes),
                    get_mask(muted + i, lanes), get_mask(paused + i, lanes), limit, sure);
            });
        };
        if (!has_few) return update(Flag<false>{});
        for (int64_t r = 0; r < rows; ++r)
            for (int64_t c = 0; c < f.channels; ++c) requests[r * f.channels + c] = f.requests[row + r];
        update(Flag<true>{});
    });
}

}  // namespace TAGAE_ISA
