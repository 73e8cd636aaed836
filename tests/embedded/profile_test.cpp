// Profiles: those that are built in are what they say, and whatever is wrong in one is named with file, line
// and key.
#include "embedded/profile.hpp"

#include <gnstor/base/hash.hpp>

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace gnstor::embedded::profile_test {

std::string text_of(const std::string& name) {
    for (const BuiltInProfile& each : built_in_profiles())
        if (each.name == name) return std::string(each.text);
    ADD_FAILURE() << "no profile " << name;
    return "";
}

TEST(Profiles, EveryBuiltInProfileIsGoodAndNamedAsItsFile) {
    std::vector<std::string> names;
    for (const BuiltInProfile& each : built_in_profiles()) {
        const auto profile = load_profile(std::string(each.name));
        ASSERT_TRUE(profile.ok()) << profile.error().message;
        EXPECT_EQ(profile->name, each.name);
        EXPECT_TRUE(ssd::check(profile->drive).ok());
        EXPECT_TRUE(rdma::check(profile->network).ok());
        names.emplace_back(each.name);
    }
    EXPECT_EQ(names, (std::vector<std::string>{"gnstor-paper", "none", "samsung-980-pro", "samsung-pm1743",
                                               "unbounded"}));
}

TEST(Profiles, ProfileNoneDelaysNothing) {
    const auto none = load_profile("none").value();
    EXPECT_TRUE(none.drive.none());
    EXPECT_TRUE(none.network.none());
}

TEST(Profiles, ThePapersDrivesAndNetworkAreTheFiguresOfItsTableInBytes) {
    constexpr double kMb = 1024.0 * 1024.0;
    const auto paper = load_profile("gnstor-paper").value();
    const auto rate = [](const ssd::SizePoint& p) { return p.per_second * p.bytes; };
    ASSERT_EQ(paper.drive.read.size(), 2u);
    ASSERT_EQ(paper.drive.write.size(), 2u);
    EXPECT_EQ(paper.drive.read[0].bytes, 4096u);
    EXPECT_EQ(paper.drive.read[1].bytes, 65536u);
    EXPECT_NEAR(rate(paper.drive.read[0]), 3250 * kMb, 1);
    EXPECT_NEAR(rate(paper.drive.write[0]), 2980 * kMb, 1);
    EXPECT_NEAR(rate(paper.drive.read[1]), 6988 * kMb, 1);
    EXPECT_NEAR(rate(paper.drive.write[1]), 4950 * kMb, 1);
    EXPECT_EQ(paper.drive.firmware_ns, 276u);
    EXPECT_NEAR(paper.network.to_node.bytes_per_second, 21.6 * 1024 * kMb, 1);
    EXPECT_NEAR(paper.network.from_node.bytes_per_second, 21.6 * 1024 * kMb, 1);
}

TEST(Profiles, TheSamsungDrivesReachTheirPublishedFigures) {
    const auto pro = load_profile("samsung-980-pro").value().drive;
    EXPECT_EQ(pro.read[0].per_second, 1e6);
    EXPECT_NEAR(pro.read[1].per_second * pro.read[1].bytes, 7e9, 1);
    EXPECT_NEAR(1e9 / static_cast<double>(pro.read[0].latency_ns), 22'000, 1);
    EXPECT_NEAR(1e9 / static_cast<double>(pro.write[0].latency_ns), 60'000, 2);
    const auto enterprise = load_profile("samsung-pm1743").value().drive;
    EXPECT_EQ(enterprise.read[0].per_second, 2.5e6);
    EXPECT_EQ(enterprise.write[0].per_second, 2.5e5);
    EXPECT_NEAR(enterprise.read[1].per_second * enterprise.read[1].bytes, 13e9, 1);
    EXPECT_NEAR(enterprise.write[1].per_second * enterprise.write[1].bytes, 6.6e9, 1);
}

/// The paper's profile without comments of its own, lines counted by hand: a known place for every error.
std::string sample() {
    return R"({
    "name": "sample",
    // a comment
    "drive": {
        "firmware_ns": 276,
        "channels": 8,
        "dies_per_channel": 8,
        "stripe_bytes": 16384,
        "read_die_ns": 30000,
        "program_die_ns": 100000,
        "channel_bytes_per_s": 2e9,
        "read": [
            {"bytes": 4096, "bytes_per_s": 3407872000, "latency_ns": 40000},
            {"bytes": 65536, "bytes_per_s": 7327449088, "latency_ns": 50000}
        ],
        "write": [
            {"bytes": 4096, "operations_per_s": 762880, "latency_ns": 12000}
        ]
    },
    "network": {
        "to_node": {"bytes_per_s": 23192823398, "one_way_ns": 1000},
        "from_node": {"bytes_per_s": 23192823398, "one_way_ns": 1000}
    }
}
)";
}

std::string replaced(const std::string& what, const std::string& by) {
    std::string text = sample();
    const auto at = text.find(what);
    EXPECT_NE(at, std::string::npos) << what;
    return text.replace(at, what.size(), by);
}

struct Mistake {
    const char* what;
    const char* by;
    const char* message;  ///< how the error begins behind the file's name
};

TEST(Profiles, EveryMistakeIsNamedWithItsLineAndKey) {
    ASSERT_TRUE(parse_profile(sample(), "f.json").ok()) << parse_profile(sample(), "f.json").error().message;
    const Mistake mistakes[] = {
        {"    \"name\": \"sample\",\n", "", ":1: name: is missing"},
        {"\"sample\"", "\"\"", ":2: name: is empty"},
        {"\"sample\"", "7", ":2: name: should be a name"},
        {"\"firmware_ns\": 276,", "", ":4: drive.firmware_ns: is missing"},
        {"\"firmware_ns\": 276", "\"firmware_ns\": -1", ":5: drive.firmware_ns: is -1"},
        {"\"firmware_ns\": 276", "\"firmware_ns\": 1.5",
         ":5: drive.firmware_ns: is 1.5; give a whole number"},
        {"\"firmware_ns\": 276", "\"firmware_ns\": \"276\"", ":5: drive.firmware_ns: should be a number"},
        {"\"firmware_ns\": 276", "\"firmware_ns\": 1e300", ":5: drive.firmware_ns: is 1e+300"},
        {"\"firmware_ns\": 276", "\"firmware_ns\": NaN", ":5: not JSON"},
        {"\"firmware_ns\": 276", "\"firmware_ns\": 1e999", ":5: not JSON"},
        {"\"firmware_ns\": 276", "\"firmware_ns\": null", ":5: drive.firmware_ns: should be a number"},
        {"\"channels\": 8", "\"channels\": 0", ":6: drive.channels: is 0; give 1 to 1024"},
        {"\"channels\": 8", "\"chanels\": 8", ":6: drive.chanels: unknown key; known here: firmware_ns"},
        {"\"channels\": 8", "\"channels\": 8, \"channels\": 9", ":6: \"channels\" is given twice"},
        {"\"stripe_bytes\": 16384", "\"stripe_bytes\": 5000",
         ":4: drive: a drive cannot have stripes of 5000 bytes"},
        {"\"channel_bytes_per_s\": 2e9", "\"channel_bytes_per_s\": 5",
         ":11: drive.channel_bytes_per_s: is 5"},
        {"\"channel_bytes_per_s\": 2e9", "\"channel_bytes_per_s\": 2e8", ":4: drive: read of 4096 bytes"},
        {"\"latency_ns\": 40000", "\"latency_ns\": 0", ":13: drive.read[0].latency_ns: is 0"},
        {"\"latency_ns\": 40000", "\"latency_ns\": 2e9", ":13: drive.read[0].latency_ns: is 2e+09"},
        {"\"latency_ns\": 40000", "\"latency_ns\": 31000",
         ":4: drive: read of 4096 bytes: a latency of 31000 ns"},
        {", \"latency_ns\": 50000", "", ":14: drive.read[1].latency_ns: is missing"},
        {"\"bytes_per_s\": 3407872000, ", "",
         ":13: drive.read[0]: give one of operations_per_s and bytes_per_s"},
        {"\"bytes_per_s\": 3407872000", "\"bytes_per_s\": 1, \"operations_per_s\": 1",
         ":13: drive.read[0]: give one"},
        {"\"bytes_per_s\": 3407872000", "\"bytes_per_s\": -3407872000",
         ":13: drive.read[0].bytes_per_s: is -3.4"},
        {"\"bytes\": 65536", "\"bytes\": 4096", ":14: drive.read[1].bytes: is 4096, after 4096"},
        {"\"bytes\": 65536", "\"bytes\": 5000", ":4: drive: read: a size of 5000 bytes"},
        {"{\"bytes\": 4096, \"operations_per_s\": 762880, \"latency_ns\": 12000}", "",
         ":16: drive.write: is empty"},
        {"{\"bytes\": 4096, \"operations_per_s\": 762880, \"latency_ns\": 12000}", "4096",
         ":17: drive.write[0]: should"},
        {"\"operations_per_s\": 762880", "\"operations_per_s\": 1e12",
         ":17: drive.write[0].operations_per_s: is 1e+12"},
        {"\"dies_per_channel\": 8", "\"dies_per_channel\": 1",
         ":4: drive: read of 4096 bytes: the rate is 832000 a second, but"},
        {"        \"to_node\"", "        \"to_nod\"", ":21: network.to_nod: unknown key"},
        {"        \"to_node\": {\"bytes_per_s\": 23192823398, \"one_way_ns\": 1000},\n", "",
         ":20: network.to_node: is missing"},
        {"23192823398, \"one_way_ns\": 1000},", "0, \"one_way_ns\": 1000},",
         ":21: network.to_node.bytes_per_s: is 0"},
        {"\"one_way_ns\": 1000},", "\"one_way_ns\": -5},", ":21: network.to_node.one_way_ns: is -5"},
        {"    \"network\": {", "    \"network\": 5, \"x\": {",
         ":20: x: unknown key; known here: name, drive, network"},
        {"    \"drive\": {", "    \"drive\": {\"drive\": {", ":25: not JSON"},
    };
    std::uint32_t seen = 0;
    for (const Mistake& m : mistakes) {
        const auto parsed = parse_profile(replaced(m.what, m.by), "f.json");
        ASSERT_FALSE(parsed.ok()) << m.what << " -> " << m.by;
        EXPECT_EQ(parsed.error().message.rfind(std::string("f.json") + m.message, 0), 0u)
            << parsed.error().message << "\nshould begin with f.json" << m.message;
        ++seen;
    }
    for (const char* text : {"", "[]", "7", "\"x\"", "{", "// nothing", "{\"name\": \"a\"} x", "\xff\xfe"})
        EXPECT_FALSE(parse_profile(text, "f.json").ok()) << text;
    EXPECT_FALSE(parse_profile(std::string(100'000, '['), "f.json").ok());
    std::printf("GN_COUNT profile_mistakes=%u\n", seen);
}

TEST(Profiles, RandomlyChangedBytesAreParsedOrRefusedWithoutACrash) {
    const char* given = std::getenv("GN_SEED");
    SplitMix64 random(given != nullptr ? std::strtoull(given, nullptr, 0) : 1);
    const std::string good = text_of("gnstor-paper");
    std::uint32_t taken = 0, refused = 0;
    for (int i = 0; i < 20'000; ++i) {
        std::string text = good;
        for (std::uint64_t n = 1 + random.below(4); n != 0; --n) {
            const std::uint64_t at = random.below(text.size());
            const std::uint64_t how = random.below(3);
            if (how == 0) text[at] = static_cast<char>(random.next());
            if (how == 1) text.erase(at, random.below(40));
            if (how == 2) text.insert(at, 1, "0123456789{}[],:\"-e."[random.below(20)]);
            if (text.empty()) break;
        }
        const auto parsed = parse_profile(text, "f.json");
        ++(parsed.ok() ? taken : refused);
        if (parsed.ok()) {
            EXPECT_TRUE(ssd::check(parsed->drive).ok());
        } else {
            EXPECT_EQ(parsed.error().message.rfind("f.json:", 0), 0u) << parsed.error().message;
        }
    }
    EXPECT_GT(taken, 0u);
    std::printf("GN_COUNT profile_mutants=%u\n", taken + refused);
}

TEST(Profiles, AreTakenFromFilesAndTheirErrorsNameThem) {
    const auto unknown = load_profile("gnstor-papper");
    ASSERT_FALSE(unknown.ok());
    EXPECT_NE(unknown.error().message.find("gnstor-paper, none"), std::string::npos)
        << unknown.error().message;
    EXPECT_EQ(load_profile("./no-such.json").error().code, Errc::kNotFound);
    EXPECT_FALSE(load_profile("/").ok());
    EXPECT_FALSE(load_profile("").ok());
    const auto file = std::filesystem::path(::testing::TempDir()) / "gnstor-profile-test.json";
    std::ofstream(file) << sample();
    const auto loaded = load_profile(file.string());
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    EXPECT_EQ(loaded->name, "sample");
    std::ofstream(file) << replaced("\"channels\": 8", "\"channels\": 9999");
    EXPECT_EQ(load_profile(file.string()).error().message.rfind(file.string() + ":6: drive.channels", 0), 0u);
    std::filesystem::remove(file);
}

}  // namespace gnstor::embedded::profile_test
