// late_windows.hpp: windows on the loop wire that are the NIC's memory, as on other wires, filled with
// garbage and ready late, in random order: NicOptions with .stage_windows = late_windows(rounds).
//
// A window is memory of the NIC, filled with garbage. A window for reading receives the peer's bytes some
// rounds later, in random order, and the sink is told; a window for writing is copied to the peer when it
// is closed as filled. A key or range that the peer refuses is found at that time too, and puts the queue
// pair to error. close_window() frees the memory, so that sanitizers catch later accesses.
//
// One object for each reactor of a NIC; that reactor's thread only, except constructor and destructor.
#pragma once

#include <gnstor/base/hash.hpp>
#include <gnstor/base/log.hpp>

#include "rdma/nic/engine.hpp"
#include "rdma/nic/staged_windows.hpp"

#include <cstring>
#include <memory>
#include <unordered_map>
#include <vector>

namespace gnstor::rdma {

class LateWindows final : public Poller, public StagedWindows {
  public:
    LateWindows(NicEngine& engine, std::uint32_t rounds, std::uint64_t seed)
        : engine_(engine), rounds_(rounds), dice_(mix64(seed)) {
        engine_.reactor().add(*this);
    }
    ~LateWindows() override { engine_.reactor().remove(*this); }
    LateWindows(const LateWindows&) = delete;
    LateWindows& operator=(const LateWindows&) = delete;

    std::uint32_t poll() override;
    void open(QueuePair& qp, const MemoryTable::Pin& pin, std::uint32_t bytes, WindowUse use,
              Window& window) override;
    void close(QueuePair& qp, const Window& window, bool filled) override;

  private:
    static constexpr int kRubbish = 0xA5;
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

inline void LateWindows::open(QueuePair& qp, const MemoryTable::Pin& pin, std::uint32_t bytes, WindowUse use,
                              Window& window) {
    Late late{.qp = &qp,
              .peer = pin,
              .memory = std::make_unique_for_overwrite<std::byte[]>(bytes),
              .bytes = bytes,
              .use = use,
              .rounds = static_cast<std::uint32_t>(dice_.below(rounds_)),
              .told = use == WindowUse::kWrite};
    std::memset(late.memory.get(), kRubbish, bytes);
    window = {late.memory.get(), bytes, next_cookie_++, use == WindowUse::kWrite};
    late_.emplace(window.cookie, std::move(late));
}

inline bool LateWindows::fetch(Late& late) {
    if (late.peer.fault != MemoryFault::kNone) engine_.fail(*late.qp);
    if (!late.qp->ready() || late.peer.fault != MemoryFault::kNone) return false;
    std::memcpy(late.memory.get(), late.peer.data, late.bytes);
    return true;
}

inline std::uint32_t LateWindows::poll() {
    std::vector<std::uint64_t> due;
    for (auto& [cookie, late] : late_)
        if (!late.told && late.rounds-- == 0) due.push_back(cookie);
    for (const std::uint64_t cookie : due) {
        Late& late = late_.at(cookie);
        late.told = true;
        const bool good = fetch(late);
        late.qp->sink->on_window_ready(late.qp->qpn, cookie, good);  // the sink closes it, now or later
    }
    return static_cast<std::uint32_t>(late_.size());
}

inline void LateWindows::close(QueuePair& qp, const Window& window, bool filled) {
    const auto at = late_.find(window.cookie);
    if (at == late_.end() || !at->second.told || at->second.qp != &qp) {
        count(qp.nic->tally.mine().strict_violations);
        log_error("rdma: cannot close the memory window with cookie {}: it is not open, or not ready yet",
                  window.cookie);
        return;
    }
    const Late& late = at->second;
    const bool reaches = late.use == WindowUse::kWrite && filled && qp.ready();
    const bool refused = late.peer.fault != MemoryFault::kNone;
    if (reaches && refused) engine_.fail(qp);
    if (reaches && !refused) std::memcpy(late.peer.data, late.memory.get(), late.bytes);
    if (!refused) late.peer.region->unpin();
    const std::uint32_t room = window_room(late.bytes);
    late_.erase(at);
    qp.sink->on_window_freed(qp.qpn, room);
}

/// For NicOptions::stage_windows: windows for reading are ready less than `rounds` rounds of the poller
/// later. 0: windows as on the loop wire.
inline StageWindows late_windows(std::uint32_t rounds) {
    if (rounds == 0) return {};
    return [rounds](NicEngine& engine, std::uint64_t seed) {
        return std::make_unique<LateWindows>(engine, rounds, seed);
    };
}

}  // namespace gnstor::rdma
