// buffer_test.cpp: memory that a client maps for its kernels, and what SSDs say they counted: the same in the
// array's own process (loop wire) and in one that reaches it over shared memory.
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "embedded/rig.hpp"
#include "rdma/wire/shm/shm_nic.hpp"
#include "support/count.hpp"

namespace gnstor::test::buffer_test {

using nvme::Status;

const auto kMe = simt::self(simt::Lane{});
constexpr std::uint32_t kBlocks = 64;
constexpr std::size_t kBytes = std::size_t{kBlocks} * nvme::kBlockBytes;

/// The parameter: whether clients reach the array over shared memory.
class Buffers : public ::testing::TestWithParam<bool> {
  protected:
    void SetUp() override {
        std::string name = (std::filesystem::temp_directory_path() / "gn-buffers-XXXXXX").string();
        ASSERT_NE(::mkdtemp(name.data()), nullptr);
        folder = name;
        EmbeddedArrayOptions options;
        options.ssds = 3;
        options.ssd_capacity_bytes = 64u << 20;
        options.shm_socket = folder / "shm";
        array = EmbeddedArray::open(options).value();
        if (GetParam()) {
            nic = rdma::open_shm_nic(options.shm_socket).value();
        }
        client = connect("owner");
        client::CreateVolume request;
        request.name = "v";
        request.capacity_bytes = kBytes;
        GN_ASSERT_OK(client->create(request));
        volume = client->open("v", client::OpenMode::kWrite).value();
    }
    void TearDown() override {
        volume.reset();
        client.reset();
        nic.reset();
        array.reset();
        std::error_code ignored;
        std::filesystem::remove_all(folder, ignored);
    }
    std::unique_ptr<client::Client> connect(const char* name) {
        client::ClientOptions options;
        options.name = name;
        options.channels = 2;
        return client::Client::connect(array->control(), nic ? *nic : array->host_nic(), options).value();
    }

