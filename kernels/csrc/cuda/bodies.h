// The bodies for a GPU, for library.cpp. Each starts one kernel on a stream and does not wait for it.
#pragma once

#include <memory>

#include "../bodies.h"

namespace tagae::cuda {

// Pointers are into the memory of the GPU. Each returns nullptr, or why the kernel did not start.
template <class T>
struct Bodies {
    // With a `trajectory_value` ([H*C, T]) the values include it, and `trajectories` is not used.
    static const char* attend(const Attend<T>&, const Rows<T>& trajectory_value, T* values, T* trajectories, void* stream);
    // `out` has the own projection; it becomes the result.
    static const char* join_sides(const JoinSides<T>&, T* out, void* stream);
    // `hidden` [count, width] becomes gelu(hidden + rows of `others`).
    static const char* activate(
        T* hidden, int64_t count, int64_t width, const Rows<T>& others, const int64_t* positions, void* stream);
    static const char* edge_dot(const EdgeDot<T>&, T* out, void* stream);
};

// Makes the device of a tensor the current one while it exists.
class OnDevice {
  public:
    explicit OnDevice(int32_t device);
    ~OnDevice();
    OnDevice(const OnDevice&) = delete;
    OnDevice& operator=(const OnDevice&) = delete;

    void* stream() const;  // torch's current one

  private:
    struct Guard;
    int32_t device_;
    std::unique_ptr<Guard> guard_;
};

bool has_streams();  // whether this process has a torch with CUDA

}  // namespace tagae::cuda
