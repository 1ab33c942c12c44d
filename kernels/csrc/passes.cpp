// All passes over series for one instruction set. Compiled once for each, with its flags, without contraction, and with
// these macros: TAGAE_ISA (name), TAGAE_VECTOR_BYTES and TAGAE_PASSES (name of the table).
#include "channels.h"
#include "failures.h"
#include "filters.h"
#include "tails.h"

namespace tagae {

extern const Passes TAGAE_PASSES;
const Passes TAGAE_PASSES = {
    ::TAGAE_ISA::update_filters, ::TAGAE_ISA::calibrate, ::TAGAE_ISA::channel_values, ::TAGAE_ISA::count_failures};

}  // namespace tagae
