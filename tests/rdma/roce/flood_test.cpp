// flood_test.cpp: floods of REQs from forged addresses, one each, and peers who mean it, in virtual time: how
// many of those connect, beside what is computed. As the driver puts the pieces together.
#include <gnstor/base/hash.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <vector>

#include "rdma/roce/connection_manager.hpp"
#include "rdma/roce/message_rate_limiter.hpp"
#include "rdma/roce/peer_trust.hpp"
#include "support/count.hpp"
#include "support/seed.hpp"

using namespace gnstor;
using namespace gnstor::rdma::roce;

namespace {

constexpr TimeNs kMs = 1'000'000, kSecond = 1000 * kMs;
constexpr std::uint64_t kService = service_of_port(4420);
constexpr std::uint32_t kPlaces = 256;  // half-open, as the driver has them
constexpr double kAdmitted = 10'000;    // messages a second (MessageBudgetOptions)
constexpr TimeNs kAnswer = 3 * kMs;     // from a REQ to the RTU: deciding, and the way there and back
constexpr TimeNs kRetry = 500 * kMs;    // of a peer like ours
constexpr std::uint32_t kTries = 8;
constexpr TimeNs kBegin = 800 * kMs;

Gid address(std::uint64_t n) {
    Gid gid{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};
    for (int i = 0; i < 4; ++i)
        gid[12 + static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(n >> (8 * i));
    return gid;
}

struct Flood {
    std::uint32_t a_second;
    bool repeated;        ///< each request once more, later
    bool proven = false;  ///< the peers were connected before
};

/// A listening machine, and all that comes to it.
class Machine {
  public:
    Machine(std::uint64_t seed, bool told_apart)
        : told_apart_(told_apart),
          manager_(options(seed)),
          budget_({.seed = seed}),
          standing_(seed),
          dice_(seed) {
        EXPECT_TRUE(manager_.listen(kService).ok());
    }
    static CmOptions options(std::uint64_t seed) {
        CmOptions o;
        o.connections_max = kPlaces + 64;
        o.half_open_max = kPlaces;
        o.half_open_of_peer_max = 64;
        o.seed = seed;
        return o;
    }
    /// Peers begin to connect every 50 ms, when the flood has filled what it can. How many of `peers`
    /// connected.
    std::uint32_t run(const Flood& flood, std::uint32_t peers) {
        const TimeNs end = kBegin + peers * 50 * kMs + kTries * kRetry;
        for (TimeNs at = 0; at < end; at += kSecond / flood.a_second)
            if (!flood.repeated || dice_.below(2) == 0) forge(at, flood.repeated);
        for (std::uint32_t peer = 0; peer < peers; ++peer) {
            if (flood.proven) standing_.prove(0, address(peer));
            const TimeNs begin = kBegin + peer * 50 * kMs + dice_.below(kMs);
            for (std::uint32_t i = 0; i < kTries; ++i)
                arrive(begin + i * kRetry + dice_.below(kMs), address(peer), request(peer, peer));
        }
        while (!coming_.empty()) {
            const auto first = coming_.begin();
            const TimeNs now = first->first;
            const Coming one = first->second;
            coming_.erase(first);
            if (one.accept != 0)
                (void)manager_.accept(now, one.accept, CmParameters{});
            else if (!take(now, one))
                continue;
            settle(now);
        }
        return connected_;
    }
    std::uint64_t forged = 0;

  private:
    struct Coming {
        Gid from{};
        CmMessage message;
        CmId accept = 0;  ///< not a message: the listener has decided
    };
    static CmMessage request(std::uint32_t id, std::uint64_t transaction) {
        CmMessage m;
        m.kind = CmKind::kRequest;
        m.service_id = kService;
        m.local_id = id;
        m.transaction = transaction;
        return m;
    }
    void arrive(TimeNs at, const Gid& from, const CmMessage& message) {
        coming_.emplace(at, Coming{from, message, 0});
    }
    void forge(TimeNs at, bool again) {
        const Gid from = address(1000 + forged);
        const CmMessage message = request(static_cast<std::uint32_t>(dice_.next()), dice_.next());
        arrive(at, from, message);
        if (again) arrive(at + 600 * kMs, from, message);
        ++forged;
    }
    static bool real(const Gid& gid) { return gid[13] == 0 && gid[14] == 0 && gid[15] == 0 && gid[12] < 250; }

    bool take(TimeNs now, const Coming& one) {
        PeerTrust standing = PeerTrust::kNew;
        if (told_apart_)
            standing = one.message.kind == CmKind::kRequest ? standing_.of_request(now, one.from, one.message)
                                                            : standing_.of_peer(now, one.from);
        const MessageOf of =
            manager_.expects(one.from, one.message) ? MessageOf::kConnection : MessageOf::kStranger;
        if (!budget_.take(now, one.from, of, standing)) return false;
        manager_.on_message(now, one.from, one.message, standing);
        return true;
    }
    void settle(TimeNs now) {
        if (now >= manager_.next_deadline()) manager_.on_time(now);
        CmEvent event;
        while (manager_.next_event(event)) {
            if (event.kind == CmEventKind::kRequested) coming_.emplace(now + kMs, Coming{{}, {}, event.id});
            if (event.kind == CmEventKind::kConnected) {
                ++connected_;
                EXPECT_TRUE(real(event.peer));
                standing_.prove(now, event.peer);
            }
        }
        Gid to;
        CmMessage message;
        while (manager_.next_message(to, message)) {
            if (message.kind != CmKind::kReply || !real(to)) continue;
            CmMessage ready;
            ready.kind = CmKind::kReadyToUse;
            ready.transaction = message.transaction;
            ready.local_id = message.remote_id;
            ready.remote_id = message.local_id;
            arrive(now + kAnswer - kMs, to, ready);
        }
        EXPECT_LE(manager_.half_open(), kPlaces);
    }

    const bool told_apart_;
    ConnectionManager manager_;
    MessageRateLimiter budget_;
    PeerTrustTable standing_;
    SplitMix64 dice_;
    std::multimap<TimeNs, Coming> coming_;
    std::uint32_t connected_ = 0;
};

/// That a half-open place is not taken from its peer before it has answered, where so many a second take one.
double kept(double takers) {
    // Those who should have answered 100 ms ago give way first; while there are such, nobody else does.
    if (takers < kPlaces / 0.1) return 1;
    return std::exp(-takers * static_cast<double>(kAnswer) / kSecond / kPlaces);
}
/// That a REQ is remembered when it comes again.
double remembered(double a_second, TimeNs later) {
    return std::exp(-a_second * static_cast<double>(later) / kSecond /
                    static_cast<double>(PeerTrustTable::kRequests));
}
/// docs/wire.md, "Floods of requests from forged addresses": that a peer with its eight tries connects.
double computed(const Flood& flood) {
    if (flood.proven) return 1;
    const double all = flood.a_second;
    const double repeated = flood.repeated ? all / 2 * remembered(all / 2, 600 * kMs) : 0;
    const double heard_repeated = std::min(repeated, kAdmitted);
    const double fresh = flood.repeated ? all - repeated : all;
    const double heard_fresh = std::min(fresh, kAdmitted - heard_repeated);
    const double first = heard_fresh / fresh * kept(heard_fresh + heard_repeated);
    const double admitted = repeated > kAdmitted ? kAdmitted / repeated : 1;
    const double distinct = flood.repeated ? all / 2 : all;
    const double again = remembered(distinct, kRetry) * admitted * (repeated > 0 ? kept(heard_repeated) : 1);
    return 1 - (1 - first) * std::pow(1 - again, kTries - 1);
}

class ForgedFlood : public ::testing::TestWithParam<Flood> {};
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
// The same code at rates that take a minute less.
const auto kFloods = ::testing::Values(Flood{1'000, false}, Flood{20'000, true});
#else
const auto kFloods = ::testing::Values(Flood{1'000, false}, Flood{20'000, false}, Flood{100'000, false},
                                       Flood{20'000, true}, Flood{100'000, true}, Flood{100'000, true, true});
#endif
INSTANTIATE_TEST_SUITE_P(Rates, ForgedFlood, kFloods, [](const auto& p) {
    return std::to_string(p.param.a_second) + (p.param.repeated ? "Repeated" : "Once") +
           (p.param.proven ? "Proven" : "");
});

TEST_P(ForgedFlood, LeavesARealPeerTheComputedChanceToConnect) {
    constexpr std::uint32_t kPeers = 30;
    const Flood& flood = GetParam();
    Machine machine(test::run_seed(), true);
    const std::uint32_t connected = machine.run(flood, kPeers);
    Machine before(test::run_seed(), false);
    const std::uint32_t undefended = before.run(flood, kPeers);
    const double chance = computed(flood);
    const double spread = std::sqrt(chance * (1 - chance) / kPeers);
    std::printf(
        "%u REQs a second from forged addresses%s%s: %u of %u peers connected, computed %.4f; not told "
        "apart %u\n",
        flood.a_second, flood.repeated ? ", each twice" : "", flood.proven ? ", peers known" : "", connected,
        kPeers, chance, undefended);
    EXPECT_GE(connected, std::floor((chance - 3 * spread - 0.02) * kPeers));
    EXPECT_LE(connected, std::ceil((chance + 3 * spread + 0.1) * kPeers));
    test::count("roce_forged_requests", machine.forged);
    test::count("roce_connected_in_a_flood", connected);
}

}  // namespace
