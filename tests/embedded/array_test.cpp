// The whole array in one process, as its users see it: everything below is real but the NIC and the SSDs.
#include <gnstor/base/hash.hpp>
#include <gnstor/embedded_array.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <vector>

namespace gnstor::array_test {

EmbeddedArrayOptions small_array() {
    EmbeddedArrayOptions options;
    options.ssds = 4;
    options.ssd_capacity_bytes = 64u << 20;
    options.strict_nic = true;
    return options;
}

client::CreateVolume request(const std::string& name, std::uint64_t bytes, std::uint32_t replicas = 2) {
    client::CreateVolume r;
    r.name = name;
    r.capacity_bytes = bytes;
    r.replicas = replicas;
    return r;
}

std::vector<std::byte> pattern(std::uint64_t seed, std::size_t bytes) {
    std::vector<std::byte> out(bytes);
    SplitMix64 random(seed);
    for (std::size_t i = 0; i + 8 <= bytes; i += 8) {
        const std::uint64_t word = random.next();
        std::memcpy(&out[i], &word, 8);
    }
    return out;
}

std::unique_ptr<client::Client> connect(EmbeddedArray& array, const std::string& name) {
    client::ClientOptions options;
    options.name = name;
    auto client = array.connect(options);
    EXPECT_TRUE(client.ok()) << (client.ok() ? "" : client.error().message);
    return client.ok() ? std::move(client).value() : nullptr;
}

#define ASSERT_OK(expression)                             \
    do {                                                  \
        const auto& gn_ok = (expression);                 \
        ASSERT_TRUE(gn_ok.ok()) << gn_ok.error().message; \
    } while (false)

TEST(EmbeddedArray, ReadsReturnTheWrittenDataWithEveryReplicaCount) {
    auto array = EmbeddedArray::open(small_array());
    ASSERT_OK(array);
    auto client = connect(**array, "alice");
    ASSERT_NE(client, nullptr);
    for (std::uint32_t replicas = 1; replicas <= 4; ++replicas) {
        const std::string name = "v" + std::to_string(replicas);
        ASSERT_OK(client->create(request(name, 4u << 20, replicas)));
        auto volume = client->open(name, client::OpenMode::kWrite);
        ASSERT_OK(volume);
        const auto data = pattern(replicas, 4u << 20);
        ASSERT_OK((*volume)->write(0, data));
        std::vector<std::byte> back(data.size());
        ASSERT_OK((*volume)->read(0, back));
        EXPECT_EQ(data, back);
    }
}

TEST(EmbeddedArray, EveryWriteReachesEveryReplicaAndEveryReadOneOfThem) {
    auto array = EmbeddedArray::open(small_array());
    ASSERT_OK(array);
    auto client = connect(**array, "alice");
    ASSERT_OK(client->create(request("v", 4u << 20)));
    auto volume = client->open("v", client::OpenMode::kWrite);
    ASSERT_OK(volume);
    const auto data = pattern(1, 4u << 20);
    ASSERT_OK((*volume)->write(0, data));
    std::vector<std::byte> back(data.size());
    ASSERT_OK((*volume)->read(0, back));
    std::uint64_t written = 0, read = 0;
    for (const EmbeddedSsd& ssd : (*array)->ssds()) {
        written += ssd.blocks_written;
        read += ssd.blocks_read;
    }
    EXPECT_EQ(written, 2u * 1024u);
    EXPECT_EQ(read, 1024u);
}

TEST(EmbeddedArray, AVolumeIsReadOnlyByClientsItIsSharedWith) {
    auto array = EmbeddedArray::open(small_array());
    ASSERT_OK(array);
    auto alice = connect(**array, "alice");
    auto bob = connect(**array, "bob");
    ASSERT_OK(alice->create(request("v", 1u << 20)));
    {
        auto volume = alice->open("v", client::OpenMode::kWrite);
        ASSERT_OK(volume);
        ASSERT_OK((*volume)->write(0, pattern(7, 1u << 20)));
    }
    EXPECT_FALSE(bob->open("v", client::OpenMode::kRead).ok());
    ASSERT_OK((*array)->control().share_volume(alice->identity().id, "v", bob->identity().id));
    auto shared = bob->open("v", client::OpenMode::kRead);
    ASSERT_OK(shared);
    std::vector<std::byte> back(1u << 20);
    ASSERT_OK((*shared)->read(0, back));
    EXPECT_EQ(back, pattern(7, 1u << 20));
    EXPECT_FALSE((*shared)->write(0, back).ok());
    EXPECT_FALSE(bob->open("v", client::OpenMode::kWrite).ok());
}

TEST(EmbeddedArray, AnOlderOpeningForWritingIsFencedByANewerOne) {
    auto array = EmbeddedArray::open(small_array());
    ASSERT_OK(array);
    auto alice = connect(**array, "alice");
    ASSERT_OK(alice->create(request("v", 1u << 20)));
    auto older = alice->open("v", client::OpenMode::kWrite);
    ASSERT_OK(older);
    auto newer = alice->open("v", client::OpenMode::kWrite);
    ASSERT_OK(newer);
    const auto data = pattern(3, 64u << 10);
    const auto refused = (*older)->write(0, data);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("Stale Epoch"), std::string::npos) << refused.error().message;
    ASSERT_OK((*newer)->write(0, data));
}

