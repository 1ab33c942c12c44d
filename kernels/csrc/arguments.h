// The arguments of the ops as torch gives them: checks what the bodies rely on, and registers bodies. For both libraries.
//
// Errors here are short. kernels/ops.py says which argument is wrong, and how.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "bodies.h"
#include "processor.h"

namespace tagae {

using torch::headeronly::DeviceType;
using torch::headeronly::ScalarType;
using torch::stable::Tensor;

inline void require(bool fits, const char* what) {
    if (!fits) throw std::runtime_error(std::string("tagae: ") + what);
}

// Where the tensors of a library are, and whether the host may read the contents of index tensors.
struct Cpu {
    static constexpr const char* KEY = "CPU";
    static constexpr bool READS_INDICES = true;
    static bool has(const Tensor& tensor) { return tensor.is_cpu(); }
};
struct Gpu {
    static constexpr const char* KEY = "CUDA";
    static constexpr bool READS_INDICES = false;  // that would wait for the GPU
    static bool has(const Tensor& tensor) { return tensor.is_cuda(); }
};

// Tensors of one op: made contiguous where they have to be, and kept while their data is used.
template <class T, class Place>
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
        if constexpr (Place::READS_INDICES) require(are_below(found, count, rows), "an index is no row");
        return found;
    }
    const int64_t* offsets(const Tensor& tensor, int64_t nodes, int64_t slots) {
        const int64_t* found = indices(tensor, nodes + 1);
        if constexpr (Place::READS_INDICES) {
            bool fits = found[0] == 0 && found[nodes] == slots;
            for (int64_t i = 0; i < nodes; ++i) fits &= found[i] <= found[i + 1];
            require(fits, "indptr are no offsets");
        }
        return found;
    }

  private:
    static constexpr ScalarType TYPE =
        sizeof(T) == 2 ? ScalarType::BFloat16 : sizeof(T) == 4 ? ScalarType::Float : ScalarType::Double;

    template <class N>
    const N* flat(const Tensor& tensor, int64_t count, ScalarType type) {
        require(tensor.dim() == 1 && tensor.size(0) == count, "sizes do not fit");
        return static_cast<const N*>(keep(tensor, tensor.is_contiguous(), type).data_ptr());
    }
    Tensor keep(const Tensor& tensor, bool usable, ScalarType type = TYPE) {
        require(tensor.scalar_type() == type, "types do not fit");
        require(Place::has(tensor), "expected tensors on the device of this library");
        if constexpr (!Place::READS_INDICES) {  // there may be several GPUs
            if (!device_) device_ = tensor.get_device_index();
            require(*device_ == tensor.get_device_index(), "expected tensors on one device");
        }
        if (usable) return tensor;
        copies_.push_back(torch::stable::contiguous(tensor));
        return copies_.back();
    }

    std::vector<Tensor> copies_;
    std::optional<int32_t> device_;
};

template <class T>
T* data(const Tensor& tensor) {
    return static_cast<T*>(tensor.data_ptr());
}

template <class T, class Place>
Attend<T> neighbourhoods(
    Arguments<T, Place>& from, int64_t nodes, const Tensor& trajectory, const Tensor& trajectory_weight,
    const Tensor& attention, const Tensor& indptr, const Tensor& indices, const Tensor& edges, double negative_slope) {
    require(attention.dim() == 2 && attention.numel() && trajectory_weight.numel(), "sizes do not fit");
    Attend<T> a{};
    a.attention = from.cube(torch::stable::unsqueeze(attention, 0), attention.size(0), attention.size(1));
    a.trajectory = from.rows(trajectory);
    a.trajectory_weight = from.rows(trajectory_weight, attention.numel(), a.trajectory.columns);
    a.slots = indices.numel();
    a.indptr = from.offsets(indptr, nodes, a.slots);
    a.indices = from.indices(indices, a.slots);
    a.edges = from.positions(edges, a.slots, a.trajectory.count);
    a.negative_slope = static_cast<Sum<T>>(negative_slope);
    return a;
}

// One op for all its types of numbers, by its first argument: float, double, and on a GPU bfloat16.
template <auto FLOATS, auto DOUBLES, auto... BFLOATS>
struct Typed;
template <
    class R, class... Rest, R (*FLOATS)(const Tensor&, Rest...), R (*DOUBLES)(const Tensor&, Rest...), auto... BFLOATS>
struct Typed<FLOATS, DOUBLES, BFLOATS...> {
    static R call(const Tensor& first, Rest... rest) {
        if constexpr (sizeof...(BFLOATS) > 0)
            if (first.scalar_type() == ScalarType::BFloat16) return (BFLOATS(first, rest...), ...);
        return first.scalar_type() == ScalarType::Float ? FLOATS(first, rest...) : DOUBLES(first, rest...);
    }
};

template <auto... BODIES>
void implement(torch::stable::detail::StableLibrary& library, const char* op) {
    constexpr auto call = Typed<BODIES...>::call;
    library.impl(op, torch::stable::detail::boxer<std::remove_pointer_t<decltype(call)>, call>::boxed_fn);
}

}  // namespace tagae
