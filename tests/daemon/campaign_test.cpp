// campaign_test.cpp: who leads, when leases end, answers are late and daemons sleep: several campaigns over one model of etcd.
#include "daemon/standby/campaign.hpp"
#include "support/count.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

using namespace gnstor;
using namespace gnstor::daemon;

namespace {

using Ask = Campaign::Ask;
constexpr CampaignOptions kOptions;

TEST(Campaign, ADaemonThatFindsNoLeaderLeadsAfterALeaseAndTheKey) {
    Campaign c(kOptions);
    EXPECT_EQ(c.next(), Ask::kLook);
    c.looked(1'000, true);
    EXPECT_EQ(c.due_ms(), 1'000 + kOptions.look_ms);
    c.looked(1'250, false);
    EXPECT_EQ(c.next(), Ask::kGrant);
    c.granted(1'250, 1'300, 77, kOptions.ttl_ms);
    EXPECT_EQ(c.next(), Ask::kCreate);
    EXPECT_EQ(c.revision(), 0);
    c.created(1'400, 12);
    EXPECT_EQ(c.revision(), 12);
    EXPECT_EQ(c.next(), Ask::kKeepAlive);
    EXPECT_LE(c.acts_until_ms(), 1'250 + kOptions.ttl_ms) << "counted from before the request was sent";
}

TEST(Campaign, WhoIsLateRevokesItsLeaseAndLooksAgain) {
    Campaign c(kOptions);
    c.looked(0, false);
    c.granted(0, 1, 77, kOptions.ttl_ms);
    c.created(2, 0);
    EXPECT_EQ(c.next(), Ask::kRevoke);
    c.failed(3);
    EXPECT_EQ(c.next(), Ask::kLook) << "it ends by itself";
}

TEST(Campaign, ALeaderWhoseLeaseOutlivesALossOfEtcdGoesOnAndOneWhoseLeaseHasEndedDoesNot) {
    for (const bool lives : {true, false}) {
        Campaign c(kOptions);
        c.looked(0, false);
        c.granted(0, 0, 77, kOptions.ttl_ms);
        c.created(0, 12);
        for (std::uint64_t now = 2'000; now < 60'000; now += 2'000) {
            c.failed(now);
            EXPECT_EQ(c.next(), Ask::kKeepAlive);
            EXPECT_LE(c.acts_until_ms(), kOptions.ttl_ms);
        }
        c.kept(60'000, 60'100, lives ? kOptions.ttl_ms : 0);
        EXPECT_EQ(c.revision(), lives ? 12 : 0);
        EXPECT_EQ(c.acts_until_ms() > 60'000, lives);
    }
}

/// Model of etcd's lease and key, and of a network with delays.
struct Cluster {
    std::int64_t holder = 0;  ///< the lease that holds the key; 0: nobody
    std::int64_t revision = 0, leases = 0;
    std::vector<std::uint64_t> ends_ms;  ///< of leases, by number - 1
    void expire(std::uint64_t now) {
        if (holder != 0 && ends_ms[static_cast<std::size_t>(holder - 1)] <= now) holder = 0;
    }
};

TEST(Campaign, OneDaemonAtMostActsWhateverIsLateOrLost) {
    std::uint64_t led = 0, takeovers = 0;
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
        std::mt19937_64 random(seed);
        Cluster etcd;
        std::vector<Campaign> daemons(3, Campaign(kOptions));
        std::vector<std::uint64_t> wakes(3, 0);
        std::int64_t last = 0;
        for (std::uint64_t now = 0; now < 300'000; now += 50) {
            etcd.expire(now);
            int acting = 0;
            for (Campaign& c : daemons) acting += c.revision() != 0 && now < c.acts_until_ms() ? 1 : 0;
            ASSERT_LE(acting, 1) << "seed " << seed << " at " << now;
            led += acting;
            for (std::size_t d = 0; d < daemons.size(); ++d) {
                Campaign& c = daemons[d];
                if (now < wakes[d] || now < c.due_ms()) continue;
                const std::uint64_t dice = random() % 100;
                // The request arrives now and the answer later; or it is lost, or its answer.
                const std::uint64_t answered = now + random() % 200;
                wakes[d] = dice == 0 ? answered + 12'000 : answered;  // stopped, then goes on
                const bool lost = dice < 15, carried_out = dice >= 8;
                bool there = false;
                switch (c.next()) {
                    case Ask::kLook:
                        there = etcd.holder != 0;
                        break;
                    case Ask::kGrant:
                        etcd.ends_ms.push_back(now + kOptions.ttl_ms);
                        ++etcd.leases;
                        break;
                    case Ask::kCreate:
                        if (carried_out && etcd.holder == 0 &&
                            etcd.ends_ms[static_cast<std::size_t>(c.lease() - 1)] > now)
                            etcd.holder = c.lease(), ++etcd.revision;
                        there = etcd.holder == c.lease();
                        break;
                    case Ask::kKeepAlive: {
                        auto& ends = etcd.ends_ms[static_cast<std::size_t>(c.lease() - 1)];
                        there = ends > now && etcd.holder == c.lease();
                        if (there && carried_out) ends = now + kOptions.ttl_ms;
                        break;
                    }
                    case Ask::kRevoke:
                        if (carried_out) etcd.ends_ms[static_cast<std::size_t>(c.lease() - 1)] = now;
                        etcd.expire(now);
                        break;
                }
                if (lost) {
                    c.failed(answered);
                    continue;
                }
                switch (c.next()) {
                    case Ask::kLook:
                        c.looked(answered, there);
                        break;
                    case Ask::kGrant:
                        c.granted(now, answered, etcd.leases, kOptions.ttl_ms);
                        break;
                    case Ask::kCreate:
                        c.created(answered, there ? etcd.revision : 0);
                        if (there && etcd.revision != last) ++takeovers, last = etcd.revision;
                        break;
                    case Ask::kKeepAlive:
                        c.kept(now, answered, there ? kOptions.ttl_ms : 0);
                        break;
                    case Ask::kRevoke:
                        c.revoked(answered);
                        break;
                }
            }
        }
    }
    EXPECT_GT(takeovers, 500u);
    EXPECT_GT(led, 200u * 6'000u / 2) << "somebody leads most of the time";
    gnstor::test::count("campaign_takeovers", takeovers);
}

}  // namespace
