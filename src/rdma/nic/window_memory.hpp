// window_memory.hpp: memory of a NIC for its windows, where windows are not the peer's memory itself.
// Internal to rdma/.
//
// A piece is a power of two of pages, page aligned, with unspecified contents. Returned pieces are kept
// for reuse, up to `kIdleBytesMax` for all queue pairs together; more are freed. No request is refused:
// the caller that opens windows knows the size of each (window_room) and bounds the sum. One thread at a
// time: that of the NIC's engine.
#pragma once

#include "rdma/nic/nic.hpp"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

namespace gnstor::rdma {

class WindowMemory {
  public:
    static constexpr std::size_t kIdleBytesMax = 16u << 20;

    struct Delete {
        void operator()(std::byte* p) const noexcept { ::operator delete[](p, std::align_val_t{4096}); }
    };
    using Piece = std::unique_ptr<std::byte[], Delete>;

    /// `bytes`: up to 2^31.
    [[nodiscard]] Piece take(std::uint32_t bytes) {
        std::vector<Piece>& idle = of(bytes);
        if (idle.empty()) return Piece(new (std::align_val_t{4096}) std::byte[window_room(bytes)]);
        Piece piece = std::move(idle.back());
        idle.pop_back();
        idle_bytes_ -= window_room(bytes);
        return piece;
    }
    /// `bytes`: as in take().
    void give(Piece piece, std::uint32_t bytes) {
        if (idle_bytes_ + window_room(bytes) > kIdleBytesMax) return;
        idle_bytes_ += window_room(bytes);
        of(bytes).push_back(std::move(piece));
    }
    [[nodiscard]] std::size_t idle_bytes() const noexcept { return idle_bytes_; }

  private:
    [[nodiscard]] std::vector<Piece>& of(std::uint32_t bytes) {
        return idle_[static_cast<std::size_t>(std::countr_zero(window_room(bytes)))];
    }
    std::array<std::vector<Piece>, 32> idle_;
    std::size_t idle_bytes_ = 0;
};

}  // namespace gnstor::rdma
