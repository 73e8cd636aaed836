#include <gnstor/base/units.hpp>

#include <gtest/gtest.h>

#include <string>

namespace gnstor {
namespace {

TEST(ParseBytes, ReadsWhatPeopleWrite) {
    const struct {
        const char* text;
        std::uint64_t bytes;
    } cases[] = {{"0", 0},
                 {"4096", 4096},
                 {"64KiB", 65536},
                 {"64k", 65536},
                 {" 64 K ", 65536},
                 {"1G", 1ull << 30},
                 {"1GB", 1000000000},
                 {"1.5GiB", 3ull << 29},
                 {"0.5 k", 512},
                 {"2t", 2ull << 40},
                 {"1PiB", 1ull << 50},
                 {"9223372036854775807", 9223372036854775807ull},
                 {"512b", 512},
                 {"1.000000001GB", 1000000001}};
    for (const auto& c : cases) {
        const auto got = parse_bytes(c.text);
        ASSERT_TRUE(got.ok()) << c.text << ": " << got.error().message;
        EXPECT_EQ(*got, c.bytes) << c.text;
    }
}

TEST(ParseBytes, RefusesAbsurdInputAndSaysWhy) {
    const char* cases[] = {"",
                           " ",
                           "-1",
                           "G",
                           "1X",
                           "1..5G",
                           "1.G",
                           ".5G",
                           "1e9",
                           "0x10",
                           "1 2",
                           "0.3",
                           "1.5",
                           "9223372036854775808",
                           "99999999999999999999999999999999999999999999999",
                           "9999999999P",
                           "1,000",
                           "1KiB KiB",
                           "1.0000000001G",
                           "+5",
                           "\xff\xff",
                           "1\n2"};
    for (const char* text : cases) {
        const auto got = parse_bytes(text);
        ASSERT_FALSE(got.ok()) << "'" << text << "' was read as " << *got;
        EXPECT_EQ(got.error().code, Errc::kInvalidArgument);
        EXPECT_FALSE(got.error().message.empty());
    }
    EXPECT_LT(parse_bytes(std::string(1 << 20, 'x')).error().message.size(), 300u)
        << "an error repeats its input whole";
    EXPECT_LT(parse_bytes("1" + std::string(1 << 20, 'x')).error().message.size(), 300u);
}

TEST(ParseDuration, NeedsAUnit) {
    EXPECT_EQ(*parse_duration_ns("250ns"), 250u);
    EXPECT_EQ(*parse_duration_ns("5m"), 300'000'000'000u);
    EXPECT_EQ(*parse_duration_ns("1.5 s"), 1'500'000'000u);
    EXPECT_EQ(*parse_duration_ns("0"), 0u);
    for (const char* text : {"5", "", "5 years", "-1s", "1.5ns", "999999999999h"})
        EXPECT_FALSE(parse_duration_ns(text).ok()) << text;
}

TEST(Format, IsForPeople) {
    EXPECT_EQ(format_bytes(0), "0 B");
    EXPECT_EQ(format_bytes(512), "512 B");
    EXPECT_EQ(format_bytes(65536), "64 KiB");
    EXPECT_EQ(format_bytes(1ull << 44), "16 TiB");
    EXPECT_EQ(format_bytes(1536), "1.50 KiB");
    EXPECT_EQ(format_bytes(1048575), "1.00 MiB");
    EXPECT_EQ(format_rate(49.7e9), "49.7 GB/s");
    EXPECT_EQ(format_iops(12.1e6), "12.1 MIOPS");
    EXPECT_EQ(format_iops(850), "850 IOPS");
    EXPECT_EQ(format_iops(999'999.9), "1.00 MIOPS");
    EXPECT_EQ(format_iops(-1), "? IOPS");
    EXPECT_EQ(format_duration_ns(6500), "6.50 us");
    EXPECT_EQ(format_duration_ns(32), "32 ns");
    EXPECT_EQ(format_count(1234567), "1,234,567");
    EXPECT_EQ(format_count(12), "12");
}

}  // namespace
}  // namespace gnstor
