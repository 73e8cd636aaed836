// client_test.cpp: what a client refuses, says and survives on the host: options, buffers, lengths, double
// release, use after reclaim, a daemon that is away. Against a whole array, for a client is nothing without
// one.
#include <algorithm>

#include "embedded/bench.hpp"

namespace gnstor::test::client_test {

using client::ClientOptions;
using client::OpenMode;
using nvme::Status;

const auto kMe = simt::self(simt::Lane{});

class ClientTest : public ::testing::Test {
  protected:
    Result<std::unique_ptr<client::Client>> connect(const ClientOptions& o) {
        return client::Client::connect(*rig.control, *rig.nic, o);
    }
    template <class Edit>
    void expect_refused(Edit edit, const char* says) {
        ClientOptions o;
        o.name = "somebody";
        o.channels = 1;
        edit(o);
        const auto client = connect(o);
        ASSERT_FALSE(client.ok()) << says;
        EXPECT_NE(client.error().message.find(says), std::string::npos) << client.error().message;
        ++refused;
    }

    ArrayRig rig;
    std::uint64_t refused = 0;
};

TEST_F(ClientTest, WrongOptionsAreRefusedWithAnErrorThatNamesTheRange) {
    expect_refused([](ClientOptions& o) { o.channels = 0xFFFFFFFFu; }, "1 to 127");
    expect_refused([](ClientOptions& o) { o.channels = 128; }, "1 to 127");
    for (const std::uint32_t depth : {0u, 4u, 7u, 33u, 512u, 0xFFFFFFFFu})
        expect_refused([&](ClientOptions& o) { o.depth = depth; }, "8 to 256");
    for (const std::uint64_t bytes : {0ull, 1ull, 4096ull, (256ull << 10) + 1, ~0ull})
        expect_refused([&](ClientOptions& o) { o.pool_bytes = bytes; }, "multiple of 262144");
    expect_refused([](ClientOptions& o) { o.pool_bytes = 1ull << 50; }, "");
    expect_refused([](ClientOptions& o) { o.transfer_timeout_ms = 0; }, "at least 1 ms");
    for (const char* name : {"", "a b", "../x", "a/b"})
        expect_refused([&](ClientOptions& o) { o.name = name; }, "client");
    expect_refused([](ClientOptions& o) { o.name = std::string(300, 'a'); }, "client");
    if (!simt::gpu_available())
        expect_refused([](ClientOptions& o) { o.lanes = simt::LanesKind::kGpu; }, "GPU");
    count("client_options_refused", refused);
    // And the array is as before.
    auto client = rig.connect("good");
    auto volume = rig.volume(*client, "v", 16);
    std::vector<std::byte> data(4096, std::byte{1});
    EXPECT_TRUE(volume->write(0, data).ok());
}

TEST_F(ClientTest, EveryLegalDepthAndChannelCountWorks) {
    for (const std::uint32_t depth : {8u, 64u, 256u})
        for (const std::uint32_t channels : {1u, 5u}) {
            ClientOptions o;
            o.name = "sized";
            o.channels = channels;
            o.depth = depth;
            o.pool_bytes = 256u << 10;
            o.scatter_to_cqe = depth != 64;
            auto client = connect(o);
            GN_ASSERT_OK(client);
            const std::string name = "v" + std::to_string(depth) + "-" + std::to_string(channels);
            auto volume = rig.volume(**client, name, 256);
            std::vector<std::byte> data(256 * 4096, std::byte{9}), back(data.size());
            EXPECT_EQ((*client)->channel_count(), channels);
            for (std::uint32_t c = 0; c < channels; ++c) {
                const ChannelRef ch = (*client)->channel(c).ref();
                ASSERT_EQ(volume->ref().write(kMe, ch, 0, 256, data.data(), late()), Status::kSuccess);
                ASSERT_EQ(volume->ref().read(kMe, ch, 0, 256, back.data(), late()), Status::kSuccess);
            }
            EXPECT_EQ(back, data);
            rig.expect_clean(**client);
        }
}

TEST_F(ClientTest, ManyChannelsOfOneClientAreAllConnected) {
    ClientOptions o;
    o.name = "wide";
    o.channels = 127;
    o.depth = 8;
    o.pool_bytes = 256u << 10;
    auto client = connect(o);
    GN_ASSERT_OK(client);
    auto volume = rig.volume(**client, "v", 128, 2, 4096);
    std::vector<std::uint64_t> word(kWordsPerBlock);
    for (std::uint32_t c = 0; c < 127; ++c) {
        fill_tagged(kMe, word.data(), 1, c, 1, tag_of(c, 0));
        ASSERT_EQ(volume->ref().write(kMe, (*client)->channel(c).ref(), c, 1, word.data(), late()),
                  Status::kSuccess);
    }
    auto reader = rig.connect("reader", 1);
    expect_tags(*reader, "v", 1, [](std::uint32_t b) { return b < 127 ? tag_of(b, 0) : 0; });
}

TEST_F(ClientTest, TheByteLengthIsWhatTheWriterSetLastAndNeverAboveTheCapacity) {
    auto client = rig.connect("owner");
    auto volume = rig.volume(*client, "v", 16);
    EXPECT_FALSE(volume->set_byte_length(16 * 4096 + 1).ok());
    EXPECT_FALSE(volume->set_byte_length(~0ull).ok());
    for (const std::uint64_t bytes : {16ull * 4096, 0ull, 12345ull}) {
        GN_ASSERT_OK(volume->set_byte_length(77));
        GN_ASSERT_OK(volume->set_byte_length(bytes));
        GN_ASSERT_OK(volume->release());
        auto reading = client->open("v", OpenMode::kRead).value();
        EXPECT_EQ(reading->record().byte_length, bytes);
        EXPECT_EQ(reading->set_byte_length(1).error().code, Errc::kPermission);
        volume = client->open("v", OpenMode::kWrite).value();
    }
    // An opening that says nothing leaves it.
    volume.reset();
    EXPECT_EQ(client->open("v", OpenMode::kRead).value()->record().byte_length, 12345u);
}

TEST_F(ClientTest, AReleasedVolumeIsNoLongerWrittenAndMayBeReleasedAgain) {
    auto client = rig.connect("owner");
    auto volume = rig.volume(*client, "v", 16);
    std::vector<std::byte> data(4096, std::byte{7}), back(4096);
    GN_ASSERT_OK(volume->write(0, data));
    EXPECT_TRUE(volume->lease_held());
    GN_ASSERT_OK(volume->release());
    GN_ASSERT_OK(volume->release());
    EXPECT_FALSE(volume->lease_held());
    EXPECT_FALSE(volume->write(0, back).ok());
    GN_ASSERT_OK(volume->read(0, back));
    EXPECT_EQ(back, data);
}

TEST_F(ClientTest, ReclaimOnHealthyChannelsIsHarmlessAndReferencesStayValid) {
    auto client = rig.connect("owner");
    auto volume = rig.volume(*client, "v", 64);
    const VolumeRef v = volume->ref();
    const ChannelSet set = client->channels();
    std::vector<std::byte> data(64 * 4096, std::byte{5}), back(data.size());
    for (std::uint32_t round = 0; round < 5; ++round) {
        for (std::uint32_t c = 0; c < set.count; ++c) {
            ASSERT_EQ(v.write(kMe, set[c], 0, 64, data.data(), late()), Status::kSuccess);
            rig.nic->disconnect(client->channel(c).queue_pair(round % 4));
        }
        GN_ASSERT_OK(client->reclaim());
        GN_ASSERT_OK(client->reclaim());
        for (std::uint32_t c = 0; c < set.count; ++c)
            ASSERT_EQ(v.read(kMe, set[c], 0, 64, back.data(), late()), Status::kSuccess);
        EXPECT_EQ(back, data);
    }
    GN_ASSERT_OK(volume->write(0, data));
    rig.expect_clean(*client);
}

TEST_F(ClientTest, BuffersAreRegisteredWithEveryChannelOrNone) {
    auto client = rig.connect("owner", 3);
    auto volume = rig.volume(*client, "v", 64);
    auto memory = simt::PinnedMemory::map(20 * 65536, simt::LanesKind::kCpu).value();
    std::byte* const base = memory.data();
    EXPECT_FALSE(client->register_buffer(nullptr, 4096).ok());
    EXPECT_FALSE(client->register_buffer(base, 0).ok());
    EXPECT_FALSE(client->unregister_buffer(base).ok());
    for (std::uint32_t i = 0; i < 16; ++i) GN_ASSERT_OK(client->register_buffer(base + i * 65536, 65536));
    EXPECT_FALSE(client->register_buffer(base + 16 * 65536, 65536).ok())
        << "a channel has at most sixteen regions";
    std::fill_n(base, 65536, std::byte{3});
    for (std::uint32_t c = 0; c < 3; ++c) {
        const ChannelRef ch = client->channel(c).ref();
        EXPECT_TRUE(ch.is_registered(base, 65536));
        EXPECT_FALSE(ch.is_registered(base + 16 * 65536, 1));
        ASSERT_EQ(volume->ref().write(kMe, ch, 0, 16, base, late()), Status::kSuccess);
        ASSERT_EQ(volume->ref().read(kMe, ch, 0, 16, base + (c + 1) * 65536, late()), Status::kSuccess);
        EXPECT_TRUE(std::equal(base, base + 65536, base + (c + 1) * 65536));
        EXPECT_EQ(client->channel(c).counters().value().bounce_bytes, 0u);
    }
    for (std::uint32_t i = 0; i < 16; ++i) GN_ASSERT_OK(client->unregister_buffer(base + i * 65536));
    EXPECT_FALSE(client->channel(0).ref().is_registered(base, 1));
    GN_ASSERT_OK(client->register_buffer(base, 20 * 65536));  // places are used again
    EXPECT_TRUE(client->channel(2).ref().is_registered(base + 17 * 65536, 65536));
    GN_ASSERT_OK(client->unregister_buffer(base));
    rig.expect_clean(*client);
}

TEST_F(ClientTest, ChannelsAreForTheLanesThatTheOptionNames) {
    ClientOptions o;
    o.name = "alone";
    o.channels = 2;
    o.sharing = Sharing::kLane;
    o.check_buffers = true;
    auto connected = connect(o);
    GN_ASSERT_OK(connected);
    client::Client& client = **connected;
    auto volume = rig.volume(client, "v", 64);
    const VolumeRef v = volume->ref();
    const auto mine = client.channels().shared<Sharing::kLane>().mine(simt::Lane{});
    void* const buffer = mine.alloc(kMe, 4096);
    EXPECT_EQ(v.write(kMe, mine, 3, 1, buffer, late()), Status::kSuccess);
    EXPECT_EQ(v.stable().write(kMe, mine, 4, 1, buffer, late()), Status::kSuccess);
    EXPECT_EQ(v.write(kMe, client.channels()[0], 3, 1, buffer, late()), Status::kWrongSharing);
    EXPECT_EQ(mine.free(kMe, buffer), Status::kSuccess);
    EXPECT_EQ(v.read(kMe, mine, 3, 1, buffer, late()), Status::kNotAllocated);
    std::vector<std::byte> data(4096, std::byte{1});
    EXPECT_TRUE(volume->write(0, data).ok()) << "host transfers have a channel of their own";
    // A lane that left its request behind.
    void* const other = mine.alloc(kMe, 4096);
    const Token token = v.read_async(simt::Lane{}, mine, 3, 1, other, late());
    GN_ASSERT_OK(client.quiesce(10'000));
    EXPECT_EQ(client.drop_tokens().value(), 1u);
    EXPECT_EQ(mine.wait(kMe, token, late()), Status::kStaleToken);
    EXPECT_EQ(mine.free(kMe, other), Status::kSuccess);
    rig.expect_clean(client);
}

struct CountsCalls {
    std::uint32_t* calls;
    void operator()(Status) const { ++*calls; }
};

TEST_F(ClientTest, PendingCallbacksOfExitedKernelsAreCancelledByTheHostAndWhenTheClientCloses) {
    auto client = rig.connect("owner", 2);
    auto volume = rig.volume(*client, "v", 64);
    const ChannelRef ch = client->channels()[1];
    std::uint32_t calls = 0;
    const auto leave_one = [&] {
        void* const buffer = ch.alloc(kMe, 4096);
        // One that tries polls for nobody: the next one would run this one's callback, if it were answered.
        EXPECT_EQ(volume->ref().try_read_async(simt::Lane{}, ch, 0, 1, buffer, CountsCalls{&calls}),
                  Status::kSuccess);
    };
    leave_one();
    leave_one();
    EXPECT_EQ(client->drop_callbacks().value(), 2u);
    EXPECT_EQ(client->free_left_buffers().value(), 2u)
        << "a buffer that a drive may still write to must stay allocated";
    GN_ASSERT_OK(client->quiesce(10'000));
    EXPECT_EQ(client->free_left_buffers().value(), 0u);
    rig.expect_clean(*client);
    leave_one();
    volume.reset();
    client.reset();
    EXPECT_EQ(calls, 0u) << "a cancelled callback must not run: its data may have been freed";
}

TEST_F(ClientTest, MemoryInUseIsNotDeregisteredAndASecondCallDeregistersTheRest) {
    auto client = rig.connect("owner", 2);
    auto volume = rig.volume(*client, "v", 64);
    auto memory = simt::PinnedMemory::map(65536, simt::LanesKind::kCpu).value();
    GN_ASSERT_OK(client->register_buffer(memory.data(), memory.size()));
    // Answered perhaps, but not filed: nobody has polled (one that may wait would have), so as far as this
    // side knows it is under way.
    const Token token =
        volume->ref().try_read_async(simt::Lane{}, client->channels()[1], 0, 1, memory.data());
    ASSERT_TRUE(token.in_flight());
    const auto busy = client->unregister_buffer(memory.data());
    ASSERT_FALSE(busy.ok());
    EXPECT_EQ(busy.error().code, Errc::kBusy);
    EXPECT_EQ(client->channels()[1].wait(kMe, token, late()), Status::kSuccess);
    GN_ASSERT_OK(client->unregister_buffer(memory.data()));
    EXPECT_FALSE(client->unregister_buffer(memory.data()).ok()) << "the memory is no longer registered";
    rig.expect_clean(*client);
}

TEST_F(ClientTest, WhileTheDaemonIsUnreachableControlCallsFailWithThatReasonAndIoContinues) {
    auto client = rig.connect("owner");
    auto volume = rig.volume(*client, "v", 16);
    rig.daemon->suspend();
    EXPECT_FALSE(client->open("v", OpenMode::kRead).ok());
    EXPECT_FALSE(client->refresh_map().ok());
    client::CreateVolume r;
    r.name = "w";
    r.capacity_bytes = 4096;
    EXPECT_EQ(client->create(r).error().code, Errc::kState);
    ClientOptions o;
    o.name = "late";
    EXPECT_FALSE(connect(o).ok());
    std::vector<std::byte> data(4096, std::byte{2});
    GN_ASSERT_OK(volume->write(1, data));
    GN_ASSERT_OK(volume->set_byte_length(5000));
    EXPECT_FALSE(volume->release().ok()) << "the daemon did not receive the release";
    EXPECT_FALSE(volume->release().ok()) << "the daemon still did not receive the release";
    rig.daemon->resume();
    GN_ASSERT_OK(volume->release());
    volume = client->open("v", OpenMode::kWrite).value();
    EXPECT_EQ(volume->record().byte_length, 5000u);
    std::vector<std::byte> back(4096);
    GN_ASSERT_OK(volume->read(1, back));
    EXPECT_EQ(back, data);
}

TEST_F(ClientTest, ClientsComeAndGoAndLeaveNothingBehind) {
    auto stays = rig.connect("stays", 1);
    auto volume = rig.volume(*stays, "v", 64);
    std::vector<std::byte> data(64 * 4096, std::byte{4}), back(data.size());
    GN_ASSERT_OK(volume->write(0, data));
    constexpr std::uint32_t kGuests = 60;
    for (std::uint32_t i = 0; i < kGuests; ++i) {
        auto guest = rig.connect("guest-" + std::to_string(i % 7), 1 + i % 3);
        auto reading = guest->open("v", OpenMode::kRead).value();
        GN_ASSERT_OK(reading->read(i, std::span(back).first(4096)));
        EXPECT_EQ(back[100], std::byte{4});
    }
    count("client_connections", kGuests);
    GN_ASSERT_OK(volume->read(0, back));
    EXPECT_EQ(back, data);
    rig.expect_clean(*stays);
}

}  // namespace gnstor::test::client_test
