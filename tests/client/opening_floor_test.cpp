// opening_floor_test.cpp: what a client's drives remember of trims ends with the floor that the client tells
// them, and a write that is not resolved is accepted however many came after it.
#include "client/opening_floor.hpp"

#include <gnstor/gnor/detail/paths/operation.hpp>

#include "embedded/rig.hpp"
#include "nvmf/loop_rig.hpp"

namespace gnstor::test::opening_floor_test {

using client::OpeningFloor;
using nvme::Status;
using nvmf::eventually;

const auto kMe = simt::self(simt::Lane{});
constexpr std::uint32_t kBlock = nvme::kBlockBytes;

class OpeningFloorTest : public ::testing::Test {
  protected:
    /// Of all drives together.
    [[nodiscard]] std::uint64_t tombstones() const {
        std::uint64_t n = 0;
        for (std::uint32_t i = 0; i < rig.options.ssds; ++i) n += rig.node->drive(i).counters().tombstones;
        return n;
    }
    /// As the client sees it: by a tracker of the test's own on the lanes' memory.
    std::uint64_t floor_of(const VolumeRef& v) {
        const auto last = [&](std::uint64_t& taken) -> Result<void> {
            taken = simt::load_relaxed<simt::Scope::kDevice>(v.last_sequence);
            return {};
        };
        const auto words = [&](std::uint64_t first, std::span<std::uint64_t> to) -> Result<void> {
            for (std::size_t i = 0; i < to.size(); ++i)
                to[i] = simt::load_relaxed<simt::Scope::kDevice>(v.resolved + first + i);
            return {};
        };
        return tracker.advance(last, words).value();
    }
    /// A write of a sequence that was taken before, as a lane does that was slow.
    Status write_late(const VolumeRef& v, const ChannelRef& ch, std::uint64_t sequence, std::uint32_t block,
                      std::byte* data) {
        const IoRequest request{block, 1, data, 0, 0};
        gnor::Cursor cursor = v.cursor_for(nvme::IoOpcode::kWrite, &request, 1);
        cursor.sequence = sequence;
        gnor::Operation op = v.operation();
        return gnor::run(kMe, ch.state(), op, cursor, 0, late());
    }

