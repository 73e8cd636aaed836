// Store files with random damage are refused with a sentence or opened; never a crash, never a read past the
// file.
#include <gnstor/base/crc32c.hpp>

#include "mutate_store.hpp"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <unistd.h>

#include <set>
#include <vector>

namespace gnstor::ssd {
namespace {

using testing::Scratch;

std::vector<char> valid_image(const Scratch& scratch) {
    const auto path = scratch / "valid";
    {
        auto store =
            FileStore::create(
                path, {.geometry = {4, 8}, .capacity_bytes = 4096 * 24, .metadata_bytes = 4096, .serial = ""})
                .value();
        for (std::uint32_t p = 0; p < 12; ++p) {
            deengine::PageOob oob = testing::oob_of(1, p, p + 1);
            if (store->program(p, testing::page_of(p).data(), oob) != deengine::FlashStatus::kOk)
                std::abort();
        }
        if (!store->store(std::vector<std::byte>(1000, std::byte{3}))) std::abort();
    }
    std::FILE* f = std::fopen(path.c_str(), "rb");
    std::vector<char> bytes(std::filesystem::file_size(path));
    if (std::fread(bytes.data(), 1, bytes.size(), f) != bytes.size()) std::abort();
    std::fclose(f);
    return bytes;
}

void write_file(const std::filesystem::path& path, const std::vector<char>& bytes) {
    std::FILE* f = std::fopen(path.c_str(), "wb");
    if (std::fwrite(bytes.data(), 1, bytes.size(), f) != bytes.size()) std::abort();
    std::fclose(f);
}

/// Sets the checksum right after a change, so that the checks behind it are reached.
void reseal(std::vector<char>& bytes) {
    if (bytes.size() < sizeof(Superblock)) return;
    const std::uint32_t crc = crc32c(bytes.data(), offsetof(Superblock, crc));
    std::memcpy(bytes.data() + offsetof(Superblock, crc), &crc, sizeof crc);
}

void reseal_boot(std::vector<char>& bytes, std::size_t copy) {
    Superblock s{};
    std::memcpy(&s, bytes.data(), sizeof s);
    const std::uint32_t crc = crc32c(bytes.data() + copy, offsetof(BootRecord, crc), seed_of(s).crc);
    std::memcpy(bytes.data() + copy + offsetof(BootRecord, crc), &crc, sizeof crc);
}

TEST(StoreDamage, MutatedSuperblocksTruncationsAndRandomBytesAreRefusedOrHarmless) {
    const std::uint64_t seed = testing::seed_or(7);
    SplitMix64 random(seed);
    const Scratch scratch;
    const std::vector<char> valid = valid_image(scratch);
    std::uint64_t refused = 0;
    std::uint64_t opened = 0;
    std::set<std::string> sentences;
    constexpr std::uint64_t kCases = 2000;
    for (std::uint64_t i = 0; i < kCases; ++i) {
        std::vector<char> bytes = valid;
        const std::uint64_t how = random.below(6);
        if (how == 0) {  // bytes of the superblock's used part
            for (std::uint64_t n = random.below(4) + 1; n > 0; --n)
                bytes[random.below(124)] = static_cast<char>(random.next());
            if (random.below(4) != 0) reseal(bytes);
        } else if (how == 1) {  // one field at an extreme, checksum right
            const std::uint64_t extremes[] = {0,          1,   ~0ull, 1ull << 31, 1ull << 32, 0xFFFFFFFFull,
                                              1ull << 63, 4095};
            const std::uint64_t v = extremes[random.below(8)];
            const std::size_t at = 8 + 4 * random.below(29);
            std::memcpy(bytes.data() + at, &v, random.below(2) == 0 ? 4 : 8);
            reseal(bytes);
        } else if (how == 2) {  // truncation and growth
            bytes.resize(random.below(bytes.size() + 5000));
        } else if (how == 3) {  // anywhere
            for (std::uint64_t n = random.below(64) + 1; n > 0; --n)
                bytes[random.below(bytes.size())] = static_cast<char>(random.next());
        } else if (how == 4) {  // the boot record: one copy or both, with the checksum right or not
            for (std::uint64_t n = random.below(3) + 1; n > 0; --n) {
                const std::size_t copy = kBootOffset + sizeof(BootRecord) * random.below(2);
                bytes[copy + random.below(64)] = static_cast<char>(random.next());
                if (random.below(2) == 0) reseal_boot(bytes, copy);
            }
        } else {  // records and metadata
            for (std::uint64_t n = random.below(200) + 1; n > 0; --n) {
                bytes[kStoreHeadBytes + random.below(2 * 4096 + 32 * 64)] = static_cast<char>(random.next());
            }
        }
        const auto path = scratch / "case";
        write_file(path, bytes);
        auto store = FileStore::open(path);
        if (store.ok()) {
            ++opened;
            (void)testing::exercise(**store);
        } else {
            ++refused;
            EXPECT_NE(store.error().message.find(path.string()), std::string::npos)
                << "an error names its file";
            EXPECT_NE(store.error().code, Errc::kInternal);
            sentences.insert(store.error().message);
        }
    }
    std::printf(
        "store damage: %llu files, %llu refused with %zu sentences, %llu opened and exercised, seed %llu "
        "(floors 300, 300, 5)\n",
        static_cast<unsigned long long>(kCases), static_cast<unsigned long long>(refused), sentences.size(),
        static_cast<unsigned long long>(opened), static_cast<unsigned long long>(seed));
    std::printf("GN_COUNT ssd_damaged_stores=%llu\n", static_cast<unsigned long long>(refused + opened));
    EXPECT_GE(refused, 300u);
    EXPECT_GE(opened, 300u);
    EXPECT_GE(sentences.size(), 5u);
}

TEST(StoreDamage, AnyFlippedBitOfAUsedSuperblockIsSeen) {
    const Scratch scratch;
    const std::vector<char> valid = valid_image(scratch);
    const auto path = scratch / "case";
    for (std::size_t bit = 0; bit < 124 * 8; bit += 3) {
        std::vector<char> bytes = valid;
        bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
        write_file(path, bytes);
        EXPECT_FALSE(FileStore::open(path).ok()) << "bit " << bit;
    }
}

}  // namespace
}  // namespace gnstor::ssd
