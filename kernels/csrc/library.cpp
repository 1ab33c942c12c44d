// The ops for torch: checks what the bodies rely on, allocates results, and registers the bodies for CPU tensors.
//
// Uses torch's stable ABI only, so that one build serves all versions of torch from 2.11 on and all versions of Python.
#include <array>
#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <tuple>

#include "arguments.h"

using tagae::Rows, tagae::Tensor, tagae::data, tagae::implement, tagae::neighbourhoods, tagae::require;

namespace tagae {

void* workspace(Use use, size_t bytes) {
    constexpr size_t LINE = 64;
    struct Free {
        void operator()(void* memory) const { std::free(memory); }
    };
    struct Block {
        std::unique_ptr<void, Free> memory;
        size_t bytes = 0;
    };
    static thread_local std::array<Block, static_cast<size_t>(Use::SIZE)> blocks;
    Block& block = blocks[static_cast<size_t>(use)];
    if (block.bytes < bytes || !block.memory) {
        block.bytes = 0;
        block.memory.reset(std::aligned_alloc(LINE, (bytes + bytes / 2) / LINE * LINE + 2 * LINE));
        if (!block.memory) throw std::bad_alloc();
        block.bytes = bytes + bytes / 2;
    }
    return block.memory.get();
}

void parallel(int64_t count, int64_t grain, void (*body)(void*, int64_t, int64_t), void* context) {
    torch::stable::parallel_for(0, count, grain, [=](int64_t begin, int64_t end) { body(context, begin, end); });
}

}  // namespace tagae