TEST(EmbeddedArray, IoContinuesWhileTheDaemonIsSuspended) {
    auto array = EmbeddedArray::open(small_array());
    ASSERT_OK(array);
    auto client = connect(**array, "alice");
    ASSERT_OK(client->create(request("v", 1u << 20)));
    auto volume = client->open("v", client::OpenMode::kWrite);
    ASSERT_OK(volume);
    (*array)->suspend_daemon();
    EXPECT_FALSE(client->create(request("w", 1u << 20)).ok());
    const auto data = pattern(5, 1u << 20);
    EXPECT_TRUE((*volume)->write(0, data).ok());
    std::vector<std::byte> back(data.size());
    EXPECT_TRUE((*volume)->read(0, back).ok());
    EXPECT_EQ(data, back);
    (*array)->resume_daemon();
    ASSERT_OK(client->create(request("w", 1u << 20)));
}

// SSDs in the daemon's own process serve under grants like any others.
TEST(EmbeddedArray, AGrantEndsWhenTheDaemonsThreadStopsAndReturnsWhenItResumes) {
    EmbeddedArrayOptions options = small_array();
    options.grant_ms = 200;
    auto array = EmbeddedArray::open(options);
    ASSERT_OK(array);
    auto alice = connect(**array, "alice");
    ASSERT_OK(alice->create(request("v", 1u << 20)));
    ASSERT_OK((*array)->control().share_volume(alice->identity().id, "v", 0));
    client::ClientOptions impatient;
    impatient.name = "bob";
    impatient.transfer_timeout_ms = 300;
    auto bob = (*array)->connect(impatient);
    ASSERT_OK(bob);
    auto volume = (*bob)->open("v", client::OpenMode::kRead);
    ASSERT_OK(volume);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(2);
    std::vector<std::byte> block(nvme::kBlockBytes);
    const auto read_until = [&](bool ok) {
        while (std::chrono::steady_clock::now() < deadline)
            if ((*volume)->read(0, block).ok() == ok) return true;
        return false;
    };
    EXPECT_TRUE(read_until(true));
    (*array)->suspend_daemon();
    EXPECT_TRUE(read_until(false));
    std::uint64_t refused = 0;
    for (const EmbeddedSsd& ssd : (*array)->ssds()) refused += ssd.refused;
    EXPECT_GT(refused, 0u);
    (*array)->resume_daemon();
    EXPECT_TRUE(read_until(true));
}

