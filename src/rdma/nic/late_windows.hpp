// late_windows.hpp: windows on the loop wire that behave as on other wires, for tests
// (NicOptions::late_windows). Internal to rdma/.
//
// A window is memory of the NIC, filled with garbage. A window for reading receives the peer's bytes some
// rounds later, in random order, and the sink is told; a window for writing is copied to the peer when it
// is closed as filled. A key or range that the peer refuses is found at that time too, and puts the queue
// pair to error. close_window() frees the memory, so that sanitizers catch later accesses.
//
// One object for each reactor of a NIC; that reactor's thread only, except constructor and destructor.
#pragma once

#include "rdma/nic/engine.hpp"

#include <gnstor/base/hash.hpp>

#include <memory>
#include <unordered_map>

namespace gnstor::rdma {

class LateWindows final : public Poller {
  public:
    LateWindows(NicEngine& engine, std::uint32_t rounds, std::uint64_t seed)
        : engine_(engine), rounds_(rounds), dice_(mix64(seed)) {
        engine_.reactor().add(*this);
    }
    ~LateWindows() override { engine_.reactor().remove(*this); }
    LateWindows(const LateWindows&) = delete;
    LateWindows& operator=(const LateWindows&) = delete;

    std::uint32_t poll() override;
    /// `pin`: of the peer's memory, or a fault. The caller has counted the window
    /// (QueuePair::add_window).
    void open(QueuePair& qp, const MemoryTable::Pin& pin, std::uint32_t bytes, WindowUse use, Window& window);
    /// Closes a window for reading that was ready, or one for writing.
    void close(QueuePair* qp, const Window& window, bool filled);

  private:
    struct Late {
        QueuePair* qp;
        MemoryTable::Pin peer;
        std::unique_ptr<std::byte[]> memory;
        std::uint32_t bytes;
        WindowUse use;
        std::uint32_t rounds;  ///< polls until it is ready
        bool told;
    };
    [[nodiscard]] bool fetch(Late& late);

    NicEngine& engine_;
    const std::uint32_t rounds_;
    SplitMix64 dice_;
    std::uint64_t next_cookie_ = 1;
    std::unordered_map<std::uint64_t, Late> late_;
};

}  // namespace gnstor::rdma
