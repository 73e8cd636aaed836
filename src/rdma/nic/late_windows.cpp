#include "rdma/nic/late_windows.hpp"

#include <gnstor/base/log.hpp>

#include <cstring>
#include <vector>

namespace gnstor::rdma {

namespace {
constexpr int kRubbish = 0xA5;
}  // namespace

void LateWindows::open(QueuePair& qp, const MemoryTable::Pin& pin, std::uint32_t bytes, WindowUse use,
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

bool LateWindows::fetch(Late& late) {
    if (late.peer.fault != MemoryFault::kNone) engine_.fail(*late.qp);
    if (!late.qp->ready() || late.peer.fault != MemoryFault::kNone) return false;
    std::memcpy(late.memory.get(), late.peer.data, late.bytes);
    return true;
}

std::uint32_t LateWindows::poll() {
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

void LateWindows::close(QueuePair* qp, const Window& window, bool filled) {
    const auto at = late_.find(window.cookie);
    if (at == late_.end() || !at->second.told || at->second.qp != qp) {
        count(qp->nic->tally.mine().strict_violations);
        log_error("rdma: cannot close the memory window with cookie {}: it is not open, or not ready yet",
                  window.cookie);
        return;
    }
    const Late& late = at->second;
    const bool reaches = late.use == WindowUse::kWrite && filled && qp->ready();
    const bool refused = late.peer.fault != MemoryFault::kNone;
    if (reaches && refused) engine_.fail(*qp);
    if (reaches && !refused) std::memcpy(late.peer.data, late.memory.get(), late.bytes);
    if (!refused) late.peer.region->unpin();
    const std::uint32_t room = window_room(late.bytes);
    late_.erase(at);
    qp->sink->on_window_freed(qp->qpn, room);
}

}  // namespace gnstor::rdma
