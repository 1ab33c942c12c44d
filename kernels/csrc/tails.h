// How rare each deviation is: `SeriesTail.calibrate` of model/scoring/calibration.py in one pass.
#pragma once

#include "filters.h"

namespace TAGAE_ISA {

enum Impact { EXPOSED_SEEN, EXPOSED_BEGUN, EXPOSED_ABOVE, EXPOSED_EXCESS };

// The surprise of the start of a tail, from the rate of its spells.
TAGAE_INLINE Floats start_of(Floats rate) { return -log10(smaller(rate, 0.5f)); }

class Tails {
  public:
    explicit Tails(const tagae::TailPass& f)
        : f_(f), k_(*f.constants), size_(f.rows * f.channels), tails_(tagae::SCALES * f.channels) {
        for (int s = 0; s < tagae::SCALES; ++s)
            for (int64_t i = 0; i < BLOCK_ROWS * f.channels; ++i)
                shipped_[s][i] = f.rate[s * f.channels + i % f.channels] * k_.rate_weight;
    }

    void run() {
        in_blocks(f_.rows, [&](int64_t row, int64_t rows) {
            const int64_t at = row * f_.channels, count = rows * f_.channels;
            in_vectors(count, [&](int64_t i, auto lanes) { start_vector(at, i, lanes); });
            for (int64_t r = 0; r < rows; ++r)
                if (f_.exposure[row + r]) start_exposed(f_.exposure[row + r], r);
            in_vectors(count, [&](int64_t i, auto lanes) {
                if (!any(surprise_vector(at, i, lanes))) return;
                for (int64_t j = i; j < i + int64_t(lanes.count); ++j)
                    add_beyond(f_.exposure[row + j / f_.channels], j % f_.channels, at, j);
            });
            in_vectors(count, [&](int64_t i, auto lanes) {
                put(f_.surprise + at + i, bounded(load(surprise_ + i)), lanes);
                put(f_.raw + at + i, bounded(load(raw_ + i)), lanes);
            });
        });
    }

  private:
    // Start of the tails of series that are not exposed.
    template <class Lanes>
    TAGAE_INLINE void start_vector(int64_t at, int64_t i, Lanes lanes) {
        const Floats seen = smaller(get(f_.seen + at + i, lanes), k_.tail_memory) + k_.rate_weight;
#pragma GCC unroll 3
        for (int s = 0; s < tagae::SCALES; ++s) {
            const Floats begun = get(shipped_[s] + i, lanes) + get(f_.exceed_count + s * size_ + at + i, lanes);
            store(start_[s] + i, start_of(begun / seen));
        }
    }

    // Start of the tails of one row of the block near a planned change.
    void start_exposed(int64_t kind, int64_t r) {
        for (int s = 0; s < tagae::SCALES; ++s)
            for (int64_t c = 0; c < f_.channels; ++c) {
                const int64_t which = (kind * tagae::SCALES + s) * f_.channels + c;
                const float begun = impact(EXPOSED_BEGUN, which) + f_.rate[which] * k_.rate_weight;
                const float rate = begun / (impact(EXPOSED_SEEN, which) + k_.rate_weight);
                start_[s][r * f_.channels + c] = start_of(broadcast(rate))[0];
            }
    }

    // Surprise up to the start of the tails; returns which levels are beyond it.
    template <class Lanes>
    TAGAE_INLINE Mask surprise_vector(int64_t at, int64_t i, Lanes lanes) {
        const auto column = [&](const float* from) { return get(from + at + i, lanes); };
        const Floats none = {}, now = column(f_.now);
        const Floats share = clip(now * column(f_.predicted) / (now * now + 1.0f), 0.0f, k_.explained_at_most);
        const Floats rest = 1.0f - share;
        put(f_.explained + at + i, column(f_.expected) + share * now * column(f_.spread), lanes);
        store(rest_ + i, rest);
        const Mask observed = get_mask(f_.observed + at + i, lanes);
        Floats left = none, raw = none;
        Mask far = {};
#pragma GCC unroll 3
        for (int s = 0; s < tagae::SCALES; ++s) {
            const Floats level = column(f_.level + s * size_), start = load(start_[s] + i);
            left = larger(clip(level * rest * (1.0f / k_.tail_start), 0.0f, 1.0f) * start, left);
            raw = larger(clip(level * (1.0f / k_.tail_start), 0.0f, 1.0f) * start, raw);
            far |= level > k_.tail_start;
        }
        store(surprise_ + i, observed ? left : none);
        store(raw_ + i, observed ? raw : none);
        return far & observed;
    }

    // Add to one series of the block what its levels beyond the start of their tails add. Few are.
    void add_beyond(int64_t kind, int64_t channel, int64_t at, int64_t i) {
        if (!f_.observed[at + i]) return;
        for (int s = 0; s < tagae::SCALES; ++s) {
            const float level = f_.level[s * size_ + at + i], start = start_[s][i];
            if (!(level > k_.tail_start)) continue;
            const int64_t which = (kind * tagae::SCALES + s) * f_.channels + channel, series = s * size_ + at + i;
            const float count = kind ? impact(EXPOSED_ABOVE, which) : f_.exceed_count[series];
            const float total = kind ? impact(EXPOSED_EXCESS, which) : f_.exceed_sum[series];
            const float excess = (total + f_.mean_excess[which] * k_.scale_weight) / (count + k_.scale_weight);
            const float shape = f_.shape[which] > 1e-3f ? f_.shape[which] : 1e-3f;
            const auto beyond = [&](float height, float found) {
                const float over = height - k_.tail_start;
                if (!(over > 0)) return found;
                const float more = start + __builtin_log10f(1.0f + shape * over / (excess * (1.0f - shape))) / shape;
                return more > found ? more : found;
            };
            surprise_[i] = beyond(level * rest_[i], surprise_[i]);
            raw_[i] = beyond(level, raw_[i]);
        }
    }

    // Less log10 of the number of scales (Bonferroni).
    TAGAE_INLINE Floats bounded(Floats surprise) { return clip(surprise - 0.47712125471966244f, 0.0f, k_.limit); }

    float impact(Impact slot, int64_t which) { return f_.impact[slot * f_.exposures * tails_ + which]; }

    const tagae::TailPass& f_;
    const tagae::TailConstants k_;
    const int64_t size_, tails_;
    // Of one block.
    float shipped_[tagae::SCALES][MAX_IN_BLOCK], start_[tagae::SCALES][MAX_IN_BLOCK];
    float rest_[MAX_IN_BLOCK], surprise_[MAX_IN_BLOCK], raw_[MAX_IN_BLOCK];
};

inline void calibrate(const tagae::TailPass& f) { Tails(f).run(); }

}  // namespace TAGAE_ISA
