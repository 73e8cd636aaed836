// nic_memory.hpp: host memory that a NIC may be told of, on whichever wire: mapped, shared with the node
// where the wire wants that, unshared and unmapped at the end. Owned by one host thread; used by all.
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
    /// Zeroed whole pages of at least `bytes`; `nic` outlives it (but for abandon()).
    static Result<NicMemory> map(SoftNic& nic, std::size_t bytes) {
        NicMemory made;
        GN_ASSIGN(made.memory_, simt::PinnedMemory::map(bytes, simt::LanesKind::kCpu,
                                                        {.shareable = nic.wants_shared_memory()}));
        GN_TRY(nic.share_memory(made.memory_.data(), made.memory_.size(), made.memory_.file()));
        made.nic_ = &nic;
        return Result<NicMemory>(std::move(made));  // nvcc copies "made" alone
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
    /// Stays shared until the NIC is closed: for memory that it does not let go of (SoftNic::keep).
    void abandon() noexcept { nic_ = nullptr; }

  private:
    void end() noexcept {
        if (nic_ == nullptr) return;
        if (const auto gone = nic_->unshare_memory(memory_.data()); !gone.ok())
            log_error("memory stays shared with the node: {}", gone.error().message);
        nic_ = nullptr;
    }

    simt::PinnedMemory memory_;
    SoftNic* nic_ = nullptr;
};

}  // namespace gnstor::rdma
