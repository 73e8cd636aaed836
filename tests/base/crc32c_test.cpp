// Every way to a CRC-32C gives the value of the polynomial's definition; the fused copy sums what it stored.
#include "base/crc32c_host.hpp"

#include <gnstor/base/crc32c.hpp>
#include <gnstor/base/hash.hpp>

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "support/count.hpp"
#include "support/seed.hpp"

namespace gnstor {
namespace {

using Way = std::uint32_t (*)(const void*, std::size_t, std::uint32_t) noexcept;
struct NamedWay {
    const char* name;
    Way crc;
};
constexpr NamedWay kWays[] = {{"default", crc32c},
                              {"table", detail::crc32c_by_table},
                              {"instruction", detail::crc32c_by_instruction},
                              {"library", detail::crc32c_by_library},
                              {"portable", crc32c_portable}};

std::vector<std::uint8_t> random_bytes(std::size_t n, std::uint64_t seed) {
    SplitMix64 random(seed);
    std::vector<std::uint8_t> bytes(n);
    for (auto& b : bytes) b = static_cast<std::uint8_t>(random.next());
    return bytes;
}

TEST(Crc32c, EveryWayGivesTheVectorsOfRfc3720) {
    const std::vector<std::uint8_t> zeroes(32, 0x00), ones(32, 0xFF);
    std::vector<std::uint8_t> up(32), down(32);
    std::iota(up.begin(), up.end(), std::uint8_t{0});
    std::iota(down.rbegin(), down.rend(), std::uint8_t{0});
    // RFC 3720, B.4, "iSCSI Read (10) Command PDU".
    const std::vector<std::uint8_t> read_pdu = {0x01, 0xC0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,    0, 0, 0, 0,
                                                0x14, 0,    0, 0, 0, 0, 4, 0, 0, 0, 0, 0x14, 0, 0, 0, 0x18,
                                                0x28, 0,    0, 0, 0, 0, 0, 0, 2, 0, 0, 0,    0, 0, 0, 0};
    for (const auto& way : kWays) {
        SCOPED_TRACE(way.name);
        EXPECT_EQ(way.crc("123456789", 9, 0), 0xE3069283u);
        EXPECT_EQ(way.crc(zeroes.data(), zeroes.size(), 0), 0x8A9136AAu);
        EXPECT_EQ(way.crc(ones.data(), ones.size(), 0), 0x62A8AB43u);
        EXPECT_EQ(way.crc(up.data(), up.size(), 0), 0x46DD794Eu);
        EXPECT_EQ(way.crc(down.data(), down.size(), 0), 0x113FDB5Cu);
        EXPECT_EQ(way.crc(read_pdu.data(), read_pdu.size(), 0), 0xD9963A56u);
        EXPECT_EQ(way.crc(nullptr, 0, 0x12345678u), 0x12345678u);
    }
}

TEST(Crc32c, EveryWayAgreesWithTheBitwiseDefinitionAtEveryLengthAndAlignment) {
    const auto bytes = random_bytes(9000, test::run_seed());
    std::uint64_t cases = 0;
    const auto check = [&](std::size_t offset, std::size_t length) {
        const std::uint32_t begin = static_cast<std::uint32_t>(mix64(length));
        const std::uint32_t expected = crc32c_portable(bytes.data() + offset, length, begin);
        for (const auto& way : kWays)
            ASSERT_EQ(way.crc(bytes.data() + offset, length, begin), expected)
                << way.name << " offset " << offset << " length " << length;
        ++cases;
    };
    for (std::size_t offset = 0; offset < 16; ++offset)
        for (std::size_t length = 0; length < 100; ++length) check(offset, length);
    // Around the borders of the interleaved stretches: 3 x 128 and 3 x 1024.
    for (std::size_t border : {384u, 768u, 3072u, 3456u, 6144u, 8192u})
        for (std::size_t length = border - 9; length <= border + 9; ++length) check(length % 7, length);
    std::printf("[   DID    ] %llu lengths and alignments, %zu ways\n",
                static_cast<unsigned long long>(cases), std::size(kWays));
    test::count("base_crc32c_cases", cases);
    ASSERT_GE(cases, 1700u);
}

using Copy = void (*)(void*, const void*, std::uint32_t, std::uint32_t*) noexcept;
struct NamedCopy {
    const char* name;
    Copy copy;
};

std::vector<NamedCopy> copies() {
    std::vector<NamedCopy> all = {{"default", copy_sectors_crc32c},
                                  {"streaming", stream_sectors_crc32c},
                                  {"in pieces", detail::copy_sectors_in_pieces}};
    if (detail::copies_by_vectors()) all.push_back({"by vectors", detail::copy_sectors_by_vectors});
    return all;
}

TEST(Crc32c, TheFusedCopyCopiesEverySectorAndSumsEach) {
    SplitMix64 random(test::run_seed());
    for (const NamedCopy& way : copies())
        for (std::uint32_t sectors = 0; sectors <= 17; ++sectors) {
            for (std::size_t offset : {0u, 1u, 8u, 13u}) {
                SCOPED_TRACE(way.name);
                const auto from = random_bytes(sectors * 512u + offset + 1, random.next());  // never empty
                std::vector<std::uint8_t> to(sectors * 512u + offset + 64, 0xA5);
                std::vector<std::uint32_t> crcs(sectors + 1, 0xDEADBEEFu);
                way.copy(to.data() + offset, from.data() + offset, sectors, crcs.data());
                ASSERT_EQ(std::memcmp(to.data() + offset, from.data() + offset, sectors * 512u), 0);
                for (std::uint32_t s = 0; s < sectors; ++s)
                    ASSERT_EQ(crcs[s], crc32c_portable(from.data() + offset + s * 512u, 512))
                        << s << " of " << sectors;
                ASSERT_EQ(crcs[sectors], 0xDEADBEEFu) << "wrote beyond the last CRC";
                for (std::size_t i = sectors * 512u + offset; i < to.size(); ++i) ASSERT_EQ(to[i], 0xA5);
            }
        }
}

// Linear sums could hide a word whose factor is wrong only among others: each bit of a sector by itself.
TEST(Crc32c, TheFusedCopySeesEverySingleBitOfASector) {
    std::vector<std::uint8_t> from(512), to(512);
    std::uint64_t bits = 0;
    for (const NamedCopy& way : copies())
        for (std::size_t bit = 0; bit < 512 * 8; ++bit, ++bits) {
            from.assign(512, 0);
            from[bit / 8] = static_cast<std::uint8_t>(1u << (bit % 8));
            std::uint32_t crc = 0;
            way.copy(to.data(), from.data(), 1, &crc);
            ASSERT_EQ(crc, detail::crc32c_by_table(from.data(), 512, 0)) << way.name << ", bit " << bit;
        }
    std::printf("[   DID    ] %llu single bits, %zu ways to copy\n", static_cast<unsigned long long>(bits),
                copies().size());
}

}  // namespace
}  // namespace gnstor
