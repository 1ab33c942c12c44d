// All bodies for one instruction set. Compiled once for each, with its flags and these macros:
// TAGAE_ISA (name), TAGAE_VECTOR_BYTES, TAGAE_TILE_ROWS and TAGAE_TILE_VECTORS.
#include "edge_dot.h"
#include "join.h"
#include "perceptron.h"

namespace tagae {

extern const InstructionSet TAGAE_ISA;
const InstructionSet TAGAE_ISA = {
    {::TAGAE_ISA::attend<float>, ::TAGAE_ISA::project_and_attend<float>, ::TAGAE_ISA::join_sides<float>,
     ::TAGAE_ISA::perceptron<float>, ::TAGAE_ISA::edge_dot<float>},
    {::TAGAE_ISA::attend<double>, ::TAGAE_ISA::project_and_attend<double>, ::TAGAE_ISA::join_sides<double>,
     ::TAGAE_ISA::perceptron<double>, ::TAGAE_ISA::edge_dot<double>},
};

}  // namespace tagae
