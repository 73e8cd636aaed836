// buffer.hpp: registered memory of a client, which kernels read and write without a copy on every wire.
//
// Owned by one host thread; lanes, NIC and host may access the memory itself. The client outlives it. With
// GPU lanes the memory is pinned, and destruction blocks until running kernels end (simt::PinnedMemory).
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
    /// If release() fails, the pages stay mapped until the process ends, because an SSD may still write to
    /// them.
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
    /// Address of data() as lanes see it.
    [[nodiscard]] std::byte* lane_data() const noexcept { return memory_.lane_data(); }
    [[nodiscard]] std::size_t size() const noexcept { return memory_.size(); }
    /// Unregisters and unmaps it. kBusy while commands refer to it: quiesce or reclaim the client, then
    /// retry.
    Result<void> release();

  private:
    friend class Client;
    void end() noexcept;

    simt::PinnedMemory memory_;
    Client* client_ = nullptr;  ///< null: empty
};

}  // namespace gnstor::client
