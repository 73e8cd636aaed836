// refusals_test.cpp: what an SSD of a whole array refuses to lanes, with which status, and that the data stay
// as they were; newer maps under running lanes; bytes that went bad on a medium.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "embedded/bench.hpp"
#include "ssd/scratch.hpp"

namespace gnstor::test::refusals_test {

using nvme::Status;

const auto kMe = simt::self(simt::Lane{});

/// Calls with a deadline; with a short one where the command is asked again until then. That may also come
/// between a command and its answer: then again, a hundred times at most.
template <class Call>
void expect_status(Status status, Call call) {
    const auto ask = [&] { return nvme::may_retry(status) ? sent_in(20'000'000, call) : call(late()); };
    Status got = ask();
    for (int again = 0; again < 100 && nvme::may_retry(status) && got == Status::kTimedOut; ++again)
        got = ask();
    EXPECT_EQ(got, status);
}

class Refusals : public ::testing::Test {
  protected:
    void SetUp() override {
        alice = rig.connect("alice", 1);
        bob = rig.connect("bob", 1);
        secret = make(*alice, "secret", 64);
        mine = make(*bob, "mine", 64);
        fill_tagged(kMe, data.data(), 1, 0, 64, tag_of(0, 0));
        ASSERT_EQ(secret->ref().write(kMe, channel(*alice), 0, 64, data.data(), late()), Status::kSuccess);
    }
    void TearDown() override {
        std::vector<std::uint64_t> back(data.size());
        ASSERT_EQ(secret->ref().read(kMe, channel(*alice), 0, 64, back.data(), late()), Status::kSuccess);
        EXPECT_EQ(back, data) << "a refused command changed data";
        rig.expect_clean(*alice);
        rig.expect_clean(*bob);
        count("array_refusals", refusals);
    }
    static std::unique_ptr<client::Volume> make(client::Client& c, const std::string& name,
                                                std::uint64_t blocks) {
        client::CreateVolume r;
        r.name = name;
        r.capacity_bytes = blocks * 4096;
        (void)c.create(r).value();
        return c.open(name, client::OpenMode::kWrite).value();
    }
    static ChannelRef channel(client::Client& c) { return c.channel(0).ref(); }

    /// Everything that lanes can ask for is refused with `status`; reads with `read_status`, and bring
    /// nothing.
    void expect_refused(client::Client& by, const VolumeRef& v, std::uint32_t block, Status status,
                        Status read_status) {
        std::vector<std::uint64_t> buffer(4 * kWordsPerBlock, 0x1111);
        const ChannelRef ch = channel(by);
        for (const std::uint32_t blocks : {1u, 4u}) {
            expect_status(read_status,
                          [&](auto until) { return v.read(kMe, ch, block, blocks, buffer.data(), until); });
            for (const std::uint64_t word : buffer)
                ASSERT_TRUE(word == 0x1111 || word == 0) << "a refused read brought bytes";
            expect_status(status,
                          [&](auto until) { return v.write(kMe, ch, block, blocks, buffer.data(), until); });
            expect_status(status, [&](auto until) { return v.trim(kMe, ch, block, blocks, until); });
            expect_status(status, [&](auto until) { return v.write_zeroes(kMe, ch, block, blocks, until); });
            refusals += 4;
        }
        auto* pool = ch.alloc(kMe, 4096);
        ASSERT_NE(pool, nullptr);
        EXPECT_EQ(ch.wait(kMe, v.write_async(simt::Lane{}, ch, block, 1, pool, late()), late()), status);
        EXPECT_EQ(ch.wait(kMe, v.read_async(simt::Lane{}, ch, block, 1, pool, late()), late()), read_status);
        EXPECT_EQ(ch.free(kMe, pool), Status::kSuccess);
        refusals += 2;
    }
    /// A reference as somebody would make it who writes what he likes.
    VolumeRef forged() const {
        VolumeRef v = secret->ref();
        v.client = bob->identity().id;
        v.last_sequence = mine->ref().last_sequence;
        return v;
    }

