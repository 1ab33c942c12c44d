// The ops for torch on a GPU: checks sizes and types, allocates results through torch, and registers the bodies for CUDA
// tensors. Projections are torch's, so they run in cuBLAS. Nothing here waits for the GPU.
//
// Uses torch's stable ABI only, like ../library.cpp. It needs no header of CUDA, so that it compiles beside any torch.
#include <array>
#include <optional>
#include <tuple>

#include "../arguments.h"
#include "bfloat16.h"
#include "bodies.h"

using tagae::BFloat16, tagae::Rows, tagae::Tensor, tagae::data, tagae::implement, tagae::neighbourhoods, tagae::require;
using tagae::cuda::OnDevice;

namespace {

#ifdef TAGAE_KERNELS_ON_CPU  // tests/kernels/test_cuda.py
struct Place : tagae::Cpu {
    static constexpr bool READS_INDICES = false;
};
#else
using Place = tagae::Gpu;
#endif

template <class T>
using Arguments = tagae::Arguments<T, Place>;
template <class T>
using Bodies = tagae::cuda::Bodies<T>;

void require_started(const char* error) { require(!error, error); }

// weight x + bias
Tensor project(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias) {
    namespace boxed = torch::stable::detail;
    std::array<StableIValue, 3> stack{boxed::from(x), boxed::from(weight), boxed::from(bias)};
    TORCH_ERROR_CODE_CHECK(torch_call_dispatcher("aten::linear", "", stack.data(), TORCH_ABI_VERSION));
    return boxed::to<Tensor>(stack[0]);
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
    const OnDevice device(query.get_device_index());
    Tensor values = torch::stable::new_empty(query, {a.query.count, channels});
    Tensor sums = torch::stable::new_empty(query, {a.query.count, attention.size(0), a.trajectory.columns});
    require_started(Bodies<T>::attend(a, {}, data<T>(values), data<T>(sums), device.stream()));
    return {values, sums};
}

template <class T>
Tensor project_and_attend_as(
    const Tensor& x, const Tensor& query_weight, const Tensor& query_bias, const Tensor& key_weight,
    const Tensor& key_bias, const Tensor& trajectory, const Tensor& trajectory_weight, const Tensor& attention,
    const Tensor& trajectory_value, const Tensor& indptr, const Tensor& indices, const Tensor& edges,
    double negative_slope) {
    Arguments<T> from;
    const Rows<T> rows = from.rows(x);
    tagae::Attend<T> a = neighbourhoods(
        from, rows.count, trajectory, trajectory_weight, attention, indptr, indices, edges, negative_slope);
    const int64_t channels = attention.numel();
    for (const Tensor* weight : {&query_weight, &key_weight}) from.rows(*weight, channels, rows.columns);
    for (const Tensor* bias : {&query_bias, &key_bias}) from.vector(*bias, channels);
    require(trajectory_value.dim() == 3 && trajectory_value.size(0) == attention.size(0), "sizes do not fit");
    const Rows<T> value = from.cube(trajectory_value, channels, a.trajectory.columns);
    const OnDevice device(x.get_device_index());
    const Tensor query = project(x, query_weight, query_bias), key = project(x, key_weight, key_bias);
    a.query = from.rows(query, rows.count, channels);
    a.key = from.rows(key, rows.count, channels);
    Tensor out = torch::stable::new_empty(x, {rows.count, channels});
    require_started(Bodies<T>::attend(a, value, data<T>(out), nullptr, device.stream()));
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
    j.eps = static_cast<tagae::Sum<T>>(eps);
    const OnDevice device(x.get_device_index());
    Tensor out = torch::stable::contiguous(project(x, weight, bias));
    require_started(Bodies<T>::join_sides(j, data<T>(out), device.stream()));
    return out;
}

// The hidden layer projects rows and others apart, since several rows may go with one of the others.
template <class T>
Tensor perceptron_as(
    const Tensor& rows, const std::optional<Tensor>& others, const std::optional<Tensor>& positions,
    const Tensor& hidden_weight, const Tensor& hidden_bias, const Tensor& weight, const Tensor& bias) {
    Arguments<T> from;
    const Rows<T> own = from.rows(rows);
    const Rows<T> beside = others ? from.rows(*others) : Rows<T>{};
    require(others || !positions, "positions without others");
    require(!others || positions || beside.count == own.count, "sizes do not fit");
    const int64_t* chosen = positions ? from.positions(*positions, own.count, beside.count) : nullptr;
    const int64_t hidden = hidden_bias.numel(), outputs = bias.numel();
    from.rows(hidden_weight, hidden, own.columns + beside.columns);
    from.rows(weight, outputs, hidden);
    from.vector(hidden_bias, hidden);
    from.vector(bias, outputs);
    const OnDevice device(rows.get_device_index());
    Tensor all = hidden_weight;
    Tensor between = torch::stable::contiguous(project(rows, torch::stable::narrow(all, 1, 0, own.columns), hidden_bias));
    std::optional<Tensor> projected;
    if (others) projected = project(*others, torch::stable::narrow(all, 1, own.columns, beside.columns), std::nullopt);
    const Rows<T> added = projected ? from.rows(*projected, beside.count, hidden) : Rows<T>{};
    require_started(Bodies<T>::activate(data<T>(between), own.count, hidden, added, chosen, device.stream()));
    return torch::stable::contiguous(project(between, weight, bias));
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
    const OnDevice device(source.get_device_index());
    Tensor out = torch::stable::new_empty(source, {f.count});
    require_started(Bodies<T>::edge_dot(f, data<T>(out), device.stream()));
    return out;
}

}  // namespace

// Identifies the schemas that this library was built for.
TAGAE_EXPORT const char* tagae_schemas() { return TAGAE_SCHEMAS; }

// Register the bodies. Returns their name; nullptr if this process has no torch with CUDA, and then nothing is registered.
TAGAE_EXPORT const char* tagae_register(const char*) {
    if (!tagae::cuda::has_streams()) return nullptr;
    using torch::stable::detail::StableLibrary;
    static StableLibrary library(StableLibrary::Kind::IMPL, "tagae", Place::KEY, __FILE__, __LINE__);
    static bool registered = false;
    if (registered) return "cuda";
    registered = true;
    implement<attend_as<float>, attend_as<double>, attend_as<BFloat16>>(library, "attend");
    implement<project_and_attend_as<float>, project_and_attend_as<double>, project_and_attend_as<BFloat16>>(library, "project_and_attend");
    implement<join_sides_as<float>, join_sides_as<double>, join_sides_as<BFloat16>>(library, "join_sides");
    implement<perceptron_as<float>, perceptron_as<double>, perceptron_as<BFloat16>>(library, "perceptron");
    implement<edge_dot_as<float>, edge_dot_as<double>, edge_dot_as<BFloat16>>(library, "edge_dot");
    return "cuda";
}
