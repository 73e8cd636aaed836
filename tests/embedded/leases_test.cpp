// leases_test.cpp: who may write a volume, until when, and that the epoch holds what the lease only promises.
//
// The daemon's clock is the test's own: time passes when the test says so.
#include <thread>

#include "embedded/bench.hpp"
#include "embedded/replicas.hpp"
#include "nvmf/host/host.hpp"

namespace gnstor::test::leases_test {

using nvme::Status;

const auto kMe = simt::self(simt::Lane{});
constexpr std::uint64_t kLeaseMs = 60'000;

EmbeddedArrayOptions lease_options() {
    EmbeddedArrayOptions o = rig_options();
    o.lease_ms = kLeaseMs;
    return o;
}

class Leases : public ::testing::Test {
  protected:
    void SetUp() override {
        client::CreateVolume r;
        r.name = "v";
        r.capacity_bytes = 256 * 4096;
        r.chunk_bytes = 4096;
        r.any_writer = true;
        (void)alice->create(r).value();
    }
    Status write(client::Client& by, const client::Volume& volume, std::uint32_t block, std::uint64_t tag) {
        fill_tagged(kMe, data.data(), 9, block, 1, tag);
        return volume.ref().write(kMe, by.channel(0).ref(), block, 1, data.data(), late());
    }
    /// The last change of a client that is lost before it has sent it to the other replicas.
    void zero_one_replica(const client::Volume& volume, std::uint32_t block) {
        const placement::ArrayMap map = rig.control->array()->map;
        const placement::VolumeGeometry& geometry = volume.record().geometry;
        const std::uint32_t slot = place(map, geometry, block >> geometry.chunk_shift).slot[0];
        nvmf::HostOptions o = rig.host_options(*alice, slot);
        o.io_queues = 1;
        auto host = nvmf::HostController::connect(*rig.nic, o).value();
        auto queue = host->open_io_queue(1, 8).value();
        nvme::IoFields f;
        f.volume = geometry.volume;
        f.client = alice->identity().id;
        f.block = block;
        f.epoch = volume.record().epoch;
        f.map_version = map.version;
        f.sequence = 1'000;
        ASSERT_EQ(queue->post(nvme::encode_io(nvme::IoOpcode::kWriteZeroes, f)),
                  nvmf::HostQueue::Posted::kYes);
        nvme::Completion answer{};
        const std::uint64_t until = simt::now_ns() + 60'000'000'000;
        while (!queue->poll(answer) && simt::now_ns() < until) std::this_thread::yield();
        EXPECT_EQ(answer.result(), Status::kSuccess);
    }
    /// Time passes and the daemon looks at its leases.
    void pass(std::uint64_t ms) {
        rig.clock_ms += ms;
        (void)rig.daemon->tick();
    }

