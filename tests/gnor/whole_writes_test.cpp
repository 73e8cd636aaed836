// whole_writes_test.cpp: a try that fails costs the drives nothing. A write of which one replica got its copy
// and the other did not, while its caller was told that it was not sent, would leave the replicas apart for
// ever.
//
// The send ring is as long as a queue pair is deep, and the strict NIC delays send completions, so that tries
// fail for want of an entry of the first, of the second or of a later replica.
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <thread>
#include <vector>

#include "gnor/rig.hpp"

namespace gnstor::test {
namespace {

constexpr std::size_t kSent = 2000, kRefused = 500;

RigOptions shallow(std::uint32_t replicas) {
    RigOptions o;
    o.depth = 4;
    o.replicas = replicas;
    o.seed = seed_from_environment(7);
    return o;
}

class WholeWrites : public ::testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Replicas, WholeWrites, ::testing::Values(1u, 2u, 3u));

TEST_P(WholeWrites, ATryThatFailsReachesNoReplica) {
    Rig rig(shallow(GetParam()));
    const VolumeRef v = rig.volume();
    const ChannelRef ch = rig.channel();
    void* const buffer = ch.alloc(kMe, 4096);
    std::vector<std::uint32_t> sent, refused;
    std::deque<Token> flying;
    const Deadline late = Deadline::in_ns(kLong);
    for (std::uint32_t block = 0; sent.size() < kSent || refused.size() < kRefused; ++block) {
        ASSERT_FALSE(late.passed()) << sent.size() << " sent, " << refused.size() << " refused";
        const Token t = v.try_write_async(simt::Lane{}, ch, block, 1, buffer);
        if (t.in_flight()) {
            sent.push_back(block);
            flying.push_back(t);
        } else {
            ASSERT_EQ(t.status, Status::kTooManyPending);
            refused.push_back(block);
            std::this_thread::yield();
        }
        auto status = Status::kSuccess;
        while (!flying.empty() && ch.poll(simt::Lane{}, flying.front(), status)) {
            ASSERT_EQ(status, Status::kSuccess);
            flying.pop_front();
        }
    }
    for (const Token& t : flying) EXPECT_EQ(ch.wait(kMe, t, late), Status::kSuccess);
    std::map<std::uint32_t, std::uint32_t> copies;
    for (auto& d : rig.drives)
        for (const auto& seen : d->seen()) ++copies[seen.block];
    for (const std::uint32_t block : refused) ASSERT_EQ(copies.count(block), 0u) << "block " << block;
    for (const std::uint32_t block : sent) ASSERT_EQ(copies[block], GetParam()) << "block " << block;
    std::printf("GN_COUNT gnor_tries_refused=%zu\n", refused.size());
    std::printf("GN_COUNT gnor_tries_sent=%zu\n", sent.size());
    EXPECT_EQ(ch.free(kMe, buffer), Status::kSuccess);
    rig.expect_clean();
}

}  // namespace
}  // namespace gnstor::test
