// Torch's devices and streams. What only a torch with CUDA has is looked up in it, so that this library also loads, and
// says why it is of no use, beside a torch without.
#include <dlfcn.h>
#include <torch/csrc/stable/accelerator.h>

#include <stdexcept>

#include "bodies.h"

namespace tagae::cuda {

namespace {

using GetStream = AOTITorchError (*)(int32_t device, void** stream);

GetStream find_get_stream() {
    static const GetStream found = [] {
        void* torch = dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_NOLOAD);
        return torch ? reinterpret_cast<GetStream>(dlsym(torch, "aoti_torch_get_current_cuda_stream")) : nullptr;
    }();
    return found;
}

}  // namespace

bool has_streams() { return find_get_stream(); }

struct OnDevice::Guard {
    torch::stable::accelerator::DeviceGuard guard;
};

OnDevice::OnDevice(int32_t device)
    : device_(device), guard_(new Guard{torch::stable::accelerator::DeviceGuard(device)}) {}

OnDevice::~OnDevice() = default;

void* OnDevice::stream() const {
    void* stream = nullptr;
    if (find_get_stream()(device_, &stream)) throw std::runtime_error("tagae: torch has no stream for this device");
    return stream;
}

}  // namespace tagae::cuda
