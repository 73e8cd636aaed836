// initiators_test.cpp: every way to the array fills, measures and compares a small one: what lanes see is
// what was written, and SSDs count the commands that the initiator says it sent.
#include "bench/initiators/initiator.hpp"

#include "bench/initiators/bed.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

namespace gnstor::bench {
namespace {

constexpr std::uint64_t kVolumeBytes = 1u << 20;
constexpr std::uint64_t kSeed = 77;

struct Way {
    PathKind path;
    std::uint32_t clients, warps, channels, threads;
};

class EveryPath : public testing::TestWithParam<Way> {
  protected:
    void SetUp() override {
        BedOptions bed;
        bed.ssds = 3;
        bed.programmed_bytes = 256u << 20;
        auto built = Bed::build(bed);
        ASSERT_TRUE(built.ok()) << built.error().message;
        bed_ = std::move(*built);
        InitiatorOptions o;
        o.path = GetParam().path;
        o.clients = GetParam().clients;
        o.warps = GetParam().warps;
        o.channels = GetParam().channels;
        o.threads = GetParam().threads;
        o.array_threads = 2;
        o.depth = 8;
        o.volume_bytes = kVolumeBytes;
        o.replicas = 2;
        o.fua = fua_;
        auto made = make_initiator(*bed_, o);
        ASSERT_TRUE(made.ok()) << made.error().message;
        initiator_ = std::move(*made);
    }

    static Load load(Pass pass, std::uint32_t bytes, std::uint32_t write_percent, Pattern pattern) {
        Load l{};
        l.pass = pass;
        l.pattern = pattern;
        l.write_percent = write_percent;
        l.bytes = bytes;
        l.depth = 8;
        l.verify = Verify::kAll;
        l.units = kVolumeBytes / bytes;
        l.contents_seed = kSeed;
        l.order_seed = kSeed + bytes + write_percent;
        l.duration_ns = 10'000'000'000;  // the quota ends a run
        l.quota = ~0ull;
        return l;
    }
    /// Runs, and holds everything against everything.
    Outcome run(const Load& l) {
        const HardwareCounts before = bed_->counts().value();
        auto done = initiator_->run(l);
        EXPECT_TRUE(done.ok()) << done.error().message;
        if (!done.ok()) return {};
        const HardwareCounts after = bed_->counts().value();
        EXPECT_EQ(done->failures, 0u)
            << nvme::status_name(done->first_status) << " at " << done->first_offset;
        EXPECT_EQ(done->wrong, 0u) << "at " << done->first_offset;
        EXPECT_EQ(done->checked, done->reads);
        EXPECT_EQ(after.commands - before.commands, done->commands);
        EXPECT_EQ(after.refused, before.refused);
        EXPECT_EQ(after.forced - before.forced, fua_ ? done->commands : 0u) << "FUA, alike on every path";
        // A CPU initiator's consumers do not know since when the first request of a flight was wanted.
        EXPECT_LE(done->latency_ns.size(), done->operations);
        const std::uint64_t first =
            is_lane_initiated(GetParam().path) ? 0 : std::uint64_t{GetParam().clients} * 8;
        EXPECT_GE(done->latency_ns.size() + first, done->operations);
        operations_ += done->operations;
        return *done;
    }
    void TearDown() override {
        initiator_.reset();
        bed_.reset();
        total_ += operations_;
    }
    static void TearDownTestSuite() {
        std::printf("GN_COUNT initiator_requests=%llu\n", static_cast<unsigned long long>(total_));
    }

