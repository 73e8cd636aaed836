// basic_test.cpp: one lane, one call at a time, against model drives in strict mode.
#include "gnor/rig.hpp"

namespace gnstor::test {
namespace {

using nvme::Status;

TEST(Gnor, ReadsWhatItWroteThroughUnregisteredBuffers) {
    Rig rig;
    const auto v = rig.volume();
    const auto me = simt::self(simt::Lane{});
    std::vector<std::byte> out, in(100 * 4096);
    for (std::uint32_t i = 0; i < 100; ++i) {
        const auto block = pattern_block(7 + i, 1);
        out.insert(out.end(), block.begin(), block.end());
    }
    ASSERT_EQ(v.write(me, rig.channel(), 7, 100, out.data(), Deadline::in_ns(kLong)), Status::kSuccess);
    ASSERT_EQ(v.read(me, rig.channel(), 7, 100, in.data(), Deadline::in_ns(kLong)), Status::kSuccess);
    EXPECT_TRUE(in == out);
    for (std::uint32_t i = 0; i < 100; ++i) {
        const auto replicas = rig.replicas_of(7 + i);
        ASSERT_EQ(replicas.count, 2u);
        for (std::uint32_t r = 0; r < 2; ++r)
            EXPECT_TRUE(rig.drives[replicas.slot[r]]->block(7 + i) == pattern_block(7 + i, 1));
    }
    rig.expect_clean();
}

}  // namespace
}  // namespace gnstor::test
