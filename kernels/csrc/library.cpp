// The ops for torch: checks what the bodies rely on, allocates results, and registers the bodies for CPU tensors.
//
// Uses torch's stable ABI only, so that one build serves all versions of torch from 2.11 on and all versions of Python.
// Errors here are short. kernels/ops.py says which argument is wrong, and how.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "bodies.h"
#include "processor.h"

using tagae::Rows;
using torch::headeronly::ScalarType;
using torch::stable::Tensor;

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

void require(bool fits, const char* what) {
    if (!fits) throw std::runtime_error(std::string("tagae: ") + what);
}

// Tensors of one op: made contiguous where they have to be, and kept while their data is used.
template <class T>
class Arguments {
  public:
    // A matrix of any row stride. Checked here: one device, one type of numbers.
    Rows<T> rows(const Tensor& tensor) {
        require(tensor.dim() == 2, "expected a matrix");
        const Tensor& t = keep(tensor, tensor.size(1) <= 1 || tensor.stride(1) == 1);
        return {static_cast<const T*>(t.data_ptr()), t.size(0), t.size(1), t.stride(0)};
    }
    Rows<T> rows(const Tensor& tensor, int64_t count, int64_t columns) {
        const Rows<T> found = rows(tensor);
        require(found.count == count && found.columns == columns, "sizes do not fit");
        return found;
    }
    // [H, C, T] as [H*C, T].
    Rows<T> cube(const Tensor& tensor, int64_t count, int64_t columns) {
        require(tensor.dim() == 3 && tensor.size(2) == columns, "sizes do not fit");
        require(tensor.numel() == count * columns, "sizes do not fit");
        const Tensor& t = keep(tensor, tensor.is_contiguous());
        return {static_cast<const T*>(t.data_ptr()), count, columns, columns};
    }
    const T* vector(const Tensor& tensor, int64_t count) { return flat<T>(tensor, count, TYPE); }
    const int64_t* indices(const Tensor& tensor, int64_t count) {
        return flat<int64_t>(tensor, count, ScalarType::Long);
    }
    // Indices that are rows of a matrix with this many.
    const int64_t* positions(const Tensor& tensor, int64_t count, int64_t rows) {
        const int64_t* found = indices(tensor, count);
        require(tagae::are_below(found, count, rows), "an index is no row");
        return found;
    }
    const int64_t* offsets(const Tensor& tensor, int64_t nodes, int64_t slots) {
        const int64_t* found = indices(tensor, nodes + 1);
        bool fits = found[0] == 0 && found[nodes] == slots;
        for (int64_t i = 0; i < nodes; ++i) fits &= found[i] <= found[i + 1];
        require(fits, "indptr are no offsets");
        return found;
    }

  private:
    static constexpr ScalarType TYPE = sizeof(T) == 4 ? ScalarType::Float : ScalarType::Double;

    template <class N>
    const N* flat(const Tensor& tensor, int64_t count, ScalarType type) {
        require(tensor.dim() == 1 && tensor.size(0) == count, "sizes do not fit");
        return static_cast<const N*>(keep(tensor, tensor.is_contiguous(), type).data_ptr());
    }
    Tensor keep(const Tensor& tensor, bool usable, ScalarType type = TYPE) {
        require(tensor.scalar_type() == type, "types do not fit");
        require(tensor.is_cpu(), "expected CPU tensors");
        if (usable) return tensor;
        copies_.push_back(torch::stable::contiguous(tensor));
        return copies_.back();
    }

    std::vector<Tensor> copies_;
};

template <class T>
const tagae::Bodies<T>& bodies_of() {
    if constexpr (sizeof(T) == 4)
        return bodies->floats;
    else
        return bodies->doubles;
}

template <class T>
T* data(const Tensor& tensor) {
    return static_cast<T*>(tensor.data_ptr());
}

template <class T>
tagae::Attend<T> neighbourhoods(
    Arguments<T>& from, int64_t nodes, const Tensor& trajectory, const Tensor& trajectory_weight,
    const Tensor& attention, const Tensor& indptr, const Tensor& indices, const Tensor& edges, double negative_slope) {
    require(attention.dim() == 2 && attention.numel() && trajectory_weight.numel(), "sizes do not fit");
    tagae::Attend<T> a{};
    a.attention = from.cube(torch::stable::unsqueeze(attention, 0), attention.size(0), attention.size(1));
    a.trajectory = from.rows(trajectory);
    a.trajectory_weight = from.rows(trajectory_weight, attention.numel(), a.trajectory.columns);
    const int64_t slots = indices.numel();
    a.indptr = from.offsets(indptr, nodes, slots);
    a.indices = from.indices(indices, slots);
    a.edges = from.positions(edges, slots, a.trajectory.count);
    a.negative_slope = static_cast<T>(negative_slope);
    return a;
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

// One op for both types of numbers, by its first argument.
template <auto FLOATS, auto DOUBLES>
struct Typed;
template <class R, class... Rest, R (*FLOATS)(const Tensor&, Rest...), R (*DOUBLES)(const Tensor&, Rest...)>
struct Typed<FLOATS, DOUBLES> {
    static R call(const Tensor& first, Rest... rest) {
        return first.scalar_type() == ScalarType::Float ? FLOATS(first, rest...) : DOUBLES(first, rest...);
    }
};

template <auto FLOATS, auto DOUBLES>
void implement(torch::stable::detail::StableLibrary& library, const char* op) {
    constexpr auto call = Typed<FLOATS, DOUBLES>::call;
    library.impl(op, torch::stable::detail::boxer<std::remove_pointer_t<decltype(call)>, call>::boxed_fn);
}

}  // namespace

// Identifies the schemas that this library was built for.
TAGAE_EXPORT const char* tagae_schemas() { return TAGAE_SCHEMAS; }

// Register the bodies for the best instruction set of this processor, or for the `wanted` one if that is not empty.
// Returns its name; nullptr if there is none, and then nothing is registered.
TAGAE_EXPORT const char* tagae_register(const char* wanted) {
    const char* chosen = tagae::choose_instructions(wanted);
    if (!chosen) return nullptr;
    bodies = chosen == tagae::AVX512_NAME ? &tagae::AVX512 : &tagae::AVX2;
    using torch::stable::detail::StableLibrary;
    static StableLibrary library(StableLibrary::Kind::IMPL, "tagae", "CPU", __FILE__, __LINE__);
    static bool registered = false;
    if (registered) return chosen;
    registered = true;
    implement<attend_as<float>, attend_as<double>>(library, "attend");
    implement<project_and_attend_as<float>, project_and_attend_as<double>>(library, "project_and_attend");
    implement<join_sides_as<float>, join_sides_as<double>>(library, "join_sides");
    implement<perceptron_as<float>, perceptron_as<double>>(library, "perceptron");
    implement<edge_dot_as<float>, edge_dot_as<double>>(library, "edge_dot");
    return chosen;
}
