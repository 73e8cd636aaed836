// Properties of base, over generated inputs (RapidCheck prints its seed; RC_PARAMS replays it).
#include <gnstor/base/crc32c.hpp>
#include <gnstor/base/units.hpp>
#include <gnstor/base/uuid.hpp>

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cctype>
#include <string>
#include <vector>

namespace gnstor {
namespace {

TEST(Crc32cProperty, ContinuingAndCombiningGiveTheCrcOfTheWhole) {
    EXPECT_TRUE(rc::check([](const std::vector<std::uint8_t>& a, const std::vector<std::uint8_t>& b) {
        std::vector<std::uint8_t> both = a;
        both.insert(both.end(), b.begin(), b.end());
        const std::uint32_t whole = crc32c_portable(both.data(), both.size());
        RC_ASSERT(crc32c(both.data(), both.size()) == whole);
        RC_ASSERT(crc32c(b.data(), b.size(), crc32c(a.data(), a.size())) == whole);
        RC_ASSERT(crc32c_combine(crc32c(a.data(), a.size()), crc32c(b.data(), b.size()), b.size()) == whole);
    }));
}

TEST(Crc32cProperty, OneFlippedBitIsAlwaysSeen) {
    EXPECT_TRUE(rc::check([](std::vector<std::uint8_t> bytes) {
        RC_PRE(!bytes.empty());
        const std::uint32_t before = crc32c(bytes.data(), bytes.size());
        const auto bit = *rc::gen::inRange<std::size_t>(0, bytes.size() * 8);
        bytes[bit / 8] = static_cast<std::uint8_t>(bytes[bit / 8] ^ (1u << (bit % 8)));
        RC_ASSERT(crc32c(bytes.data(), bytes.size()) != before);
    }));
}

TEST(UnitsProperty, ExactlyPrintedValuesAreParsedBackUnchanged) {
    EXPECT_TRUE(rc::check([] {
        const auto factor = *rc::gen::inRange<std::uint64_t>(0, 1024);
        const auto power = *rc::gen::inRange<unsigned>(0, 6);
        const std::uint64_t bytes = factor << (10 * power);
        RC_ASSERT(*parse_bytes(format_bytes(bytes)) == bytes);
        RC_ASSERT(*parse_bytes(std::to_string(bytes)) == bytes);
    }));
}

TEST(UnitsProperty, GarbageIsReadOrRefusedButNeverCrashes) {
    EXPECT_TRUE(rc::check([](const std::string& text) {
        if (const auto got = parse_bytes(text); got.ok()) {
            bool digit = false;
            for (char c : text) digit = digit || std::isdigit(static_cast<unsigned char>(c)) != 0;
            RC_ASSERT(digit);
        }
        (void)parse_duration_ns(text).ok();
        (void)Uuid::parse(text).ok();
    }));
}

TEST(UuidProperty, AnyBytesPrintAndReadBack) {
    EXPECT_TRUE(rc::check([](const std::array<std::uint8_t, 16>& bytes) {
        const Uuid uuid{bytes};
        RC_ASSERT(*Uuid::parse(uuid.to_string()) == uuid);
    }));
}

}  // namespace
}  // namespace gnstor
