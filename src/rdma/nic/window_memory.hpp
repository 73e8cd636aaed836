// window_memory.hpp: where a NIC has windows that are memory of its own. Internal to rdma/.
//
// A piece is a power of two of pages, aligned to a page, with whatever was in it before. Those that come back
// are kept for the next, `kIdleBytesMax` of all queue pairs together; what is more goes back to the machine.
// Who opens windows knows what each takes (window_room) and bounds the sum: here nothing is refused. One
// thread at a time: that of the NIC's engine.
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
    /// Taken for as many bytes.
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
