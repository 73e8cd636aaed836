// malformed_test.cpp: responses that are too short to be one: counted, and their queue pair counts as broken,
// whatever the bytes are that the lanes find where the rest should be.
#include <gtest/gtest.h>

#include <algorithm>

#include "gnor/rig.hpp"
#include "support/count.hpp"

namespace gnstor::test {
namespace {

using nvme::IoFields;

void note(void* argument, Status status) {
    *static_cast<Status*>(argument) = status;
}

class Malformed : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Responses, Malformed, ::testing::Bool(), [](const auto& p) {
    return p.param ? std::string("InCompletions") : std::string("InReceiveBuffers");
});

TEST_P(Malformed, OfEveryLengthFailTheQueuePairAndCompleteNoCall) {
    RigOptions o;
    o.scatter = GetParam();
    o.replicas = 1;
    o.depth = 2;
    Rig rig(o);
    const VolumeRef v = rig.volume();
    const ChannelRef ch = rig.channel();
    auto* buffer = static_cast<std::byte*>(ch.alloc(kMe, 4096));
    const std::uint32_t slot = rig.replicas_of(0).slot[0];
    std::uint64_t broken = 0;
    for (std::uint32_t bytes = 1; bytes < 16; ++bytes) {
        // Whole ones before it, so that the receive buffers have held answers to the same slots.
        for (std::uint32_t i = 0; i < 70; ++i)
            ASSERT_EQ(v.read(kMe, ch, 0, 1, buffer, late()), Status::kSuccess);
        rig.drives[slot]->set_rule([bytes](const nvme::Command&, const IoFields&) {
            return Decision{Decision::kShort, {}, 0, bytes};
        });
        auto called = Status::kSuccess;
        if (bytes % 2 == 0) {
            EXPECT_EQ(v.read(kMe, ch, 0, 1, buffer, late()), Status::kQueueError) << bytes << " bytes";
        } else {
            ASSERT_EQ(v.read_async(simt::Lane{}, ch, 0, 1, buffer, &note, &called, late()), Status::kSuccess);
            const Deadline until = late();
            while (rig.channels[0]->counters().value().callbacks <= broken / 2 && !until.passed())
                ch.poll(kMe);
            EXPECT_EQ(called, Status::kQueueError) << bytes << " bytes";
        }
        EXPECT_EQ(rig.channels[0]->counters().value().malformed, ++broken) << bytes << " bytes";
        const auto first = rig.channels[0]->first_error().value();
        ASSERT_TRUE(first.has_value());
        EXPECT_EQ(first->queue, slot);
        EXPECT_EQ(ch.free(kMe, buffer), Status::kBufferInUse);
        rig.drives[slot]->set_rule({});
        rig.channels[0]->reclaim(slot).value();
        rig.connect(0, slot);
        rig.channels[0]->clear_first_error().value();
    }
    EXPECT_EQ(rig.channels[0]->counters().value().stale, 0u);
    count("gnor_short_responses", broken);
    EXPECT_EQ(ch.free(kMe, buffer), Status::kSuccess);
    rig.expect_clean();
}

}  // namespace
}  // namespace gnstor::test
