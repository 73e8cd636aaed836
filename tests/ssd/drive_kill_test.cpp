// A drive's process is killed at random moments: after the remount every acknowledged write is there, whole,
// and none is of the past.
#include "drive_rig.hpp"
#include "ssd/flash/direct/direct_flash.hpp"
#include "ssd/flash/record_copies.hpp"
#include "ssd/tools/store_check.hpp"
#include "ssd/tools/store_mount.hpp"

#include <gnstor/base/crc32c.hpp>

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

namespace gnstor::ssd {
namespace {

using namespace testing;  // NOLINT: the rig's names
using deengine::PageNumber;

constexpr std::uint32_t kBlocks = 200;

struct Said {
    std::uint64_t sequence;
    std::uint32_t block;
    std::uint32_t pad;
};

DriveOptions options(const std::filesystem::path& path) {
    return {.capacity_bytes = 8ull << 20,
            .file = path,
            .pages_per_unit = 64,
            .serial = "",
            .durability = Durability::kProcess};
}

/// Which sequence a block's contents are of, or ~0 if they are of none.
std::uint64_t sequence_of(const Page& page) {
    std::uint64_t sequence = 0;
    std::memcpy(&sequence, page.data() + 4088, 8);
    Page expected = page_of(sequence);
    std::memcpy(expected.data() + 4088, &sequence, 8);
    return expected == page ? sequence : ~0ull;
}

/// Writes random blocks, eight at a time in the queue, and says each acknowledged one.
[[noreturn]] void child(const std::filesystem::path& path, std::uint64_t sequence, std::uint64_t seed,
                        int acknowledge) {
    DriveRig rig(options(path));
    rig.sequence = sequence;
    rig.grant();
    SplitMix64 random(seed);
    constexpr std::uint32_t kDepth = 8;
    std::array<Page, kDepth> pages;
    std::array<Said, kDepth> flying{};
    for (std::uint64_t budget = 1500; budget > 0; budget -= kDepth) {
        for (std::uint16_t i = 0; i < kDepth; ++i) {
            flying[i] = {++rig.sequence, static_cast<std::uint32_t>(random.below(kBlocks)), 0};
            fill_page(pages[i].data(), flying[i].sequence);
            std::memcpy(pages[i].data() + 4088, &flying[i].sequence, 8);
            IoFields f = rig.fields(flying[i].block, 1);
            f.sequence = flying[i].sequence;
            Command c = nvme::encode_io(IoOpcode::kWrite, f);
            c.command_id = i;
            c.data = sgl(pages[i].data(), pages[i].size());
            if (!rig.io->submit(c)) ::_exit(3);
        }
        for (std::uint16_t i = 0; i < kDepth; ++i) {
            Completion done{};
            if (!reap(*rig.io, *rig.reactor, done)) ::_exit(4);
            // No space is the end of what this life can do; garbage collection is not this test's matter.
            if (done.result() == Status::kCapacityExceeded) continue;
            if (!nvme::ok(done.result())) ::_exit(5);
            const Said& said = flying[done.command_id];
            if (::write(acknowledge, &said, sizeof said) != static_cast<ssize_t>(sizeof said)) ::_exit(6);
        }
    }
    ::_exit(0);
}

TEST(DriveKill, AcknowledgedWritesSurviveKillNineAtRandomMoments) {
    const std::uint64_t seed = seed_or(2718);
    SplitMix64 random(seed);
    constexpr int kStores = 12;
    constexpr int kKills = 6;
    std::uint64_t acknowledged = 0;
    std::uint64_t checked = 0;
    std::uint64_t kills = 0;
    for (int s = 0; s < kStores && !::testing::Test::HasFailure(); ++s) {
        Scratch scratch;
        const auto path = scratch / "s";
        {
            DriveRig rig(options(path));
            rig.grant();
            rig.add_volume(kVolume, kBlocks);
        }
        std::vector<std::uint64_t> newest(kBlocks, 0);
        std::uint64_t sequence = 0;
        for (int k = 0; k < kKills; ++k) {
            int ends[2];
            ASSERT_EQ(::pipe(ends), 0);
            const std::uint64_t child_seed = random.next();
            const pid_t pid = ::fork();
            ASSERT_GE(pid, 0);
            if (pid == 0) {
                ::close(ends[0]);
                child(path, sequence, child_seed, ends[1]);
            }
            ::close(ends[1]);
            Said said{};
            const auto take = [&] {
                if (::read(ends[0], &said, sizeof said) != static_cast<ssize_t>(sizeof said)) return false;
                newest[said.block] = std::max(newest[said.block], said.sequence);
                ++acknowledged;
                return true;
            };
            for (std::uint64_t wanted = random.below(300) + 1; wanted > 0 && take(); --wanted) {
            }
            ::kill(pid, SIGKILL);
            while (take()) {
            }
            ::close(ends[0]);
            int status = 0;
            ASSERT_EQ(::waitpid(pid, &status, 0), pid);
            ASSERT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0)
                << "the child failed with " << WEXITSTATUS(status);
            kills += WIFSIGNALED(status) ? 1 : 0;
            sequence += 2000;  // above everything the child can have sent
            DriveRig rig(options(path));
            rig.grant();
            Page in;
            for (std::uint32_t b = 0; b < kBlocks; ++b) {
                ASSERT_EQ(rig.read(b, in), Status::kSuccess) << "seed " << seed << " block " << b;
                const bool zero = in == Page{};
                const std::uint64_t found = zero ? 0 : sequence_of(in);
                ASSERT_NE(found, ~0ull) << "half a block, seed " << seed << " block " << b;
                ASSERT_GE(found, newest[b])
                    << "an acknowledged write is lost, seed " << seed << " block " << b;
                newest[b] = found;
                ++checked;
            }
        }
    }
    std::printf(
        "drive kill: %llu kills, %llu acknowledged writes, %llu blocks checked, seed %llu (floor 40 kills)\n",
        static_cast<unsigned long long>(kills), static_cast<unsigned long long>(acknowledged),
        static_cast<unsigned long long>(checked), static_cast<unsigned long long>(seed));
    std::printf("GN_COUNT ssd_drive_kills=%llu\n", static_cast<unsigned long long>(kills));
    EXPECT_GE(kills, 40u);
}

constexpr std::uint32_t kPagesPerUnit = 512, kBlocksEach = 16, kDirectBlocks = 160;

DriveOptions direct_options(const std::filesystem::path& path) {
    DriveOptions o = options(path);
    o.pages_per_unit = kPagesPerUnit;
    o.backbone = BackboneKind::kDirect;
    return o;
}

/// Writes a part of a unit, and is killed.
[[noreturn]] void write_and_die(const DriveOptions& options) {
    DriveRig rig(options);
    rig.grant();
    rig.add_volume(kVolume, kDirectBlocks);
    const std::vector<std::byte> data(kBlocksEach * nvme::kBlockBytes, std::byte{0x5A});
    for (std::uint32_t block = 0; block < kDirectBlocks; block += kBlocksEach)
        if (rig.write(block, data) != Status::kSuccess) ::_exit(3);
    (void)::raise(SIGKILL);
    ::_exit(4);
}

/// Of the newest unit of data: one beyond its last record.
PageNumber end_of_newest_unit(const StoreView& view) {
    PageNumber end = 0;
    std::uint32_t serial = 0;
    for (PageNumber p = 0; p < view.superblock().geometry().pages(); ++p) {
        const deengine::PageOob oob = view.record(p).counts;
        if (oob.kind != deengine::PageKind::kData || oob.unit_serial < serial) continue;
        serial = oob.unit_serial;
        end = p + 1;
    }
    return end;
}

/// Of a unit that was erased and opened again the first lines of records are on the medium, and the erasure
/// of the last one is not. Of what no sync followed anything may be missing after the kill of a process that
/// went past the page cache (docs/store-format.md, "Boot record"), whatever order today's backbone keeps.
void undo_erasure_of_last_line(const std::filesystem::path& path) {
    const auto view = StoreView::open(path).value();
    const PageNumber end = end_of_newest_unit(*view);
    const PageNumber last = end / kPagesPerUnit * kPagesPerUnit + kPagesPerUnit - 1;
    ASSERT_GE(end % kPagesPerUnit, kBlocksEach);
    ASSERT_LT(end + DirectFlash::kRecordsPerLine, last) << "that line holds nothing new";
    deengine::PageOob oob = view->record(end - 1).counts;
    --oob.unit_serial;
    oob.group -= 10;
    oob.crc = record_crc(oob, last, view->drive_seed());
    const FileDescriptor fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    for (const std::uint64_t copy : {std::uint64_t{0}, view->superblock().records_bytes()})
        ASSERT_TRUE(write_all(fd.get(), &oob, sizeof oob, view->record_offset(last) + copy));
}

TEST(DriveKill, AStoreOfAKilledDirectDriveIsNotDamagedForAMappedDriveOrACheck) {
    const Scratch scratch(direct_place());
    const auto path = scratch / "s";
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) write_and_die(direct_options(path));
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child failed with " << WEXITSTATUS(status);
    undo_erasure_of_last_line(path);

