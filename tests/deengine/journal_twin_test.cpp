// A page of the journal whose program failed on every unit that was tried keeps its number for the next page:
// what lies on flash under one number may be two pages. The younger one counts, whatever the older one says.
#include "deengine/rig.hpp"

namespace gnstor::deengine::test::journal_twin_test {

constexpr nvme::VolumeId kVolume = 3;
constexpr nvme::ClientId kWriter = 7;
constexpr std::uint32_t kBlocks = 90;
constexpr std::uint64_t kFailures = 8;  ///< units tried for one page

/// Writes and trims that are answered, while programs `first` .. + 7 fail; how many of them did.
void run_with_failures(std::uint64_t first, std::uint64_t& programs) {
    Rig rig(64, 16);
    ASSERT_EQ(rig.add(make_record(kVolume, kWriter, 1, 1000)), Status::kSuccess);
    ASSERT_EQ(rig.set_map(make_map(1)), Status::kSuccess);
    for (std::uint64_t i = 0; i < kFailures; ++i)
        rig.flash.program_faults[first + i] = RamFlash::Fault::kWhole;
    std::uint64_t sequence = 0;
    std::vector<std::uint64_t> held(kBlocks);
    std::vector<bool> known(kBlocks, true);
    for (std::uint32_t b = 0; b < kBlocks; ++b) {
        held[b] = ++sequence;
        known[b] = ok(rig.write(rig.fields(kVolume, kWriter, b), sequence, pattern(sequence)).status);
    }
    std::uint32_t after = 0;  // trims since; before another checkpoint comes, the process is killed
    for (std::uint32_t b = 0; b < kBlocks && after < 4; b += 2) {
        if (rig.flash.failed.size() == kFailures) ++after;
        const IoFields at = rig.fields(kVolume, kWriter, 0);
        const bool done = ok(rig.trim(at, ++sequence, {{0, 1, b}}).status);
        known[b] = known[b] && done;
        held[b] = 0;
        rig.engine->poll(++rig.now_ns);  // nothing waits in this one
    }
    programs = rig.flash.programs;
    rig.mount();
    ASSERT_EQ(rig.set_map(make_map(1)), Status::kSuccess);
    for (std::uint32_t b = 0; b < kBlocks; ++b) {
        if (!known[b]) continue;
        ASSERT_TRUE(rig.holds(rig.fields(kVolume, kWriter, b), held[b]))
            << "block " << b << " with programs from " << first << " on failing";
    }
    // What the younger page says of bad units counts: none of them is used again.
    for (std::uint32_t i = 0; i < 1500; ++i) {
        ++sequence;
        (void)rig.write(rig.fields(kVolume, kWriter, i % kBlocks), sequence, pattern(sequence));
        if (i % 8 == 0) rig.engine->poll(++rig.now_ns);
    }
    ASSERT_EQ(rig.flash.violations, 0u) << "with programs from " << first << " on failing";
}

TEST(JournalTwinTest, OfTwoPagesWithOneNumberTheYoungerCountsWhereverProgramsFail) {
    std::uint64_t programs = 300;
    for (std::uint64_t first = 2; first < programs && !::testing::Test::HasFatalFailure(); ++first)
        run_with_failures(first, programs);
}

}  // namespace gnstor::deengine::test::journal_twin_test