    std::filesystem::path folder;
    std::unique_ptr<EmbeddedArray> array;
    std::unique_ptr<rdma::Nic> nic;
    std::unique_ptr<client::Client> client;
    std::unique_ptr<client::Volume> volume;
};

TEST_P(Buffers, LanesReadAndWriteThemWithoutACopyOnEveryChannel) {
    auto mapped = client->map_buffer(2 * kBytes);
    GN_ASSERT_OK(mapped);
    client::Buffer buffer = std::move(mapped).value();
    EXPECT_GE(buffer.size(), 2 * kBytes);
    EXPECT_TRUE(std::all_of(buffer.data(), buffer.data() + buffer.size(),
                            [](std::byte b) { return b == std::byte{0}; }));
    for (std::uint32_t c = 0; c < 2; ++c) {
        std::fill_n(buffer.data(), kBytes, static_cast<std::byte>(c + 7));
        const ChannelRef channel = client->channel(c).ref();
        EXPECT_TRUE(channel.is_registered(buffer.lane_data(), buffer.size()));
        ASSERT_EQ(volume->ref().write(kMe, channel, 0, kBlocks, buffer.lane_data(), late()),
                  Status::kSuccess);
        ASSERT_EQ(volume->ref().read(kMe, channel, 0, kBlocks, buffer.lane_data() + kBytes, late()),
                  Status::kSuccess);
        EXPECT_TRUE(std::equal(buffer.data(), buffer.data() + kBytes, buffer.data() + kBytes));
        EXPECT_EQ(client->channel(c).counters().value().bounce_bytes, 0u);
    }
    std::byte* const at = buffer.lane_data();
    GN_ASSERT_OK(buffer.release());
    GN_ASSERT_OK(buffer.release());
    EXPECT_EQ(buffer.data(), nullptr);
    EXPECT_FALSE(client->channel(0).ref().is_registered(at, 1));
    for (int i = 0; i < 40; ++i) GN_ASSERT_OK(client->map_buffer(4096));  // places are used again
}

TEST_P(Buffers, CannotBeUnmappedWhileACommandUsesThem) {
    client::Buffer buffer = client->map_buffer(kBytes).value();
    // One that tries does not poll: nobody here has seen the answer.
    const gnstor::Token token =
        volume->ref().try_read_async(simt::Lane{}, client->channels()[1], 0, 1, buffer.lane_data());
    ASSERT_TRUE(token.in_flight());
    const auto busy = buffer.release();
    ASSERT_FALSE(busy.ok());
    EXPECT_EQ(busy.error().code, Errc::kBusy) << busy.error().message;
    EXPECT_EQ(client->channels()[1].wait(kMe, token, late()), Status::kSuccess);
    GN_ASSERT_OK(buffer.release());
}

TEST_P(Buffers, InvalidSizesAreRefusedAndNoMemoryStaysAllocated) {
    EXPECT_FALSE(client->map_buffer(0).ok());
    EXPECT_FALSE(client->map_buffer(~std::size_t{0}).ok());
    std::vector<client::Buffer> all;
    auto one = client->map_buffer(4096);
    for (; one.ok(); one = client->map_buffer(4096)) all.push_back(std::move(one).value());
    EXPECT_EQ(all.size(), 16u) << "regions of a channel";
    EXPECT_EQ(one.error().code, Errc::kNoSpace);
    all.pop_back();
    GN_ASSERT_OK(client->map_buffer(4096));
}

TEST_P(Buffers, UserMemoryIsRegisteredIfTheWireCanReachIt) {
    std::vector<std::byte> own(kBytes, std::byte{9});
    const auto registered = client->register_buffer(own.data(), own.size());
    EXPECT_EQ(registered.ok(), !GetParam());
    if (!registered.ok()) {
        EXPECT_NE(registered.error().message.find("map_buffer"), std::string::npos)
            << registered.error().message;
    }
    // Either way lanes may name it.
    ASSERT_EQ(volume->ref().write(kMe, client->channels()[0], 0, kBlocks, own.data(), late()),
              Status::kSuccess);
    std::vector<std::byte> back(kBytes);
    ASSERT_EQ(volume->ref().read(kMe, client->channels()[0], 0, kBlocks, back.data(), late()),
              Status::kSuccess);
    EXPECT_EQ(back, own);
    if (registered.ok()) {
        GN_ASSERT_OK(client->unregister_buffer(own.data()));
    }
}

TEST_P(Buffers, SsdsCountEachCommandBeforeTheyAnswerIt) {
    std::vector<std::byte> data(kBytes, std::byte{5});
    const auto before = client->ssd_counts().value();
    ASSERT_EQ(before.size(), 3u);
    GN_ASSERT_OK(volume->write(0, data));
    GN_ASSERT_OK(volume->read(0, data));
    const auto after = client->ssd_counts().value();
    std::uint64_t reads = 0, writes = 0, stored = 0;
    for (std::size_t i = 0; i < after.size(); ++i) {
        EXPECT_EQ(after[i].slot, i);
        EXPECT_EQ(after[i].media_errors, 0u);
        reads += after[i].reads - before[i].reads;
        writes += after[i].writes - before[i].writes;
        stored += after[i].blocks_stored;
    }
    EXPECT_EQ(reads, kBytes / 65536);  // a chunk each
    EXPECT_EQ(writes, 2 * reads) << "two replicas";
    EXPECT_EQ(stored, 2ull * kBlocks);
    // The daemon has no part in it.
    array->suspend_daemon();
    GN_ASSERT_OK(client->ssd_counts());
    array->resume_daemon();
    const auto own = array->ssds();
    for (std::size_t i = 0; i < own.size(); ++i) EXPECT_EQ(own[i].reads, after[i].reads);
    count("client_counts_compared", own.size());
}

INSTANTIATE_TEST_SUITE_P(Wires, Buffers, ::testing::Bool(),
                         [](const auto& wire) { return std::string(wire.param ? "Shm" : "Loop"); });

}  // namespace gnstor::test::buffer_test
