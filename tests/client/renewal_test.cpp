// renewal_test.cpp: an opening whose floor a write in doubt holds goes on in the next epoch, and never past
// another opening.
#include "client/opening_floor.hpp"

#include "embedded/rig.hpp"
#include "nvmf/loop_rig.hpp"

#include <semaphore>

namespace gnstor::test::renewal_test {

using client::OpeningFloor;
using client::OpenMode;
using nvme::Status;
using nvmf::eventually;

const auto kMe = simt::self(simt::Lane{});
constexpr std::uint32_t kBlock = nvme::kBlockBytes;

class Renewal : public ::testing::Test {
  protected:
    [[nodiscard]] std::uint64_t tombstones() const {
        std::uint64_t n = 0;
        for (std::uint32_t i = 0; i < rig.options.ssds; ++i) n += rig.node->drive(i).counters().tombstones;
        return n;
    }
    /// A write that no drive answers in time.
    void leave_in_doubt(client::Volume& volume, const ChannelRef& ch) {
        const Hold held(*rig.node->drive_reactors().front());
        EXPECT_EQ(volume.ref().write(kMe, ch, 0, 1, data.data(), simt::Deadline::in_ns(20'000'000)),
                  Status::kTimedOut);
    }

    ArrayRig rig;
    std::vector<std::byte> data = std::vector<std::byte>(kBlock, std::byte{5});
};

TEST_F(Renewal, TheOpeningContinuesInTheNextEpochAndDrivesDropItsTombstones) {
    auto client = rig.connect("writer");
    auto volume = rig.volume(*client, "v", 4096);
    const ChannelRef ch = client->channel(0).ref();
    const VolumeRef before = volume->ref();
    EXPECT_FALSE(volume->floor_is_held());
    leave_in_doubt(*volume, ch);
    EXPECT_TRUE(eventually([&] { return volume->floor_is_held(); }));
    for (std::uint32_t i = 0; i < 200; ++i)
        ASSERT_EQ(before.trim(kMe, ch, 16 * i, 3, late()), Status::kSuccess);
    GN_ASSERT_OK(client->quiesce(60'000));
    EXPECT_NE(tombstones(), 0u);
    GN_ASSERT_OK(volume->renew());
    EXPECT_EQ(volume->ref().epoch, before.epoch + 1);
    EXPECT_EQ(before.write(kMe, ch, 1, 1, data.data(), late()), Status::kStaleEpoch);
    const VolumeRef now = volume->ref();
    for (std::uint32_t i = 0; i < 200; ++i) ASSERT_EQ(now.trim(kMe, ch, 16 * i, 4, late()), Status::kSuccess);
    EXPECT_TRUE(eventually([&] { return tombstones() == 0; }))
        << tombstones() << " tombstones are left on the drives";
    EXPECT_FALSE(volume->floor_is_held());
    EXPECT_TRUE(volume->lease_held());
    GN_ASSERT_OK(volume->release());
    rig.expect_clean(*client);
}

TEST_F(Renewal, NeverRenewsAboveANewerOpening) {
    auto client = rig.connect("writer");
    auto volume = rig.volume(*client, "v", 4096);
    const ChannelRef ch = client->channel(0).ref();
    auto other = client->open("v", OpenMode::kWrite).value();
    const auto renewed = volume->renew();
    ASSERT_FALSE(renewed.ok());
    EXPECT_EQ(renewed.error().code, Errc::kPermission);
    EXPECT_FALSE(volume->renewing());
    EXPECT_FALSE(volume->lease_held());
    EXPECT_EQ(other->ref().write(kMe, ch, 0, 1, data.data(), late()), Status::kSuccess);
    EXPECT_EQ(volume->ref().write(kMe, ch, 0, 1, data.data(), late()), Status::kStaleEpoch);
}

TEST_F(Renewal, WaitsForCommandsThatExitedKernelsLeftInFlight) {
    auto client = rig.connect("writer");
    auto volume = rig.volume(*client, "v", 4096);
    const ChannelRef ch = client->channel(0).ref();
    auto* const buffer = static_cast<std::byte*>(ch.alloc(kMe, kBlock));
    const Token token = volume->ref().write_async(simt::Lane{}, ch, 0, 1, buffer, late());
    const auto early = volume->renew();
    ASSERT_FALSE(early.ok());
    EXPECT_EQ(early.error().code, Errc::kBusy);
    EXPECT_EQ(ch.wait(kMe, token, late()), Status::kSuccess);
    GN_ASSERT_OK(volume->renew());
    EXPECT_EQ(ch.free(kMe, buffer), Status::kSuccess);
}

TEST_F(Renewal, ACompletionAfterTheVolumeIsDestroyedTouchesNoMemory) {
    auto client = rig.connect("writer");
    auto volume = rig.volume(*client, "v", 4096);
    const ChannelRef ch = client->channel(0).ref();
    auto* const buffer = static_cast<std::byte*>(ch.alloc(kMe, kBlock));
    const Token token = volume->ref().write_async(simt::Lane{}, ch, 0, 1, buffer, late());
    volume.reset();
    const Status end = ch.wait(kMe, token, late());  // its floor's memory is still there
    EXPECT_TRUE(end == Status::kSuccess || end == Status::kStaleEpoch) << nvme::status_name(end);
    EXPECT_EQ(ch.free(kMe, buffer), Status::kSuccess);
}

/// A daemon that does what it is asked, and whose answer does not come.
class LosesAnswers final : public MapOverlay {
  public:
    using MapOverlay::MapOverlay;
    Result<client::OpenedVolume> open_volume(nvme::ClientId c, const std::string& n, OpenMode m) override {
        if (m == OpenMode::kWrite && before > 0 && before-- > 0) return error(Errc::kTimedOut, "not asked");
        auto opened = MapOverlay::open_volume(c, n, m);
        if (m == OpenMode::kWrite && after > 0 && after-- > 0) return error(Errc::kTimedOut, "no answer");
        return opened;
    }
    int before = 0, after = 0;
};

TEST_F(Renewal, ARenewalWhoseAnswerIsLostIsRepeated) {
    LosesAnswers control(*rig.daemon);
    client::ClientOptions o;
    o.name = "writer";
    o.keep_alive_ms = 0;
    auto client = client::Client::connect(control, *rig.nic, o).value();
    auto volume = rig.volume(*client, "v", 4096);
    const ChannelRef ch = client->channel(0).ref();
    const nvme::Epoch first = volume->ref().epoch;
    control.before = 1;
    EXPECT_FALSE(volume->renew().ok());
    EXPECT_TRUE(volume->renewing());
    control.after = 2;
    EXPECT_FALSE(volume->renew().ok());
    EXPECT_FALSE(volume->renew().ok());
    EXPECT_TRUE(volume->renewing());
    GN_ASSERT_OK(volume->renew());
    EXPECT_FALSE(volume->renewing());
    EXPECT_EQ(volume->ref().epoch, first + 3) << "two epochs were opened in between without being used";
    EXPECT_EQ(volume->ref().write(kMe, ch, 0, 1, data.data(), late()), Status::kSuccess);
    // One that somebody else had meanwhile is not taken back.
    control.after = 1;
    EXPECT_FALSE(volume->renew().ok());
    auto other = client->open("v", OpenMode::kWrite).value();
    EXPECT_EQ(volume->renew().error().code, Errc::kPermission);
    EXPECT_EQ(other->ref().write(kMe, ch, 0, 1, data.data(), late()), Status::kSuccess);
}

/// What publish() asks SSDs, and what they say.
struct Ssds {
    std::vector<Status> say;
    std::vector<std::uint64_t> told, associations;
    explicit Ssds(std::size_t n) : say(n, Status::kSuccess), told(n), associations(n, 1) {}
    bool publish(OpeningFloor& floor, OpeningFloor::Clock::time_point now) {
        return floor.publish(
            now, say.size(), [&](std::size_t i) { return associations[i]; },
            [&](std::size_t i, std::uint64_t to) -> Result<nvme::Completion> {
                nvme::Completion answer{};
                answer.set_result(say[i]);
                if (nvme::ok(say[i])) told[i] = to;
                return answer;
            });
    }
};

/// As lanes take and resolve.
void carry_out(OpeningFloor& floor, std::uint64_t count) {
    const std::uint64_t first = *floor.last_sequence(false) + 1;
    *floor.last_sequence(false) += count;
    gnor::mark_resolved(floor.resolved(false), first, count);
}

TEST(OpeningFloorTells, EverySsdOfTheFloorAndRepeatsItForSsdsThatDidNotAccept) {
    auto floor = OpeningFloor::create(simt::LanesKind::kCpu).value();
    Ssds ssds(3);
    auto now = OpeningFloor::Clock::now();
    for (const Status s : {Status::kAccessDenied, Status::kNotGranted, Status::kInternalError}) {
        ssds.say[0] = s;
        carry_out(*floor, 10);
        const std::uint64_t to = floor->look().value();
        EXPECT_TRUE(ssds.publish(*floor, now)) << nvme::status_name(s);
        EXPECT_EQ(ssds.told[1], to);
        EXPECT_EQ(ssds.told[2], to);
        EXPECT_LT(ssds.told[0], to);
        ssds.say[0] = Status::kSuccess;
        now += OpeningFloor::kLeftAlone;
        EXPECT_TRUE(ssds.publish(*floor, now));
        EXPECT_EQ(ssds.told[0], to);
        now += OpeningFloor::kPeriod;
    }
    carry_out(*floor, 10);
    (void)floor->look().value();
    ssds.say[1] = Status::kStaleEpoch;
    EXPECT_FALSE(ssds.publish(*floor, now)) << "another opening has the volume";
}

TEST(OpeningFloorTells, AnSsdAgainAfterEachNewAssociation) {
    auto floor = OpeningFloor::create(simt::LanesKind::kCpu).value();
    Ssds ssds(2);
    auto now = OpeningFloor::Clock::now();
    carry_out(*floor, 10);
    const std::uint64_t to = floor->look().value();
    EXPECT_TRUE(ssds.publish(*floor, now));
    ssds.told = {0, 0};
    ssds.associations[1] = 2;  // perhaps another SSD, which fills the slot now
    now += OpeningFloor::kPeriod;
    EXPECT_TRUE(ssds.publish(*floor, now));
    EXPECT_EQ(ssds.told, (std::vector<std::uint64_t>{0, to}));
    ssds.associations[1] = 0;  // not reachable
    carry_out(*floor, 10);
    (void)floor->look().value();
    now += OpeningFloor::kPeriod;
    EXPECT_TRUE(ssds.publish(*floor, now));
    EXPECT_EQ(ssds.told, (std::vector<std::uint64_t>{to + 10, to}));
}

TEST(OpeningFloorTells, AnSsdThatHangsDoesNotBlockThreadsThatReadTheFloor) {
    auto floor = OpeningFloor::create(simt::LanesKind::kCpu).value();
    std::binary_semaphore asked{0}, go{0};
    carry_out(*floor, 10);
    (void)floor->look().value();
    std::thread telling([&] {
        (void)floor->publish(
            OpeningFloor::Clock::now(), 1, [](std::size_t) { return 1; },
            [&](std::size_t, std::uint64_t) -> Result<nvme::Completion> {
                asked.release();
                go.acquire();
                return nvme::Completion{};
            });
    });
    asked.acquire();
    for (int i = 0; i < 5; ++i) {
        carry_out(*floor, gnor::kResolvedBits / 2);
        EXPECT_EQ(floor->look().value(), *floor->last_sequence(false));
    }
    go.release();
    telling.join();
}

TEST(OpeningFloorTells, WhyTheFloorDoesNotAdvance) {
    auto floor = OpeningFloor::create(simt::LanesKind::kCpu).value();
    auto now = OpeningFloor::Clock::now();
    const auto look_late = [&] {
        (void)floor->look_at(now, 1);
        now += OpeningFloor::kStuck;
        const std::string said = floor->look_at(now, 1);
        now += OpeningFloor::kStuck;
        EXPECT_EQ(floor->look_at(now, 1), "") << "once";
        return said;
    };
    EXPECT_EQ(look_late(), "") << "an idle opening has nothing to report";
    *floor->last_sequence(false) = 1;
    EXPECT_NE(look_late().find("write 1 of this opening has not ended"), std::string::npos);
    gnor::mark_resolved(floor->resolved(false), 1, 1);
    carry_out(*floor, 1);
    EXPECT_EQ(look_late(), "");
    *floor->last_sequence(false) += 1;
    gnor::mark_in_doubt(floor->resolved(false), 1);
    EXPECT_NE(look_late().find("1 writes failed"), std::string::npos);
    EXPECT_TRUE(floor->is_held());
    GN_ASSERT_OK(floor->begin_next_epoch());
    EXPECT_FALSE(floor->is_held());
    *floor->last_sequence(false) += 1;
    carry_out(*floor, gnor::kResolvedBits);
    EXPECT_NE(look_late().find("after a write that has not ended"), std::string::npos);
}

}  // namespace gnstor::test::renewal_test