    const auto looked = recover_view(*StoreView::open(path).value(), false);
    EXPECT_TRUE(looked.ok()) << looked.error().message;
    const StoreCheck check = check_store(*StoreView::open(path).value(), {});
    EXPECT_EQ(check.damages, 0u) << check.findings.front().what;

    DriveOptions mapped = direct_options(path);
    mapped.backbone = BackboneKind::kMapped;
    DriveRig rig(mapped);
    rig.grant();
    Page in;
    for (std::uint32_t b = 0; b < kDirectBlocks; ++b) {
        ASSERT_EQ(rig.read(b, in), Status::kSuccess) << "block " << b;
        ASSERT_EQ(in.front(), std::byte{0x5A}) << "block " << b;
    }
}

TEST(DriveKill, TheVolumesOfLostRecordsAreNamedAtEachMountAndByEachCheck) {
    const Scratch scratch;
    const auto path = scratch / "s";
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) write_and_die(options(path));
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child failed with " << WEXITSTATUS(status);
    {
        const auto view = StoreView::open(path).value();
        const std::uint64_t at = view->record_offset(end_of_newest_unit(*view) - 1);
        const FileDescriptor fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
        const std::uint64_t rotten = 0x5A5A5A5A5A5A5A5A;
        for (const std::uint64_t copy : {std::uint64_t{0}, view->superblock().records_bytes()})
            ASSERT_TRUE(write_all(fd.get(), &rotten, sizeof rotten, at + copy));
    }
    const std::string name = fmt::format("volume {}", kVolume);
    for (int mounts = 0; mounts < 3; ++mounts) {
        {
            const StoreCheck check = check_store(*StoreView::open(path).value(), {});
            EXPECT_TRUE(std::ranges::any_of(check.findings,
                                            [&](const StoreFinding& f) {
                                                return f.what.find(name) != std::string::npos &&
                                                       f.what.find("in doubt") != std::string::npos;
                                            }))
                << "after " << mounts << " mounts";
        }
        DriveRig rig(options(path));
        const deengine::RecoveryReport& report = rig.drive->recovery();
        EXPECT_EQ(report.records_lost, mounts == 0 ? 1u : 0u) << "found once";
        EXPECT_EQ(report.volumes_in_doubt.count(kVolume), 1u) << "after " << mounts << " mounts";
        EXPECT_TRUE(std::ranges::any_of(report.findings,
                                        [&](const std::string& finding) {
                                            return finding.find(name) != std::string::npos &&
                                                   finding.find("in doubt") != std::string::npos;
                                        }))
            << "after " << mounts << " mounts";
        EXPECT_EQ(rig.drive->counters().doubtful_volumes, 1u);
    }
}

}  // namespace
}  // namespace gnstor::ssd