    ArrayRig rig{lease_options(), true};
    std::unique_ptr<client::Client> alice = rig.connect("alice", 1), bob = rig.connect("bob", 1);
    std::vector<std::uint64_t> data = std::vector<std::uint64_t>(kWordsPerBlock);
};

TEST_F(Leases, OneOfTwoWritersWinsAndTheOthersErrorNamesTheWinner) {
    std::uint64_t races = 0;
    for (std::uint32_t round = 0; round < 40; ++round) {
        Result<std::unique_ptr<client::Volume>> a = error(Errc::kInternal, "not tried");
        Result<std::unique_ptr<client::Volume>> b = error(Errc::kInternal, "not tried");
        std::thread other([&] { b = bob->open("v", client::OpenMode::kWrite); });
        a = alice->open("v", client::OpenMode::kWrite);
        other.join();
        ASSERT_NE(a.ok(), b.ok()) << "exactly one may write";
        const auto& loser = a.ok() ? b : a;
        EXPECT_EQ(loser.error().code, Errc::kBusy) << loser.error().message;
        const std::string holder = a.ok() ? "alice" : "bob";
        EXPECT_NE(loser.error().message.find(holder), std::string::npos) << loser.error().message;
        const auto& winner = a.ok() ? *a : *b;
        EXPECT_EQ(write(a.ok() ? *alice : *bob, *winner, round, tag_of(0, round)), Status::kSuccess);
        ++races;
    }
    count("array_writers_raced", races);
    auto reader = rig.connect("alice", 1);
    expect_tags(*reader, "v", 9, [](std::uint32_t b) { return b < 40 ? tag_of(0, b) : 0; });
}

TEST_F(Leases, EveryOpeningForWritingRaisesTheEpochAndReadingDoesNot) {
    nvme::Epoch last = 0;
    for (int i = 0; i < 10; ++i) {
        auto volume = alice->open("v", client::OpenMode::kWrite).value();
        EXPECT_GT(volume->record().epoch, last);
        last = volume->record().epoch;
        auto reading = bob->open("v", client::OpenMode::kRead).value();
        EXPECT_EQ(reading->record().epoch, last);
        EXPECT_TRUE(reading->lease_held());
        if (i % 2 == 0) GN_ASSERT_OK(volume->release());
    }
}

TEST_F(Leases, AWriterWhoseLeaseRanOutIsFencedByTheNextAndLosesNoData) {
    auto old = alice->open("v", client::OpenMode::kWrite).value();
    for (std::uint32_t b = 0; b < 64; ++b) ASSERT_EQ(write(*alice, *old, b, tag_of(1, b)), Status::kSuccess);
    EXPECT_FALSE(bob->open("v", client::OpenMode::kWrite).ok());
    // The daemon is away: renewals fail, I/O goes on.
    rig.daemon->suspend();
    rig.clock_ms += kLeaseMs + 1;
    EXPECT_EQ(write(*alice, *old, 64, tag_of(1, 64)), Status::kSuccess)
        << "no other writer has the volume yet";
    rig.daemon->resume();
    auto next = bob->open("v", client::OpenMode::kWrite);
    GN_ASSERT_OK(next);
    EXPECT_EQ(write(*alice, *old, 0, tag_of(1, 99)), Status::kStaleEpoch);
    EXPECT_EQ(write(*alice, *old, 200, tag_of(1, 99)), Status::kStaleEpoch);
    EXPECT_EQ(old->ref().trim(kMe, alice->channel(0).ref(), 1, 1, late()), Status::kStaleEpoch);
    for (std::uint32_t b = 32; b < 64; ++b) ASSERT_EQ(write(*bob, **next, b, tag_of(2, b)), Status::kSuccess);
    EXPECT_FALSE(
        rig.control->renew_lease(alice->identity().id, old->record().geometry.volume, old->record().epoch)
            .ok());
    EXPECT_EQ(old->ref().read(kMe, alice->channel(0).ref(), 5, 1, data.data(), late()), Status::kSuccess)
        << "reading must still succeed";
    auto reader = rig.connect("bob", 1);
    expect_tags(*reader, "v", 9, [](std::uint32_t b) {
        return b < 32 ? tag_of(1, b) : b < 64 ? tag_of(2, b) : b == 64 ? tag_of(1, 64) : 0;
    });
}

TEST_F(Leases, AnEndedLeaseClosesTheEpochEvenWithoutAnotherWriter) {
    auto old = alice->open("v", client::OpenMode::kWrite).value();
    ASSERT_EQ(write(*alice, *old, 3, tag_of(1, 1)), Status::kSuccess);
    pass(kLeaseMs / 2);
    EXPECT_EQ(write(*alice, *old, 3, tag_of(1, 2)), Status::kSuccess);
    pass(kLeaseMs);
    EXPECT_EQ(write(*alice, *old, 3, tag_of(1, 3)), Status::kStaleEpoch);
    auto again = alice->open("v", client::OpenMode::kWrite);
    GN_ASSERT_OK(again);
    EXPECT_EQ(write(*alice, **again, 4, tag_of(1, 4)), Status::kSuccess);
    auto reader = rig.connect("alice", 1);
    expect_tags(*reader, "v", 9, [](std::uint32_t b) {
        return b == 3 ? tag_of(1, 2) : b == 4 ? tag_of(1, 4) : 0;
    });
}

TEST_F(Leases, AChangeThatALostWriterLeftOnOneReplicaIsOnEachWhenTheNextOneBegins) {
    auto old = alice->open("v", client::OpenMode::kWrite).value();
    for (std::uint32_t b = 0; b < 8; ++b) ASSERT_EQ(write(*alice, *old, b, tag_of(1, b)), Status::kSuccess);
    zero_one_replica(*old, 3);
    const auto zeroed = [&] {
        std::uint32_t found = 0;
        for_each_replica(*bob, "v", [&](std::uint32_t b, std::uint32_t, const std::uint64_t* words) {
            found += b == 3 && words[0] == 0 ? 1 : 0;
            EXPECT_EQ(words[0], b < 8 && words[0] != 0 ? tag_of(1, b) : 0) << "block " << b;
        });
        return found;
    };
    ASSERT_EQ(zeroed(), 1u) << "one replica has the change, the other does not";
    pass(kLeaseMs + 1);
    GN_ASSERT_OK(bob->open("v", client::OpenMode::kWrite));
    EXPECT_EQ(zeroed(), old->record().geometry.replicas);
}

TEST_F(Leases, ARenewedLeaseKeepsOtherWritersOut) {
    auto volume = alice->open("v", client::OpenMode::kWrite).value();
    for (int i = 0; i < 10; ++i) {
        pass(kLeaseMs / 3);
        GN_ASSERT_OK(rig.control->renew_lease(alice->identity().id, volume->record().geometry.volume,
                                              volume->record().epoch));
    }
    EXPECT_FALSE(bob->open("v", client::OpenMode::kWrite).ok());
    EXPECT_EQ(write(*alice, *volume, 0, tag_of(0, 0)), Status::kSuccess);
    EXPECT_TRUE(volume->lease_held());
}

TEST_F(Leases, AReleaseAdmitsTheNextWriterAndEndsWritingAtOnce) {
    auto old = alice->open("v", client::OpenMode::kWrite).value();
    GN_ASSERT_OK(old->set_byte_length(4097));
    ASSERT_EQ(write(*alice, *old, 0, tag_of(0, 0)), Status::kSuccess);
    GN_ASSERT_OK(old->release());
    GN_ASSERT_OK(old->release());  // once is enough
    EXPECT_EQ(write(*alice, *old, 0, tag_of(0, 1)), Status::kStaleEpoch);
    auto next = bob->open("v", client::OpenMode::kWrite);
    GN_ASSERT_OK(next);
    EXPECT_EQ((*next)->record().byte_length, 4097u);
    EXPECT_EQ(write(*bob, **next, 1, tag_of(0, 2)), Status::kSuccess);
}

TEST_F(Leases, TheClientKnowsThatItsLeaseIsOverOnceAnotherHasTheVolume) {
    // Real time here: the client counts its own lease by its own clock.
    EmbeddedArrayOptions o = rig_options();
    o.lease_ms = 30;
    ArrayRig quick(o);
    auto a = quick.connect("a", 1);
    auto b = quick.connect("b", 1);
    client::CreateVolume r;
    r.name = "v";
    r.capacity_bytes = 4096;
    r.any_writer = true;
    (void)a->create(r).value();
    auto old = a->open("v", client::OpenMode::kWrite).value();
    quick.daemon->suspend();
    const auto deadline = late();
    Result<std::unique_ptr<client::Volume>> next = error(Errc::kInternal, "not tried");
    while (old->lease_held() && !deadline.passed()) std::this_thread::yield();
    EXPECT_FALSE(old->lease_held()) << "the lease was not renewed";
    // The daemon counts from a little later than the client.
    const std::uint64_t over = daemon::boottime_ms() + o.lease_ms;
    while (daemon::boottime_ms() < over) std::this_thread::yield();
    quick.daemon->resume();
    while (!next.ok() && !deadline.passed()) next = b->open("v", client::OpenMode::kWrite);
    GN_ASSERT_OK(next);
    EXPECT_FALSE(old->lease_held());
    EXPECT_EQ(write(*a, *old, 0, 1), Status::kStaleEpoch);
}

}  // namespace gnstor::test::leases_test
