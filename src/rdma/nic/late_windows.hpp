// late_windows.hpp: windows of the loop wire as other wires have them, for tests (NicOptions::late_windows).
// Internal to rdma/.
//
// A window is memory of the NIC, filled with rubbish: one for reading gets the peer's bytes some rounds
// later, which the sink is told (not in the order of opening); one for writing reaches the peer when it is
// closed as filled. A key or range that the peer refuses is found as late, and puts the queue pair to error.
// What is still read after close_window() is freed memory: sanitizers see it.
//
// One for each reactor of a NIC; that reactor's thread only, but for the constructor and the destructor.
#pragma once

#include "rdma/nic/engine.hpp"

#include <gnstor/base/hash.hpp>

#include <memory>
#include <unordered_map>

namespace gnstor::rdma {

class LateWindows final : public Poller {
  public:
    LateWindows(Engine& engine, std::uint32_t rounds, std::uint64_t seed)
        : engine_(engine), rounds_(rounds), dice_(mix64(seed)) {
        engine_.reactor().add(*this);
    }
    ~LateWindows() override { engine_.reactor().remove(*this); }
    LateWindows(const LateWindows&) = delete;
    LateWindows& operator=(const LateWindows&) = delete;

    std::uint32_t poll() override;
    /// `pin`: of the peer's memory, or a fault. The window of `qp` is counted already.
    void open(QueuePair& qp, const MemoryTable::Pin& pin, std::uint32_t bytes, WindowUse use,
              SoftNic::Window& window);
    /// True: of one for reading that was ready, or of one for writing.
    void close(QueuePair* qp, const SoftNic::Window& window, bool filled);

  private:
    struct Late {
        QueuePair* qp;
        MemoryTable::Pin peer;
        std::unique_ptr<std::byte[]> memory;
        std::uint32_t bytes;
        WindowUse use;
        std::uint32_t rounds;  ///< until it is ready
        bool told;
    };
    [[nodiscard]] bool fetch(Late& late);

    Engine& engine_;
    const std::uint32_t rounds_;
    SplitMix64 dice_;
    std::uint64_t next_cookie_ = 1;
    std::unordered_map<std::uint64_t, Late> late_;
};

}  // namespace gnstor::rdma