namespace {

const tagae::InstructionSet* bodies = nullptr;

template <class T>
using Arguments = tagae::Arguments<T, tagae::Cpu>;

template <class T>
const tagae::Bodies<T>& bodies_of() {
    if constexpr (sizeof(T) == 4)
        return bodies->floats;
    else
        return bodies->doubles;
}

template <class T>
std::tuple<Tensor, Tensor> attend_as(
    const Tensor& query, const Tensor& key, const Tensor& trajectory, const Tensor& trajectory_weight,
    const Tensor& attention, const Tensor& indptr, const Tensor& indices, const Tensor& edges, double negative_slope) {
    Arguments<T> from;
    require(query.dim() == 2 && key.dim() == 2, "expected a matrix");
    tagae::Attend<T> a = neighbourhoods(
        from, query.size(0), trajectory, trajectory_weight, attention, indptr, indices, edges, negative_slope);
    const int64_t channels = attention.numel();
    a.query = from.rows(query, query.size(0), channels);
    a.key = from.rows(key, key.size(0), channels);
    from.positions(indices, indices.numel(), a.key.count);
    Tensor values = torch::stable::new_empty(query, {a.query.count, channels});
    Tensor sums = torch::stable::new_empty(query, {a.query.count, attention.size(0), a.trajectory.columns});
    bodies_of<T>().attend(a, data<T>(values), data<T>(sums));
    return {values, sums};
}

template <class T>
Tensor project_and_attend_as(
    const Tensor& x, const Tensor& query_weight, const Tensor& query_bias, const Tensor& key_weight,
    const Tensor& key_bias, const Tensor& trajectory, const Tensor& trajectory_weight, const Tensor& attention,
    const Tensor& trajectory_value, const Tensor& indptr, const Tensor& indices, const Tensor& edges,
    double negative_slope) {
    Arguments<T> from;
    tagae::ProjectAndAttend<T> f{};
    f.x = from.rows(x);
    f.attend = neighbourhoods(
        from, f.x.count, trajectory, trajectory_weight, attention, indptr, indices, edges, negative_slope);
    from.positions(indices, indices.numel(), f.x.count);
    const int64_t channels = attention.numel();
    f.query = {from.rows(query_weight, channels, f.x.columns), from.vector(query_bias, channels)};
    f.key = {from.rows(key_weight, channels, f.x.columns), from.vector(key_bias, channels)};
    require(trajectory_value.dim() == 3 && trajectory_value.size(0) == attention.size(0), "sizes do not fit");
    f.trajectory_value = from.cube(trajectory_value, channels, f.attend.trajectory.columns);
    Tensor out = torch::stable::new_empty(x, {f.x.count, channels});
    bodies_of<T>().project_and_attend(f, data<T>(out));
    return out;
}

template <class T>
Tensor join_sides_as(
    const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& callers, const Tensor& callees,
    const Tensor& norm_weight, const Tensor& norm_bias, double eps) {
    Arguments<T> from;
    tagae::JoinSides<T> j{};
    j.x = from.rows(x);
    require(bias.numel() > 0, "expected outputs");
    const int64_t outputs = bias.numel();
    j.own = {from.rows(weight, outputs, j.x.columns), from.vector(bias, outputs)};
    j.callers = from.rows(callers, j.x.count, outputs);
    j.callees = from.rows(callees, j.x.count, outputs);
    j.norm_weight = from.vector(norm_weight, outputs);
    j.norm_bias = from.vector(norm_bias, outputs);
    j.eps = static_cast<T>(eps);
    Tensor out = torch::stable::new_empty(x, {j.x.count, outputs});
    bodies_of<T>().join_sides(j, data<T>(out));
    return out;
}

template <class T>
Tensor perceptron_as(
    const Tensor& rows, const std::optional<Tensor>& others, const std::optional<Tensor>& positions,
    const Tensor& hidden_weight, const Tensor& hidden_bias, const Tensor& weight, const Tensor& bias) {
    Arguments<T> from;
    tagae::Perceptron<T> f{};
    f.rows = from.rows(rows);
    f.count = f.rows.count;
    if (others) f.others = from.rows(*others);
    require(others || !positions, "positions without others");
    if (positions)
        f.positions = from.positions(*positions, f.count, f.others.count);
    else
        require(!others || f.others.count == f.count, "sizes do not fit");
    const int64_t hidden = hidden_bias.numel(), outputs = bias.numel();
    f.hidden = {from.rows(hidden_weight, hidden, f.rows.columns + f.others.columns), from.vector(hidden_bias, hidden)};
    f.output = {from.rows(weight, outputs, hidden), from.vector(bias, outputs)};
    Tensor out = torch::stable::new_empty(rows, {f.count, outputs});
    bodies_of<T>().perceptron(f, data<T>(out));
    return out;
}

template <class T>
Tensor edge_dot_as(
    const Tensor& source, const Tensor& target, const Tensor& source_index, const Tensor& target_index) {
    Arguments<T> from;
    tagae::EdgeDot<T> f{};
    f.source = from.rows(source);
    f.target = from.rows(target, target.size(0), f.source.columns);
    f.count = source_index.numel();
    f.source_index = from.positions(source_index, f.count, f.source.count);
    f.target_index = from.positions(target_index, f.count, f.target.count);
    Tensor out = torch::stable::new_empty(source, {f.count});
    bodies_of<T>().edge_dot(f, data<T>(out));
    return out;
}

}  // namespace

// Identifies the schemas that this library was built for.
TAGAE_EXPORT const char* tagae_schemas() { return TAGAE_SCHEMAS; }

// Register the bodies for the best instruction set of this processor, or for the `wanted` one if that is not empty.
// Returns its name; nullptr if there is none, and then nothing is registered.
TAGAE_EXPORT const char* tagae_register(const char* wanted) {
    const tagae::Compiled<tagae::InstructionSet> compiled[] = TAGAE_COMPILED(tagae::NEON, tagae::AVX2, tagae::AVX512);
    const auto* chosen = tagae::choose(compiled, wanted);
    if (!chosen) return nullptr;
    bodies = chosen->code;
    using torch::stable::detail::StableLibrary;
    static StableLibrary library(StableLibrary::Kind::IMPL, "tagae", tagae::Cpu::KEY, __FILE__, __LINE__);
    static bool registered = false;
    if (registered) return chosen->name;
    registered = true;
    implement<attend_as<float>, attend_as<double>>(library, "attend");
    implement<project_and_attend_as<float>, project_and_attend_as<double>>(library, "project_and_attend");
    implement<join_sides_as<float>, join_sides_as<double>>(library, "join_sides");
    implement<perceptron_as<float>, perceptron_as<double>>(library, "perceptron");
    implement<edge_dot_as<float>, edge_dot_as<double>>(library, "edge_dot");
    return chosen->name;
}
