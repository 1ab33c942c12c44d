// The passes over series, for kernels/passes.py, which checks sizes and types. A library of its own, without torch, so
// that processes without torch can use it.
#include "passes.h"
#include "processor.h"

namespace {

const tagae::Passes* passes = nullptr;

}  // namespace

// Identifies the structs that this library was built for.
TAGAE_EXPORT const char* tagae_schemas() { return TAGAE_SCHEMAS; }

// Use the best instruction set of this processor, or the `wanted` one if that is not empty. Returns its name; nullptr if
// there is none.
TAGAE_EXPORT const char* tagae_choose(const char* wanted) {
    const tagae::Compiled<tagae::Passes> compiled[] =
        TAGAE_COMPILED(tagae::NEON_PASSES, tagae::AVX2_PASSES, tagae::AVX512_PASSES);
    const auto* chosen = tagae::choose(compiled, wanted);
    if (!chosen) return nullptr;
    passes = chosen->code;
    return chosen->name;
}

// Each returns 0 if an index is out of range.

TAGAE_EXPORT int tagae_update_filters(const tagae::FilterPass* f) {
    passes->update_filters(*f);
    return 1;
}

TAGAE_EXPORT int tagae_calibrate(const tagae::TailPass* f) {
    if (!tagae::are_below(f->exposure, f->rows, f->exposures)) return 0;
    passes->calibrate(*f);
    return 1;
}

TAGAE_EXPORT int tagae_channel_values(const tagae::ChannelPass* f) {
    if (!tagae::are_below(f->edge_index, 2 * f->edges, f->nodes)) return 0;
    passes->channel_values(*f);
    return 1;
}

TAGAE_EXPORT int tagae_count_failures(const tagae::CountPass* f) {
    passes->count_failures(*f);
    return 1;
}
