// buffer.hpp: registered memory of a client: kernels read and write it without a copy, on whichever wire.
//
// Owned by one host thread; the memory itself is for lanes, NIC and host. The client outlives it. With GPU
// lanes it is pinned, and destruction blocks until running kernels end (simt::PinnedMemory).
#pragma once

#include <gnstor/base/result.hpp>
#include <gnstor/simt/pinned_memory.hpp>

#include <cstddef>
#include <utility>

namespace gnstor::client {

class Client;

class Buffer {
  public:
    Buffer() = default;
    /// Where release() fails, the pages stay mapped until the process ends: an SSD may still write there.
    ~Buffer() { end(); }
    Buffer(Buffer&& other) noexcept
        : memory_(std::move(other.memory_)), client_(std::exchange(other.client_, nullptr)) {}
    Buffer& operator=(Buffer&& other) noexcept {
        if (this == &other) return *this;
        end();
        memory_ = std::move(other.memory_);
        client_ = std::exchange(other.client_, nullptr);
        return *this;
    }

    [[nodiscard]] std::byte* data() const noexcept { return memory_.data(); }
    /// Where lanes see data().
    [[nodiscard]] std::byte* lane_data() const noexcept { return memory_.lane_data(); }
    [[nodiscard]] std::size_t size() const noexcept { return memory_.size(); }
    /// Gives it back. kBusy while commands name it: quiesce or reclaim the client, then try again.
    Result<void> release();

  private:
    friend class Client;
    void end() noexcept;

    simt::PinnedMemory memory_;
    Client* client_ = nullptr;  ///< null: nothing is held
};

}  // namespace gnstor::client
