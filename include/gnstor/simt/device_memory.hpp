// device_memory.hpp: memory that only lanes touch: control words, counters, results of kernels.
//
// GPU memory for GPU lanes, host memory for CPU lanes; the host reaches it by upload() and download() alone.
// Zeroed, 256-byte aligned. Host thread. Freeing GPU memory blocks until running kernels end (CUDA).
#pragma once

#include <gnstor/base/result.hpp>
#include <gnstor/simt/launch.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace gnstor::simt {

/// Whether kernels of a thread that uses GPU `chosen` reach memory of GPU `home`. Pure.
[[nodiscard]] Result<void> check_same_gpu(int home, int chosen);

class DeviceMemory {
  public:
    DeviceMemory() = default;
    static Result<DeviceMemory> allocate(std::size_t bytes, LanesKind lanes);
    ~DeviceMemory();
    DeviceMemory(DeviceMemory&& other) noexcept;
    DeviceMemory& operator=(DeviceMemory&& other) noexcept;

    /// For lanes. With CPU lanes the host may use it too.
    [[nodiscard]] void* lane_data() const noexcept { return data_; }
    template <class T>
    [[nodiscard]] T* lane_as(std::size_t byte_offset = 0) const noexcept {
        static_assert(std::is_trivially_copyable_v<T>, "lanes share plain bytes");
        return reinterpret_cast<T*>(static_cast<std::byte*>(data_) + byte_offset);
    }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    [[nodiscard]] LanesKind lanes() const noexcept { return lanes_; }

    /// Whether kernels that the calling thread starts now can access it: with GPU lanes, whether the GPU that
    /// the thread has chosen is the one it lies on. The Error names both GPUs.
    [[nodiscard]] Result<void> check_this_gpu() const;

    /// Host to lanes, and back. Done on return; do not overlap with a kernel that uses the same bytes.
    Result<void> upload(std::size_t offset, const void* from, std::size_t bytes);
    Result<void> download(std::size_t offset, void* to, std::size_t bytes) const;
    /// Reads 64-bit words that kernels may be changing: each value was in memory at some time during the
    /// call, and a later call returns no older one. Waits for no kernel. Any thread.
    Result<void> look(std::size_t offset, std::span<std::uint64_t> to) const;

  private:
    [[nodiscard]] Result<void> check_range(std::size_t offset, std::size_t bytes, const char* tried) const;
    void release() noexcept;
    void* data_ = nullptr;
    std::size_t size_ = 0;
    LanesKind lanes_ = LanesKind::kCpu;
};

}  // namespace gnstor::simt