    ArrayRig rig;
    std::unique_ptr<client::Client> alice, bob;
    std::unique_ptr<client::Volume> secret, mine;
    std::vector<std::uint64_t> data = std::vector<std::uint64_t>(64 * kWordsPerBlock);
    std::uint64_t refusals = 0;
};

TEST_F(Refusals, OfAnUnknownVolumeAreAccessDenied) {
    VolumeRef v = mine->ref();
    for (const std::uint32_t id : {0u, 99u, 0x7FFFu, 0xFFFFu}) {
        v.geometry.volume = static_cast<nvme::VolumeId>(id);
        expect_refused(*bob, v, 0, Status::kAccessDenied, Status::kAccessDenied);
    }
}

TEST_F(Refusals, OfAnothersVolumeAreAccessDeniedUnderAnyName) {
    expect_refused(*bob, forged(), 0, Status::kAccessDenied, Status::kAccessDenied);
    VolumeRef v = forged();
    for (const auto id : {alice->identity().id, nvme::ClientId{0}, nvme::ClientId{0xFFFF}}) {
        v.client = id;
        expect_refused(*bob, v, 0, Status::kAccessDenied, Status::kAccessDenied);
    }
}

TEST_F(Refusals, OfWritesByAReaderAreWriteProtected) {
    rig.control->share_volume(alice->identity().id, "secret", bob->identity().id).value();
    auto opened = bob->open("secret", client::OpenMode::kRead).value();
    EXPECT_EQ(opened->ref().write(kMe, channel(*bob), 0, 1, data.data(), late()), Status::kNotWritable);
    VolumeRef v = forged();
    v.epoch = opened->ref().epoch;
    std::vector<std::uint64_t> back(kWordsPerBlock);
    EXPECT_EQ(v.read(kMe, channel(*bob), 0, 1, back.data(), late()), Status::kSuccess);
    EXPECT_TRUE(std::equal(back.begin(), back.end(), data.begin()));
    EXPECT_EQ(v.write(kMe, channel(*bob), 0, 1, back.data(), late()), Status::kNamespaceWriteProtected);
    EXPECT_EQ(v.trim(kMe, channel(*bob), 0, 1, late()), Status::kNamespaceWriteProtected);
    EXPECT_EQ(v.write_zeroes(kMe, channel(*bob), 0, 1, late()), Status::kNamespaceWriteProtected);
}

TEST_F(Refusals, OfReadsByAReaderWhoseSharingHasEndedAreAccessDeniedAlsoWithTheVolumeOpen) {
    rig.control->share_volume(alice->identity().id, "secret", bob->identity().id).value();
    auto opened = bob->open("secret", client::OpenMode::kRead).value();
    std::vector<std::uint64_t> back(kWordsPerBlock);
    ASSERT_EQ(opened->ref().read(kMe, channel(*bob), 0, 1, back.data(), late()), Status::kSuccess);
    rig.control->unshare_volume(alice->identity().id, "secret", bob->identity().id).value();
    for (std::uint64_t block = 0; block < 64; ++block)  // on every SSD
        EXPECT_EQ(opened->ref().read(kMe, channel(*bob), block, 1, back.data(), late()),
                  Status::kAccessDenied);
    EXPECT_FALSE(bob->open("secret", client::OpenMode::kRead).ok());
    ASSERT_EQ(secret->ref().read(kMe, channel(*alice), 0, 1, back.data(), late()), Status::kSuccess);
    EXPECT_TRUE(std::equal(back.begin(), back.end(), data.begin()));
}

TEST_F(Refusals, PastTheEndComeFromTheSsdTooWhenLanesForgeTheSize) {
    VolumeRef v = secret->ref();
    expect_refused(*alice, v, 64, Status::kLbaOutOfRange, Status::kLbaOutOfRange);
    v.geometry.capacity_blocks = 1u << 20;
    expect_refused(*alice, v, 64, Status::kLbaOutOfRange, Status::kLbaOutOfRange);
    expect_refused(*alice, v, 70'000, Status::kLbaOutOfRange, Status::kLbaOutOfRange);
}

TEST_F(Refusals, OfTheWrongSsdDoNotRevealItsContents) {
    VolumeRef v = secret->ref();
    std::uint64_t wrong = 0;
    for (std::uint64_t factor = 1; factor <= 64; ++factor) {
        v.geometry.hash_factor = factor;
        const auto theirs = placement::place(alice->array().map, v.geometry, 0);
        const auto right = placement::place(alice->array().map, secret->ref().geometry, 0);
        if (placement::holds(right, theirs.slot[0]) || placement::holds(right, theirs.slot[1])) continue;
        std::vector<std::uint64_t> back(kWordsPerBlock, 7);
        EXPECT_EQ(v.read(kMe, channel(*alice), 0, 1, back.data(), late()), Status::kWrongSsd);
        EXPECT_EQ(back, std::vector<std::uint64_t>(kWordsPerBlock, 7));
        EXPECT_EQ(v.write(kMe, channel(*alice), 0, 1, back.data(), late()), Status::kWrongSsd);
        ++wrong;
    }
    EXPECT_GT(wrong, 0u);
}

TEST_F(Refusals, OfAnOldEpochAreStaleAndOfAFutureOneNotGranted) {
    auto newer = alice->open("secret", client::OpenMode::kWrite).value();
    const VolumeRef old = secret->ref();
    EXPECT_GT(newer->ref().epoch, old.epoch);
    EXPECT_EQ(old.write(kMe, channel(*alice), 0, 1, data.data(), late()), Status::kStaleEpoch);
    EXPECT_EQ(old.trim(kMe, channel(*alice), 0, 1, late()), Status::kStaleEpoch);
    EXPECT_EQ(old.write_zeroes(kMe, channel(*alice), 0, 1, late()), Status::kStaleEpoch);
    VolumeRef future = newer->ref();
    future.epoch += 1;
    expect_refused(*alice, future, 0, Status::kNotGranted, Status::kNotGranted);
    EXPECT_EQ(newer->ref().write(kMe, channel(*alice), 0, 64, data.data(), late()), Status::kSuccess);
}

TEST_F(Refusals, OfADeletedVolumeContinueWhenItsNameAndVidAreReused) {
    auto gone = make(*bob, "gone", 64);
    const VolumeRef old = gone->ref();
    ASSERT_EQ(old.write(kMe, channel(*bob), 0, 64, data.data(), late()), Status::kSuccess);
    ASSERT_TRUE(gone->release().ok());
    rig.control->delete_volume(bob->identity().id, "gone").value();
    expect_refused(*bob, old, 0, Status::kAccessDenied, Status::kAccessDenied);
    for (int i = 0; i < 3; ++i) {
        auto next = make(*alice, "gone" + std::to_string(i), 64);
        std::vector<std::uint64_t> back(data.size(), 1);
        ASSERT_EQ(next->ref().read(kMe, channel(*alice), 0, 64, back.data(), late()), Status::kSuccess);
        EXPECT_EQ(back, std::vector<std::uint64_t>(data.size())) << "a new volume shows an old one's bytes";
    }
}

TEST(Maps, CallsUnderAnOldMapWaitForTheNewOneWhichTheClientFetchesByItself) {
    ArrayRig rig;
    auto client = rig.connect("writer", 1);
    auto volume = rig.volume(*client, "v", 64);
    std::vector<std::uint64_t> data(kWordsPerBlock);
    const ChannelRef ch = client->channel(0).ref();
    fill_tagged(kMe, data.data(), 1, 3, 1, tag_of(0, 0));
    ASSERT_EQ(volume->ref().write(kMe, ch, 3, 1, data.data(), late()), Status::kSuccess);
    const VolumeRef v = volume->ref();
    const nvme::MapVersion old = client->array().map.version;
    const placement::ArrayMap next = rig.set_map([](placement::ArrayMap&) {}, false);
    // The SSDs have it, the daemon does not give it out yet.
    expect_status(Status::kStaleMap, [&](auto until) { return v.write(kMe, ch, 3, 1, data.data(), until); });
    expect_status(Status::kStaleMap, [&](auto until) { return v.read(kMe, ch, 3, 1, data.data(), until); });
    EXPECT_EQ(client->array().map.version, old);
    rig.control->set_map(next);
    EXPECT_EQ(v.write(kMe, ch, 3, 1, data.data(), late()), Status::kSuccess);
    EXPECT_EQ(client->array().map.version, old + 1);
    EXPECT_EQ(v.read(kMe, ch, 3, 1, data.data(), late()), Status::kSuccess);
    EXPECT_TRUE(is_whole(data.data(), 1, 3));
    // An asynchronous request is sent once; that it was refused is told all the same.
    rig.set_map([](placement::ArrayMap&) {});
    auto* page = ch.alloc(kMe, 4096);
    EXPECT_EQ(ch.wait(kMe, v.read_async(simt::Lane{}, ch, 3, 1, page, late()), late()), Status::kStaleMap);
    const auto deadline = late();
    while (client->array().map.version != old + 2 && !deadline.passed()) std::this_thread::yield();
    EXPECT_EQ(ch.wait(kMe, v.read_async(simt::Lane{}, ch, 3, 1, page, late()), late()), Status::kSuccess);
    EXPECT_EQ(ch.free(kMe, page), Status::kSuccess);
    // Host transfers wait for it too; and one may still ask for it.
    rig.set_map([](placement::ArrayMap&) {});
    GN_ASSERT_OK(volume->read(3, std::as_writable_bytes(std::span(data))));
    rig.set_map([](placement::ArrayMap&) {});
    GN_ASSERT_OK(client->refresh_map());
    GN_ASSERT_OK(client->refresh_map());  // nothing new: nothing done
    EXPECT_EQ(client->array().map.version, old + 4);
    rig.expect_clean(*client);
}

/// What the warps of ThroughFaults leave on the host to be judged.
struct Outcome {
    explicit Outcome(std::uint64_t blocks) : acknowledged(blocks), tried(blocks) {}
    std::vector<std::uint32_t> acknowledged, tried;
    std::uint64_t progress = 0;
    std::uint64_t failed[3] = {};

    ThroughFaults kernel(const Common& common, std::uint32_t blocks_each, std::uint32_t first,
                         std::uint32_t rounds) {
        return {common, acknowledged.data(), tried.data(), blocks_each, first, rounds, &progress, failed};
    }
};

TEST(Maps, WritesUnderWayAreSentAgainUnderTheNewMapWithTheirOwnSequence) {
    BenchOptions o;
    o.blocks = 8 * 32;
    o.chunk_bytes = 4096;
    ArrayBench b(o, 8, ThroughFaults::kStride);
    Outcome out(o.blocks);
    constexpr std::uint32_t kMaps = 12;
    const auto outstanding = [&](std::uint32_t channel) {
        std::uint32_t sum = 0;
        for (std::uint32_t s = 0; s < 4; ++s)
            sum += simt::load_relaxed<simt::Scope::kDevice>(
                &b.client->channel(channel).ref().state().queue(s).outstanding);
        return sum;
    };
    for (std::uint32_t map = 0; map < kMaps; ++map) {
        b.rig.set_map([](placement::ArrayMap&) {});
        Hold hold(*b.rig.node->nic_reactors().front());
        simt::LaunchOptions workers;
        workers.cpu_workers = 8;
        auto run = simt::launch_async(simt::LanesKind::kCpu, 8, 1, out.kernel(b.common, 32, map, 1), workers);
        GN_ASSERT_OK(run);
        const auto deadline = late();
        while ((outstanding(0) < 8 || outstanding(1) < 8) && !deadline.passed()) std::this_thread::yield();
        GN_ASSERT_OK(b.client->refresh_map());
        hold.release();
        GN_ASSERT_OK(run->wait(late()));
    }
    EXPECT_EQ(out.failed[0] + out.failed[1] + out.failed[2], 0u) << std::hex << b.report().last_status;
    EXPECT_EQ(b.report().mismatches, 0u);
    EXPECT_EQ(*b.volume->ref().last_sequence, 8u * kMaps) << "one sequence a write, also over its retries";
    const std::uint64_t refusals =
        b.client->channel(0).counters()->refusals + b.client->channel(1).counters()->refusals;
    EXPECT_EQ(refusals, 8u * kMaps * 2);
    GN_ASSERT_OK(b.reader->refresh_map());
    expect_tags(*b.reader, "v", b.common.seed,
                [&](std::uint32_t block) { return block % 32 < kMaps ? tag_of(block / 32, block % 32) : 0; });
    count("array_writes_retried", 8 * kMaps);
    b.expect_clean();
}

TEST(Maps, LanesContinueAcrossNewMapsAndLoseNothing) {
    BenchOptions o;
    o.blocks = 8 * 32;
    o.chunk_bytes = 4096;
    ArrayBench b(o, 8, ThroughFaults::kStride);
    Outcome out(o.blocks);
    constexpr std::uint32_t kRounds = 400;
    simt::LaunchOptions workers;
    workers.cpu_workers = 4;
    std::uint64_t maps = 0, next = 100;
    // Where this thread stands still, the lanes are done before they have seen many maps: then they go on.
    const auto end = late();
    for (std::uint32_t round = 0; maps < 10 && !end.passed(); round += kRounds) {
        auto run = simt::launch_async(simt::LanesKind::kCpu, 8, 1, out.kernel(b.common, 32, round, kRounds),
                                      workers);
        GN_ASSERT_OK(run);
        for (; !run->done(); next += 100) {
            while (!run->done() && simt::load_relaxed<simt::Scope::kSystem>(&out.progress) < next)
                std::this_thread::yield();
            if (run->done()) break;
            b.rig.set_map([](placement::ArrayMap&) {});
            ++maps;
        }
        GN_ASSERT_OK(run->wait(late()));
    }
    EXPECT_EQ(b.report().mismatches, 0u);
    EXPECT_EQ(out.failed[0] + out.failed[1] + out.failed[2], 0u)
        << "a call ended with a refusal, last status " << std::hex << b.report().last_status;
    GN_ASSERT_OK(b.reader->refresh_map());
    for_each_replica(*b.reader, "v", [&](std::uint32_t block, std::uint32_t, const std::uint64_t* w) {
        const std::uint64_t round = w[0] & 0xFFFFFFFFu;
        EXPECT_TRUE(is_whole(w, b.common.seed, block));
        EXPECT_GE(round, out.acknowledged[block]) << "an acknowledged write is lost, block " << block;
        EXPECT_LE(round, out.tried[block]);
    });
    std::uint64_t refusals = 0;
    for (std::uint32_t i = 0; i < 2; ++i) refusals += b.client->channel(i).counters().value().refusals;
    std::printf("  %llu maps, %llu refusals\n", static_cast<unsigned long long>(maps),
                static_cast<unsigned long long>(refusals));
    count("array_maps_under_lanes", maps);
    EXPECT_GE(maps, 10u);
    b.expect_clean();
}

/// Flips a byte of every page of this store that holds just these words. Returns how many pages.
std::uint64_t spoil(const std::filesystem::path& store, const std::uint64_t* words) {
    std::ifstream in(store, std::ios::binary);
    std::vector<char> page(4096);
    std::vector<std::uint64_t> found;
    for (std::uint64_t at = 0; in.read(page.data(), 4096); at += 4096)
        if (std::memcmp(page.data(), words, 4096) == 0) found.push_back(at);
    const int file = ::open(store.c_str(), O_WRONLY);
    for (const std::uint64_t at : found) {
        const char wrong = static_cast<char>(~reinterpret_cast<const char*>(words)[100]);
        EXPECT_EQ(::pwrite(file, &wrong, 1, static_cast<off_t>(at + 100)), 1);
    }
    ::close(file);
    return found.size();
}

TEST(Media, ABadReplicaIsReadFromTheOtherReplicaAndWritesContinue) {
    ssd::testing::Scratch scratch;
    EmbeddedArrayOptions o = rig_options();
    o.ssd_capacity_bytes = 16u << 20;
    o.directory = scratch / "stores";
    ArrayRig rig(o);
    auto client = rig.connect("writer", 1);
    auto volume = rig.volume(*client, "v", 256, 2, 4096);
    const VolumeRef v = volume->ref();
    const ChannelRef ch = client->channel(0).ref();
    std::vector<std::uint64_t> data(256 * kWordsPerBlock), back(data.size());
    fill_tagged(kMe, data.data(), 5, 0, 256, tag_of(0, 0));
    ASSERT_EQ(v.write(kMe, ch, 0, 256, data.data(), late()), Status::kSuccess);
    const auto spoil_replica = [&](std::uint32_t block, std::uint32_t rank) {
        const auto replicas = placement::place(client->array().map, v.geometry, block);
        const auto store = o.directory / ("ssd-" + std::to_string(replicas.slot[rank]) + ".store");
        EXPECT_EQ(spoil(store, data.data() + std::size_t{block} * kWordsPerBlock), 1u) << "block " << block;
    };
    std::uint64_t spoilt = 0;
    for (std::uint32_t block = 0; block < 256; block += 9, ++spoilt) spoil_replica(block, 0);
    ASSERT_EQ(v.read(kMe, ch, 0, 256, back.data(), late()), Status::kSuccess);
    EXPECT_EQ(back, data) << "data of the bad replica was returned";
    std::uint64_t errors = 0;
    for (std::uint32_t i = 0; i < o.ssds; ++i) errors += rig.node->describe(i).media_errors;
    EXPECT_GE(errors, spoilt);
    // Both bad: an error and nobody's bytes, until the block is written again.
    spoil_replica(0, 1);
    std::fill(back.begin(), back.begin() + kWordsPerBlock, 3);
    EXPECT_EQ(v.read(kMe, ch, 0, 1, back.data(), late()), Status::kUnrecoveredReadError);
    EXPECT_NE(std::memcmp(back.data(), data.data(), 64), 0);
    EXPECT_EQ(v.read_sectors(kMe, ch, 0, 1, 7, back.data(), late()), Status::kSuccess)
        << "the other sectors of the block must be readable";
    fill_tagged(kMe, data.data(), 5, 0, 256, tag_of(0, 1));
    ASSERT_EQ(v.write(kMe, ch, 0, 256, data.data(), late()), Status::kSuccess);
    auto reader = rig.connect("reader", 1);
    EXPECT_EQ(expect_tags(*reader, "v", 5, [](std::uint32_t) { return tag_of(0, 1); }), 512u);
    count("array_pages_spoilt", spoilt + 1);
    rig.expect_clean(*client);
}

}  // namespace gnstor::test::refusals_test
