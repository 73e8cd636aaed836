// cm_rig.hpp: two connection managers and a network between them that loses, doubles and delays messages, in
// virtual time.
#pragma once

#include <gnstor/base/hash.hpp>

#include "rdma/roce/connection_manager.hpp"

#include <map>
#include <vector>

namespace gnstor::rdma::roce::samples {

inline Gid address_of(std::uint32_t node) {
    return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 0, 0, static_cast<std::uint8_t>(node + 1)};
}

struct CmRig {
    CmRig(std::uint64_t seed, std::uint32_t lose_per_mille)
        : dice(seed),
          lose(lose_per_mille),
          managers{ConnectionManager(options(seed)), ConnectionManager(options(seed + 1))} {}
    static CmOptions options(std::uint64_t seed) {
        CmOptions o;
        o.connections_max = 32;
        o.half_open_max = 8;
        o.seed = seed;
        return o;
    }

    /// Messages that are due go out and come in, events are taken; false where nothing is under way any more.
    bool step() {
        TimeNs next = wire.empty() ? kNever : wire.begin()->first;
        for (auto& manager : managers) next = std::min(next, manager.next_deadline());
        if (next == kNever) return false;
        now = std::max(now, next);
        if (!wire.empty() && wire.begin()->first <= now) {
            const auto [to, message] = wire.begin()->second;
            wire.erase(wire.begin());
            // By the bytes, as on a real wire.
            std::array<std::byte, kMadBytes> mad;
            encode_cm(message, mad);
            managers[to].on_message(now, address_of(1 - to), *decode_cm(mad));
        }
        pump();
        return true;
    }
    void pump() {
        for (std::uint32_t from = 0; from < 2; ++from) {
            managers[from].on_time(now);
            Gid to;
            CmMessage message;
            while (managers[from].next_message(to, message)) {
                ++sent;
                for (std::uint64_t copies = 1 + (dice.below(1000) < lose ? 1 : 0); copies > 0; --copies) {
                    if (dice.below(1000) < lose) continue;
                    wire.emplace(now + 1000 + dice.below(dice.below(4) == 0 ? 900'000'000 : 5'000),
                                 std::pair{1 - from, message});
                }
            }
            CmEvent event;
            while (managers[from].next_event(event)) events[from].push_back(event);
        }
    }
    [[nodiscard]] std::vector<CmEventKind> kinds(std::uint32_t node, CmId id) const {
        std::vector<CmEventKind> all;
        for (const CmEvent& event : events[node]) {
            if (event.id == id) all.push_back(event.kind);
        }
        return all;
    }

    SplitMix64 dice;
    std::uint32_t lose;
    ConnectionManager managers[2];
    std::multimap<TimeNs, std::pair<std::uint32_t, CmMessage>> wire;
    std::vector<CmEvent> events[2];
    TimeNs now = 0;
    std::uint64_t sent = 0;
};

}  // namespace gnstor::rdma::roce::samples
