// single_lane_rig.hpp: a lane that has its channel to itself, and whether its calls take the fast path
// (gnor/detail/paths/single_lane.hpp).
#pragma once

#include <gtest/gtest.h>

#include <cstring>

#include "gnor/rig.hpp"

namespace gnstor::test {

using SingleLaneChannel = BasicChannelRef<Sharing::kLane>;

inline RigOptions single_lane(std::uint32_t depth = 8, std::uint32_t replicas = 2) {
    RigOptions o;
    o.sharing = Sharing::kLane;
    o.depth = depth;
    o.replicas = replicas;
    o.seed = seed_from_environment(1);
    return o;
}

/// Whether a call takes the fast path, asked until one did: the answer has to come within a few looks, which
/// the engine of a busy machine may miss many times over, but not for ever.
template <class Call>
bool try_fast_path(const gnor::Channel& channel, const Call& call) {
    const auto fast_path = [&] { return channel.counters().value().fast_path; };
    const std::uint64_t before = fast_path();
    for (const Deadline end = late(); fast_path() == before;) {
        if (end.passed()) return false;
        call();
    }
    return true;
}

struct SingleLaneRig {
    explicit SingleLaneRig(const RigOptions& o = single_lane()) : rig(o) {}
    std::byte* pool(std::uint64_t bytes) { return static_cast<std::byte*>(ch.alloc(kMe, bytes)); }
    Status write(std::uint32_t block, std::uint32_t version, Deadline deadline = late()) {
        const auto data = pattern_block(block, version);
        std::memcpy(buffer, data.data(), data.size());
        return v.write(kMe, ch, block, 1, buffer, deadline);
    }
    /// Whether a read succeeds and brings this version of the block.
    ::testing::AssertionResult reads(std::uint32_t block, std::uint32_t version) {
        std::memset(buffer, 0xEE, nvme::kBlockBytes);
        const Status status = v.read(kMe, ch, block, 1, buffer, late());
        if (!nvme::ok(status)) return ::testing::AssertionFailure() << static_cast<std::uint32_t>(status);
        const auto data = pattern_block(block, version);
        if (std::memcmp(buffer, data.data(), data.size()) == 0) return ::testing::AssertionSuccess();
        return ::testing::AssertionFailure() << "block " << block << " is not version " << version;
    }
    gnor::Counters counters() { return rig.channels[0]->counters().value(); }
    template <class Call>
    bool try_fast_path(const Call& call) {
        return test::try_fast_path(*rig.channels[0], call);
    }
    void rule_everywhere(const ModelDrive::Rule& rule) {
        for (auto& d : rig.drives) d->set_rule(rule);
    }
    void end() {
        EXPECT_EQ(ch.free(kMe, buffer), Status::kSuccess);
        EXPECT_EQ(rig.nic->counters().rnr, 0u) << "a command without a receive";
        rig.expect_clean();
    }

    Rig rig;
    VolumeRef v = rig.volume();
    SingleLaneChannel ch = rig.channel().as<Sharing::kLane>();
    std::byte* buffer = pool(64 * 1024);
};

}  // namespace gnstor::test