TEST(EmbeddedArray, StoresOutliveTheArrayAndRecordsAreRebuiltFromThem) {
    const auto directory =
        std::filesystem::path(::testing::TempDir()) / ("gnstor-array-" + std::to_string(::getpid()));
    std::filesystem::remove_all(directory);
    EmbeddedArrayOptions options = small_array();
    options.directory = directory;
    const auto data = pattern(11, 2u << 20);
    {
        auto array = EmbeddedArray::open(options);
        ASSERT_OK(array);
        auto client = connect(**array, "alice");
        ASSERT_OK(client->create(request("kept", 2u << 20)));
        auto volume = client->open("kept", client::OpenMode::kWrite);
        ASSERT_OK(volume);
        ASSERT_OK((*volume)->write(0, data));
        ASSERT_OK((*volume)->set_byte_length(data.size() - 5));
        ASSERT_OK((*volume)->release());
    }
    auto array = EmbeddedArray::open(options);
    ASSERT_OK(array);
    auto client = connect(**array, "alice");
    auto volume = client->open("kept", client::OpenMode::kRead);
    ASSERT_OK(volume);
    EXPECT_EQ((*volume)->record().byte_length, data.size() - 5);
    std::vector<std::byte> back(data.size());
    ASSERT_OK((*volume)->read(0, back));
    EXPECT_EQ(data, back);
    volume->reset();
    client.reset();
    array->reset();
    std::filesystem::remove_all(directory);
}

TEST(EmbeddedArray, BadRequestsAreRefusedWithAnErrorMessageAndChangeNothing) {
    auto array = EmbeddedArray::open(small_array());
    ASSERT_OK(array);
    auto client = connect(**array, "alice");
    EXPECT_FALSE(client->create(request("", 1u << 20)).ok());
    EXPECT_FALSE(client->create(request("v", 0)).ok());
    EXPECT_FALSE(client->create(request("v", 1ull << 60)).ok());
    EXPECT_FALSE(client->create(request("v", 1u << 20, 5)).ok());
    EXPECT_FALSE(client->open("absent", client::OpenMode::kRead).ok());
    ASSERT_OK(client->create(request("v", 1u << 20)));
    EXPECT_FALSE(client->create(request("v", 1u << 20)).ok());
    auto volume = client->open("v", client::OpenMode::kWrite);
    ASSERT_OK(volume);
    std::vector<std::byte> data(8192);
    EXPECT_FALSE((*volume)->write(255, data).ok());  // past the end
    EXPECT_FALSE((*volume)->write(1ull << 40, data).ok());
    EXPECT_FALSE((*volume)->write(0, std::span(data).first(100)).ok());    // no whole block
    EXPECT_FALSE((*volume)->write(0, std::span<const std::byte>()).ok());  // nothing
    EXPECT_FALSE((*volume)->set_byte_length((1u << 20) + 1).ok());
    std::vector<std::byte> back(1u << 20, std::byte{1});
    ASSERT_OK((*volume)->read(0, back));
    EXPECT_EQ(back, std::vector<std::byte>(1u << 20));  // never written: zeroes
}

TEST(EmbeddedArray, UnalignedMemoryWorksLikeAnyOther) {
    auto array = EmbeddedArray::open(small_array());
    ASSERT_OK(array);
    auto client = connect(**array, "alice");
    ASSERT_OK(client->create(request("v", 1u << 20)));
    auto volume = client->open("v", client::OpenMode::kWrite);
    ASSERT_OK(volume);
    const auto data = pattern(13, (256u << 10) + 1);
    ASSERT_OK((*volume)->write(3, std::span(data).subspan(1)));
    std::vector<std::byte> back((256u << 10) + 3);
    ASSERT_OK((*volume)->read(3, std::span(back).subspan(3)));
    EXPECT_TRUE(std::equal(data.begin() + 1, data.end(), back.begin() + 3));
}

}  // namespace gnstor::array_test
