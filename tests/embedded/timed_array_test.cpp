// A whole array under each profile: the same contents and the same counts, whatever time its hardware takes.
#include <gnstor/base/hash.hpp>
#include <gnstor/embedded_array.hpp>

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace gnstor::timed_array_test {

#define ASSERT_OK(expression)                             \
    do {                                                  \
        const auto& gn_ok = (expression);                 \
        ASSERT_TRUE(gn_ok.ok()) << gn_ok.error().message; \
    } while (false)

std::uint64_t seed_or(std::uint64_t fallback) {
    const char* text = std::getenv("GN_SEED");
    return text != nullptr ? std::strtoull(text, nullptr, 0) : fallback;
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

EmbeddedArrayOptions options_with(const std::string& profile, std::uint32_t threads) {
    EmbeddedArrayOptions options;
    options.ssds = 4;
    options.ssd_capacity_bytes = 64u << 20;
    options.strict_nic = true;
    options.engine_threads = threads;
    options.service_units = threads;
    options.seed = seed_or(1);
    options.profile = profile;
    return options;
}

std::unique_ptr<client::Client> connect(EmbeddedArray& array, const std::string& name) {
    client::ClientOptions options;
    options.name = name;
    auto client = array.connect(options);
    EXPECT_TRUE(client.ok()) << (client.ok() ? "" : client.error().message);
    return client.ok() ? std::move(client).value() : nullptr;
}

struct Sums {
    std::uint64_t reads = 0, writes = 0, blocks_read = 0, blocks_written = 0;
    bool operator==(const Sums&) const = default;
};

Sums sums_of(const EmbeddedArray& array) {
    Sums sums;
    for (const EmbeddedSsd& ssd : array.ssds()) {
        sums.reads += ssd.reads;
        sums.writes += ssd.writes;
        sums.blocks_read += ssd.blocks_read;
        sums.blocks_written += ssd.blocks_written;
    }
    return sums;
}

/// Random writes over each other and reads between them, by one client on a volume of its own. Sizes from a
/// block (payload in the capsule) to many (fetched by the target).
void work(client::Client& client, const std::string& name, std::uint64_t seed, std::uint32_t operations) {
    constexpr std::uint32_t kBlocks = 256;
    client::CreateVolume request;
    request.name = name;
    request.capacity_bytes = std::uint64_t{kBlocks} * nvme::kBlockBytes;
    request.replicas = 2;
    ASSERT_OK(client.create(request));
    auto volume = client.open(name, client::OpenMode::kWrite);
    ASSERT_OK(volume);
    std::vector<std::byte> expected(request.capacity_bytes);
    SplitMix64 random(seed);
    for (std::uint32_t i = 0; i < operations; ++i) {
        const std::uint64_t blocks = 1 + random.below(random.below(2) == 0 ? 1 : 40);
        const std::uint64_t first = random.below(kBlocks - blocks);
        const std::size_t at = first * nvme::kBlockBytes, bytes = blocks * nvme::kBlockBytes;
        if (random.below(2) == 0) {
            const auto data = pattern(random.next(), bytes);
            ASSERT_OK((*volume)->write(static_cast<nvme::BlockAddress>(first), data));
            std::memcpy(&expected[at], data.data(), bytes);
        } else {
            std::vector<std::byte> back(bytes);
            ASSERT_OK((*volume)->read(static_cast<nvme::BlockAddress>(first), back));
            ASSERT_EQ(std::memcmp(back.data(), &expected[at], bytes), 0)
                << "seed " << seed << ", operation " << i;
        }
    }
    std::vector<std::byte> back(expected.size());
    ASSERT_OK((*volume)->read(0, back));
    EXPECT_EQ(back, expected);
}

TEST(TimedArray, ContentsAndCountsAreThoseOfAnArrayWithoutAProfile) {
    constexpr std::uint32_t kOperations = 300;
    for (const std::uint32_t threads : {1u, 3u}) {
        Sums untimed;
        for (const char* profile : {"none", "gnstor-paper", "samsung-980-pro", "samsung-pm1743"}) {
            auto array = EmbeddedArray::open(options_with(profile, threads));
            ASSERT_OK(array);
            {
                const auto client = connect(**array, "alice");
                ASSERT_NE(client, nullptr);
                work(*client, "v", seed_or(3), kOperations);
            }
            const Sums sums = sums_of(**array);
            if (std::string(profile) == "none") untimed = sums;
            EXPECT_EQ(sums, untimed) << profile << ", " << threads << " threads";
            EXPECT_GT(sums.blocks_written, 0u);
            std::printf("GN_COUNT timed_array_operations=%u\n", kOperations);
        }
    }
}

TEST(TimedArray, ClientsShareALinkAndEachReadsWhatItWrote) {
    auto array = EmbeddedArray::open(options_with("gnstor-paper", 2));
    ASSERT_OK(array);
    std::vector<std::jthread> threads;
    for (std::uint64_t i = 0; i < 4; ++i)
        threads.emplace_back([&array, i] {
            const std::string name = "client-" + std::to_string(i);
            const auto client = connect(**array, name);
            ASSERT_NE(client, nullptr);
            work(*client, name, seed_or(10) + i, 200);
        });
    threads.clear();
    std::printf("GN_COUNT timed_array_operations=800\n");
}

TEST(TimedArray, AClientThatDisconnectsDuringIoDoesNotAffectOthers) {
    auto array = EmbeddedArray::open(options_with("gnstor-paper", 2));
    ASSERT_OK(array);
    const auto stays = connect(**array, "stays");
    ASSERT_NE(stays, nullptr);
    for (int i = 0; i < 6; ++i) {
        std::jthread other([&array, i] {
            const auto goes = connect(**array, "goes-" + std::to_string(i));
            ASSERT_NE(goes, nullptr);
            work(*goes, "of-goes-" + std::to_string(i), seed_or(20) + static_cast<std::uint64_t>(i), 30);
        });
        work(*stays, "of-stays-" + std::to_string(i), seed_or(40) + static_cast<std::uint64_t>(i), 60);
    }
}

TEST(TimedArray, IsNotOpenedWithAnUnknownProfile) {
    const auto array = EmbeddedArray::open(options_with("gnstor-papper", 1));
    ASSERT_FALSE(array.ok());
    EXPECT_NE(array.error().message.find("choose one of"), std::string::npos) << array.error().message;
}

}  // namespace gnstor::timed_array_test