    std::unique_ptr<Bed> bed_;
    std::unique_ptr<Initiator> initiator_;
    std::uint64_t operations_ = 0;
    bool fua_ = false;
    static inline std::uint64_t total_ = 0;
};

TEST_P(EveryPath, MovesTheRightBytesAndCountsThemRight) {
    const std::uint64_t clients = GetParam().clients;
    EXPECT_EQ(run(load(Pass::kFill, 65536, 0, Pattern::kSequential)).operations,
              clients * kVolumeBytes / 65536);
    EXPECT_EQ(run(load(Pass::kCompare, 65536, 0, Pattern::kSequential)).operations,
              clients * kVolumeBytes / 65536);
    struct {
        std::uint32_t bytes, write_percent;
        Pattern pattern;
    } const mixes[] = {{512, 0, Pattern::kRandom},    {4096, 0, Pattern::kSequential},
                       {4096, 30, Pattern::kRandom},  {65536, 50, Pattern::kRandom},
                       {4096, 100, Pattern::kRandom}, {16384, 100, Pattern::kSequential},
                       {65536, 0, Pattern::kRandom}};
    for (const auto& mix : mixes) {
        SCOPED_TRACE(fmt::format("{} bytes, {} % writes", mix.bytes, mix.write_percent));
        Load l = load(Pass::kMeasure, mix.bytes, mix.write_percent, mix.pattern);
        const std::uint64_t members = initiator_->members(mix.bytes);
        l.quota = 240 / members;
        const Outcome out = run(l);
        EXPECT_EQ(out.operations, l.quota * members);
        EXPECT_TRUE(out.quota_used);
        if (mix.write_percent == 0) {
            EXPECT_EQ(out.reads, out.operations);
        }
        if (mix.write_percent == 100) {
            EXPECT_EQ(out.reads, 0u);
        }
    }
    // Every block, those that were written and those that were not.
    EXPECT_EQ(run(load(Pass::kCompare, 4096, 0, Pattern::kSequential)).operations,
              clients * kVolumeBytes / 4096);
}

class EveryPathWithFua : public EveryPath {
  protected:
    EveryPathWithFua() { fua_ = true; }
};

TEST_P(EveryPathWithFua, SetsFuaOnEveryCommand) {
    run(load(Pass::kFill, 65536, 0, Pattern::kSequential));
    Load mixed = load(Pass::kMeasure, 4096, 50, Pattern::kRandom);
    mixed.quota = 240 / initiator_->members(4096);
    run(mixed);
}

std::string name_of(const testing::TestParamInfo<Way>& info) {
    std::string name = path_name(info.param.path);
    std::replace(name.begin(), name.end(), '-', '_');
    return fmt::format("{}_{}_clients_{}", name, info.param.clients, info.index);
}

INSTANTIATE_TEST_SUITE_P(
    Paths, EveryPath,
    testing::Values(Way{PathKind::kGnor, 1, 2, 1, 1}, Way{PathKind::kGnor, 3, 2, 2, 1},
                    Way{PathKind::kStrongCpu, 1, 1, 1, 2}, Way{PathKind::kStrongCpu, 3, 1, 1, 2},
                    Way{PathKind::kGdDeEngine, 2, 1, 1, 2}, Way{PathKind::kGd, 1, 1, 1, 1},
                    Way{PathKind::kGd, 3, 1, 1, 2}, Way{PathKind::kBasic, 2, 1, 1, 2},
                    Way{PathKind::kPortedLocks, 2, 2, 1, 1}, Way{PathKind::kCoordinating, 2, 2, 1, 1}),
    name_of);
INSTANTIATE_TEST_SUITE_P(Paths, EveryPathWithFua,
                         testing::Values(Way{PathKind::kGnor, 1, 2, 1, 1},
                                         Way{PathKind::kStrongCpu, 1, 1, 1, 2},
                                         Way{PathKind::kGdDeEngine, 1, 1, 1, 1},
                                         Way{PathKind::kGd, 1, 1, 1, 1}, Way{PathKind::kBasic, 1, 1, 1, 1},
                                         Way{PathKind::kPortedLocks, 1, 2, 1, 1},
                                         Way{PathKind::kCoordinating, 1, 2, 1, 1}),
                         name_of);

TEST(Paths, AnUnknownNameIsRefusedWithAListOfAllPaths) {
    for (const PathKind path : kAllPaths) {
        const auto parsed = parse_path(path_name(path));
        ASSERT_TRUE(parsed.ok());
        EXPECT_EQ(*parsed, path);
    }
    const auto wrong = parse_path("spdk");
    ASSERT_FALSE(wrong.ok());
    EXPECT_NE(wrong.error().message.find("gd-deengine"), std::string::npos);
}

TEST(Paths, ImpossibleOptionsAreRefusedByName) {
    BedOptions bed;
    bed.ssds = 2;
    auto built = Bed::build(bed);
    ASSERT_TRUE(built.ok()) << built.error().message;
    InitiatorOptions good;
    good.volume_bytes = kVolumeBytes;
    const auto refused = [&built, &good](auto change, const char* word) {
        InitiatorOptions o = good;
        change(o);
        const auto made = make_initiator(**built, o);
        ASSERT_FALSE(made.ok()) << word;
        EXPECT_EQ(made.error().code, Errc::kInvalidArgument);
        EXPECT_NE(made.error().message.find(word), std::string::npos) << made.error().message;
    };
    refused([](auto& o) { o.clients = 0; }, "--clients");
    refused([](auto& o) { o.clients = 33; }, "--clients");
    refused([](auto& o) { o.channels = 2; }, "--channels");
    refused([](auto& o) { o.warps = 1000; }, "--warps");
    refused([](auto& o) { o.depth = 0; }, "--depth");
    refused([](auto& o) { o.depth = 4000; }, "--depth");
    refused([](auto& o) { o.replicas = 3; }, "--replicas");
    refused([](auto& o) { o.threads = 0; }, "--threads");
    refused([](auto& o) { o.array_threads = 0; }, "--array-threads");
    refused([](auto& o) { o.volume_bytes = 5; }, "1 MiB");
}

TEST(Draw, SequentialMembersTakeEveryUnitOnceInAPass) {
    Load load{};
    load.pass = Pass::kFill;
    load.bytes = 4096;
    load.units = 1001;
    std::vector<int> seen(load.units);
    for (std::uint64_t member = 0; member < 7; ++member)
        for (Draw draw(load, member, 7, member); !draw.exhausted(load);) {
            const Drawn drawn = draw.next(load);
            EXPECT_TRUE(drawn.write);
            ++seen.at(drawn.offset / 4096);
        }
    for (const int times : seen) EXPECT_EQ(times, 1);
}

TEST(Draw, AMixHasTheRequestedShareOfWrites) {
    Load load{};
    load.pass = Pass::kMeasure;
    load.write_percent = 30;
    load.bytes = 512;
    load.units = 4096;
    Draw draw(load, 0, 1, 5);
    int writes = 0;
    constexpr int kDraws = 100'000;
    std::vector<int> sixteenths(16);
    for (int i = 0; i < kDraws; ++i) {
        const Drawn drawn = draw.next(load);
        writes += drawn.write ? 1 : 0;
        ++sixteenths[drawn.offset / (256 * 512)];
    }
    // Ten standard deviations.
    EXPECT_NEAR(writes, kDraws * 3 / 10, 1500);
    for (const int n : sixteenths) EXPECT_NEAR(n, kDraws / 16, 800);
}

}  // namespace
}  // namespace gnstor::bench