    ArrayRig rig;
    client::FloorTracker tracker;
};

TEST_F(OpeningFloorTest, DrivesDropTombstonesOfTrimsWithoutAReopening) {
    auto client = rig.connect("writer");
    auto volume = rig.volume(*client, "v", 4096);
    const VolumeRef v = volume->ref();
    const ChannelRef ch = client->channel(0).ref();
    for (std::uint32_t i = 0; i < 200; ++i) ASSERT_EQ(v.trim(kMe, ch, 16 * i, 3, late()), Status::kSuccess);
    EXPECT_EQ(floor_of(v), 200u);
    EXPECT_TRUE(eventually([&] { return tombstones() == 0; }))
        << tombstones() << " tombstones are left on the drives";
    std::vector<std::byte> data(kBlock, std::byte{5}), back(kBlock);
    ASSERT_EQ(v.write(kMe, ch, 16, 1, data.data(), late()), Status::kSuccess);
    ASSERT_EQ(v.read(kMe, ch, 16, 1, back.data(), late()), Status::kSuccess);
    EXPECT_EQ(back, data);
    rig.expect_clean(*client);
}

TEST_F(OpeningFloorTest, AnUnresolvedWriteHoldsTheFloorHoweverManyWritesFollow) {
    auto client = rig.connect("writer");
    auto volume = rig.volume(*client, "v", 4096);
    const VolumeRef v = volume->ref();
    const ChannelRef ch = client->channel(0).ref();
    ASSERT_EQ(v.trim(kMe, ch, 0, 64, late()), Status::kSuccess);
    const std::uint64_t held = v.take_sequences(kMe, 1);  // by a lane that sends nothing yet
    ASSERT_EQ(v.trim(kMe, ch, 100, 1, late()), Status::kSuccess);
    EXPECT_EQ(floor_of(v), held - 1);
    // The drives have been told of all that they may know: two replicas have the last trim, and no more.
    EXPECT_TRUE(eventually([&] { return tombstones() == 2; })) << tombstones();
    std::vector<std::byte> data(kBlock, std::byte{5}), back(kBlock);
    EXPECT_EQ(write_late(v, ch, held, 200, data.data()), Status::kSuccess)
        << "drives must accept a sequence above the floor";
    EXPECT_EQ(write_late(v, ch, held, 100, data.data()), Status::kSuccess);
    ASSERT_EQ(v.read(kMe, ch, 200, 1, back.data(), late()), Status::kSuccess);
    EXPECT_EQ(back, data);
    ASSERT_EQ(v.read(kMe, ch, 100, 1, back.data(), late()), Status::kSuccess);
    EXPECT_EQ(back, std::vector<std::byte>(kBlock)) << "the trim was newer than the write";
    v.resolve(held, 1);
    EXPECT_EQ(floor_of(v), *v.last_sequence);
    EXPECT_TRUE(eventually([&] { return tombstones() == 0; })) << tombstones();
    EXPECT_EQ(write_late(v, ch, held, 300, data.data()), Status::kCommandSequenceError)
        << "drives must refuse a sequence below the floor";
    rig.expect_clean(*client);
}

TEST_F(OpeningFloorTest, AWriteOfUnknownOutcomeHoldsTheFloorAndAnUnsentWriteDoesNot) {
    auto client = rig.connect("writer");
    auto volume = rig.volume(*client, "v", 4096);
    const VolumeRef v = volume->ref();
    const ChannelRef ch = client->channel(0).ref();
    std::vector<std::byte> data(kBlock, std::byte{5});
    ASSERT_EQ(v.write(kMe, ch, 0, 1, data.data(), late()), Status::kSuccess);
    EXPECT_EQ(v.write(kMe, ch, 0, 1, data.data(), simt::Deadline{0}), Status::kNotSent);
    EXPECT_EQ(v.write(kMe, ch, 5000, 1, data.data(), late()), Status::kLbaOutOfRange);
    EXPECT_EQ(floor_of(v), 3u);
    {
        const Hold held(*rig.node->drive_reactors().front());
        EXPECT_EQ(v.write(kMe, ch, 0, 1, data.data(), simt::Deadline::in_ns(20'000'000)), Status::kTimedOut);
    }
    ASSERT_EQ(v.write(kMe, ch, 1, 1, data.data(), late()), Status::kSuccess);
    EXPECT_EQ(floor_of(v), 3u);
    volume.reset();
    volume = client->open("v", client::OpenMode::kWrite).value();
    tracker = {};
    ASSERT_EQ(volume->ref().write(kMe, ch, 0, 1, data.data(), late()), Status::kSuccess);
    EXPECT_EQ(floor_of(volume->ref()), 1u) << "a new opening starts with a new floor";
}

TEST_F(OpeningFloorTest, ADriveThatDoesNotHaveTheVolumeCostsTheOthersNothing) {
    auto client = rig.connect("writer");
    auto volume = rig.volume(*client, "v", 4096);
    const VolumeRef v = volume->ref();
    const ChannelRef ch = client->channel(0).ref();
    GN_ASSERT_OK(rig.ports[0]->volume_remove(rig.daemon->inspect().term, v.geometry.volume));
    std::uint32_t trimmed = 0;
    for (std::uint32_t block = 0; block < 4096; block += 16) {
        const auto replicas =
            placement::place(*v.operation().map, v.geometry, block >> v.geometry.chunk_shift);
        if (std::find(replicas.slot, replicas.slot + replicas.count, 0) != replicas.slot + replicas.count)
            continue;
        ASSERT_EQ(v.trim(kMe, ch, block, 3, late()), Status::kSuccess);
        ++trimmed;
    }
    EXPECT_GT(trimmed, 50u);
    EXPECT_TRUE(eventually([&] { return tombstones() == 0; }))
        << tombstones() << " tombstones are left on the drives";
}

TEST_F(OpeningFloorTest, ManyRequestsOfOneCallAndTransfersOfTheHostAreResolvedTogether) {
    auto client = rig.connect("writer");
    auto volume = rig.volume(*client, "v", 4096);
    const VolumeRef v = volume->ref();
    const ChannelRef ch = client->channel(0).ref();
    std::vector<std::byte> data(100 * kBlock, std::byte{5});
    std::vector<IoRequest> requests(100);
    for (std::uint32_t i = 0; i < 100; ++i) requests[i] = {3 * i, 1, data.data() + i * kBlock, 0, 0};
    ASSERT_EQ(v.write_many(kMe, ch, requests.data(), 100, nullptr, late()), Status::kSuccess);
    EXPECT_EQ(floor_of(v), 100u);
    GN_ASSERT_OK(volume->write(0, data));
    EXPECT_EQ(floor_of(v), *v.last_sequence);
    EXPECT_GT(floor_of(v), 100u);
}

}  // namespace gnstor::test::opening_floor_test
