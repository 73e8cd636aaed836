// nic_memory.hpp: host memory that a NIC may access, on any wire: mapped, shared with the node where the
// wire requires it, unshared and unmapped at the end. One host thread owns it; any thread may use the
// memory.
#pragma once

#include "rdma/nic/nic.hpp"

#include <gnstor/base/log.hpp>
#include <gnstor/simt/pinned_memory.hpp>

#include <cstddef>
#include <utility>

namespace gnstor::rdma {

class NicMemory {
  public:
    NicMemory() = default;
    /// Zeroed whole pages of at least `bytes`; `nic` must outlive it (unless abandon() is called).
    static Result<NicMemory> map(Nic& nic, std::size_t bytes) {
        NicMemory made;
        GN_ASSIGN(made.memory_, simt::PinnedMemory::map(bytes, simt::LanesKind::kCpu,
                                                        {.shareable = nic.wants_shared_memory()}));
        GN_TRY(nic.share_memory(made.memory_.data(), made.memory_.size(), made.memory_.file()));
        made.nic_ = &nic;
        return Result<NicMemory>(std::move(made));  // nvcc copies with plain "return made"
    }
    ~NicMemory() { end(); }
    NicMemory(NicMemory&& other) noexcept
        : memory_(std::move(other.memory_)), nic_(std::exchange(other.nic_, nullptr)) {}
    NicMemory& operator=(NicMemory&& other) noexcept {
        if (this == &other) return *this;
        end();
        memory_ = std::move(other.memory_);
        nic_ = std::exchange(other.nic_, nullptr);
        return *this;
    }

    [[nodiscard]] std::byte* data() const noexcept { return memory_.data(); }
    [[nodiscard]] std::size_t size() const noexcept { return memory_.size(); }
    /// Leaves the memory shared until the NIC is closed: for memory that the NIC may still access
    /// (Nic::keep).
    void abandon() noexcept { nic_ = nullptr; }

  private:
    void end() noexcept {
        if (nic_ == nullptr) return;
        if (const auto gone = nic_->unshare_memory(memory_.data()); !gone.ok())
            log_error("cannot end the sharing of memory with the node, the memory stays shared: {}",
                      gone.error().message);
        nic_ = nullptr;
    }

    simt::PinnedMemory memory_;
    Nic* nic_ = nullptr;
};

}  // namespace gnstor::rdma
