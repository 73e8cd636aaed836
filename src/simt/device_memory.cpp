// device_memory.cpp: allocation and transfer, by kind of lanes.
#include <gnstor/base/units.hpp>
#include <gnstor/simt/atomic.hpp>
#include <gnstor/simt/device_memory.hpp>

#include "simt/cuda_result.hpp"
#include "simt/memory_limits.hpp"

#include <cstdlib>
#include <cstring>
#include <utility>

namespace gnstor::simt {
namespace {
constexpr std::size_t kAlignment = 256;
}  // namespace

Result<DeviceMemory> DeviceMemory::allocate(std::size_t bytes, LanesKind lanes) {
    if (bytes == 0 || bytes > kBytesMax)
        return error(Errc::kInvalidArgument, "cannot allocate lane memory of {}; give 1 B to {}",
                     format_bytes(bytes), format_bytes(kBytesMax));
    GN_TRY(check_lanes(lanes));
    DeviceMemory memory;
    memory.lanes_ = lanes;
    memory.size_ = bytes;
#if GN_WITH_CUDA
    if (lanes == LanesKind::kGpu) {
        GN_TRY(cuda_result(cudaMalloc(&memory.data_, bytes), "allocate GPU memory"));
        GN_TRY(cuda_result(cudaMemsetAsync(memory.data_, 0, bytes, cudaStreamPerThread), "zero GPU memory"));
        GN_TRY(cuda_result(cudaStreamSynchronize(cudaStreamPerThread), "zero GPU memory"));
        return memory;
    }
#endif
    memory.data_ = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
    if (memory.data_ == nullptr)
        return error(Errc::kNoSpace, "cannot allocate {} for CPU lanes", format_bytes(bytes));
    std::memset(memory.data_, 0, bytes);
    return memory;
}

Result<void> DeviceMemory::check_range(std::size_t offset, std::size_t bytes, const char* tried) const {
    if (offset > size_ || bytes > size_ - offset)
        return error(Errc::kInvalidArgument, "cannot {} {} bytes at {}: the lane memory has {} bytes", tried,
                     bytes, offset, size_);
    return {};
}

Result<void> DeviceMemory::upload(std::size_t offset, const void* from, std::size_t bytes) {
    GN_TRY(check_range(offset, bytes, "upload"));
    if (bytes == 0) return {};
    auto* at = static_cast<std::byte*>(data_) + offset;
#if GN_WITH_CUDA
    if (lanes_ == LanesKind::kGpu) {
        GN_TRY(cuda_result(cudaMemcpyAsync(at, from, bytes, cudaMemcpyHostToDevice, cudaStreamPerThread),
                           "upload"));
        return cuda_result(cudaStreamSynchronize(cudaStreamPerThread), "upload");
    }
#endif
    std::memcpy(at, from, bytes);
    return {};
}

Result<void> DeviceMemory::download(std::size_t offset, void* to, std::size_t bytes) const {
    GN_TRY(check_range(offset, bytes, "download"));
    if (bytes == 0) return {};
    const auto* at = static_cast<const std::byte*>(data_) + offset;
#if GN_WITH_CUDA
    if (lanes_ == LanesKind::kGpu) {
        GN_TRY(cuda_result(cudaMemcpyAsync(to, at, bytes, cudaMemcpyDeviceToHost, cudaStreamPerThread),
                           "download"));
        return cuda_result(cudaStreamSynchronize(cudaStreamPerThread), "download");
    }
#endif
    std::memcpy(to, at, bytes);
    return {};
}

Result<void> DeviceMemory::look(std::size_t offset, std::span<std::uint64_t> to) const {
    GN_TRY(check_range(offset, to.size_bytes(), "read"));
    if (to.empty()) return {};
#if GN_WITH_CUDA
    if (lanes_ == LanesKind::kGpu) {
        // Non-blocking: it does not wait for a kernel on the legacy default stream.
        cudaStream_t beside = nullptr;
        GN_TRY(cuda_result(cudaStreamCreateWithFlags(&beside, cudaStreamNonBlocking), "read GPU memory"));
        auto done = cuda_result(cudaMemcpyAsync(to.data(), static_cast<const std::byte*>(data_) + offset,
                                                to.size_bytes(), cudaMemcpyDeviceToHost, beside),
                                "read GPU memory");
        if (done.ok()) done = cuda_result(cudaStreamSynchronize(beside), "read GPU memory");
        (void)cudaStreamDestroy(beside);
        return done;
    }
#endif
    const auto* at = lane_as<std::uint64_t>(offset);
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = load_relaxed<Scope::kDevice>(at + i);
    return {};
}

Result<void> check_same_gpu(int home, int chosen) {
    if (home == chosen) return {};
    return error(Errc::kState,
                 "lane memory lies on GPU {}, and this thread uses GPU {}: call cudaSetDevice({}) before",
                 home, chosen, home);
}

Result<void> DeviceMemory::check_this_gpu() const {
#if GN_WITH_CUDA
    if (lanes_ == LanesKind::kGpu && data_ != nullptr) {
        int chosen = 0;
        cudaPointerAttributes home{};
        GN_TRY(cuda_result(cudaGetDevice(&chosen), "tell which GPU this thread uses"));
        GN_TRY(cuda_result(cudaPointerGetAttributes(&home, data_), "tell where lane memory lies"));
        return check_same_gpu(home.device, chosen);
    }
#endif
    return {};
}

void DeviceMemory::release() noexcept {
    if (data_ == nullptr) return;
#if GN_WITH_CUDA
    if (lanes_ == LanesKind::kGpu) {
        // Fails if the context is dead; then the memory is gone too.
        if (cudaFree(data_) != cudaSuccess) (void)cudaGetLastError();
        data_ = nullptr;
        return;
    }
#endif
    std::free(data_);
    data_ = nullptr;
}

DeviceMemory::~DeviceMemory() {
    release();
}

DeviceMemory::DeviceMemory(DeviceMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      lanes_(other.lanes_) {}

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
    if (this != &other) {
        release();
        data_ = std::exchange(other.data_, nullptr);
        size_ = std::exchange(other.size_, 0);
        lanes_ = other.lanes_;
    }
    return *this;
}

}  // namespace gnstor::simt
