// fua_test.cpp: what is sent with FUA: writes and reads of VolumeRef::stable() alone; writes to every
// replica, in every form and over retries.
#include <gtest/gtest.h>

#include <atomic>

#include <gnstor/gnor/batch.hpp>

#include "gnor/rig.hpp"

namespace gnstor::test {
namespace {

using nvme::IoOpcode;

class Fua : public ::testing::Test {
  protected:
    Fua() {
        for (auto& d : rig.drives)
            d->set_rule([this](const nvme::Command& c, const nvme::IoFields& f) {
                const bool changes = c.opcode == static_cast<std::uint8_t>(IoOpcode::kWrite) ||
                                     c.opcode == static_cast<std::uint8_t>(IoOpcode::kWriteZeroes);
                const bool read = c.opcode == static_cast<std::uint8_t>(IoOpcode::kRead);
                // DSM's CDW12 is reserved, and a flush has none.
                if (!changes && !read && f.fua) ++strays;
                if (read) ++(f.fua ? reads_with : reads_without);
                if (changes) ++(f.fua ? with : without);
                if (refusals-- > 0) return Decision{Decision::kRefuse, Status::kBusy, 0};
                return Decision{};
            });
    }
    /// Each form of a write once; how many commands that is.
    std::uint32_t write_in_every_form(const VolumeRef& volume) {
        auto* const buffer = static_cast<std::byte*>(ch.alloc(kMe, 8192));
        std::uint32_t n = 0;
        EXPECT_EQ(volume.write(kMe, ch, 0, 1, buffer, late()), Status::kSuccess);
        EXPECT_EQ(volume.write(kMe, ch, 15, 2, data.data(), late()), Status::kSuccess);
        n += 3;
        const IoRequest requests[2] = {{3, 1, buffer, 0, 0}, {40, 1, buffer + 4096, 0, 0}};
        EXPECT_EQ(volume.write_many(kMe, ch, requests, 2, nullptr, late()), Status::kSuccess);
        n += 2;
        EXPECT_EQ(ch.wait(kMe, volume.write_async(simt::Lane{}, ch, 7, 1, buffer, late()), late()),
                  Status::kSuccess);
        EXPECT_EQ(ch.wait(kMe, volume.try_write_async(simt::Lane{}, ch, 8, 1, buffer), late()),
                  Status::kSuccess);
        EXPECT_EQ(volume.write_zeroes(kMe, ch, 9, 1, late()), Status::kSuccess);
        n += 3;
        Batch<32> batch{};
        batch.init(kMe, simt::Lane{});
        EXPECT_EQ(batch.submit(kMe, simt::Lane{}, volume, ch, IoOpcode::kWrite, requests), Status::kSuccess);
        batch.commit(kMe, simt::Lane{}, ch);
        const Deadline end = late();
        while (!batch.dispatch(kMe, simt::Lane{}, ch).finished && !end.passed()) batch.poll(kMe, ch);
        n += 1;
        EXPECT_EQ(volume.trim(kMe, ch, 9, 1, late()), Status::kSuccess);
        EXPECT_EQ(volume.read(kMe, ch, 9, 1, data.data(), late()), Status::kSuccess);
        EXPECT_EQ(volume.flush(kMe, ch, late()), Status::kSuccess);
        EXPECT_EQ(ch.free(kMe, buffer), Status::kSuccess);
        return n * 2;  // replicas
    }

    Rig rig{};
    VolumeRef v = rig.volume();
    ChannelRef ch = rig.channel();
    std::vector<std::byte> data = std::vector<std::byte>(8192);
    std::atomic<std::uint32_t> with{0}, without{0}, reads_with{0}, reads_without{0}, strays{0};
    std::atomic<std::int32_t> refusals{0};
};

TEST_F(Fua, IsOnNoCommandUnlessAskedFor) {
    const std::uint32_t commands = write_in_every_form(v);
    EXPECT_EQ(without, commands);
    EXPECT_EQ(with, 0u);
    EXPECT_EQ(reads_with, 0u);
    EXPECT_EQ(reads_without, 1u);
    EXPECT_EQ(strays, 0u);
    rig.expect_clean();
}

TEST_F(Fua, IsOnEveryWriteAndReadOfAStableVolumeAndOnNothingElse) {
    const std::uint32_t commands = write_in_every_form(v.stable());
    EXPECT_EQ(with, commands);
    EXPECT_EQ(without, 0u);
    EXPECT_EQ(reads_with, 1u) << "a read with FUA must be sent with FUA too (NVM Command Set 1.0, 3.2.4)";
    EXPECT_EQ(reads_without, 0u);
    EXPECT_EQ(strays, 0u);
    rig.expect_clean();
}

TEST_F(Fua, StaysOnARetriedWrite) {
    refusals = 5;
    EXPECT_EQ(v.stable().write(kMe, ch, 0, 1, data.data(), late()), Status::kSuccess);
    EXPECT_GT(with, 2u);
    EXPECT_EQ(without, 0u);
    EXPECT_EQ(v.write(kMe, ch, 0, 1, data.data(), late()), Status::kSuccess) << "the reference is unchanged";
    EXPECT_EQ(without, 2u);
    rig.expect_clean();
}

}  // namespace
}  // namespace gnstor::test
