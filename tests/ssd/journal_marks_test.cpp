// A store that has lost the records of its newest pages is refused, and never mounted as the empty or the
// older drive that the rest of it describes: after a clean close and after a kill, on any backbone.
#include "ssd/journal_marks.hpp"
#include "drive_rig.hpp"
#include "ssd/record_copies.hpp"
#include "ssd/store_check.hpp"
#include "ssd/store_mount.hpp"

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <fstream>
#include <functional>

namespace gnstor::ssd {
namespace {

using namespace testing;  // NOLINT: the rig's names
using deengine::PageKind;
using deengine::PageNumber;
using deengine::PageOob;

constexpr std::uint32_t kBlocks = 600;

struct Kind {
    const char* name;
    BackboneKind backbone;
    std::uint32_t service_units;
    Durability durability;
    bool killed;
};

DriveOptions options(const std::filesystem::path& path, const Kind& kind) {
    return {.capacity_bytes = 16ull << 20,
            .file = path,
            .pages_per_unit = 64,
            .serial = "",
            .durability = kind.durability,
            .backbone = kind.backbone,
            .service_units = kind.service_units};
}

void fill(DriveRig& rig) {
    rig.grant();
    rig.add_volume(kVolume, kBlocks);
    const std::vector<std::byte> data(std::size_t{100} * nvme::kBlockBytes, std::byte{0x5A});
    for (std::uint32_t block = 0; block < kBlocks; block += 100)
        ASSERT_EQ(rig.write(block, data), Status::kSuccess);
}

/// A store with blocks, closed or left by a process that was killed.
void make(const std::filesystem::path& path, const Kind& kind) {
    if (!kind.killed) {
        DriveRig rig(options(path, kind));
        return fill(rig);
    }
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
        DriveRig rig(options(path, kind));
        fill(rig);
        (void)::raise(SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    ASSERT_TRUE(WIFSIGNALED(status));
}

/// Zeroes both copies of records, as a hole in the file does. Returns how many were not erased.
std::uint32_t lose_records(const std::filesystem::path& path,
                           const std::function<bool(PageNumber, const PageOob&)>& which) {
    std::vector<std::uint64_t> places;
    std::uint32_t lost = 0;
    {
        const auto view = StoreView::open(path).value();
        for (std::uint32_t page = 0; page < view->superblock().geometry().pages(); ++page) {
            const PageOob oob = view->record(page).counts;
            if (is_erased(oob) || !which(page, oob)) continue;
            ++lost;
            places.push_back(view->record_offset(page));
            places.push_back(view->record_offset(page) + view->superblock().records_bytes());
        }
    }
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    const std::array<char, sizeof(PageOob)> zeroes{};
    for (const std::uint64_t at : places) {
        file.seekp(static_cast<std::streamoff>(at));
        file.write(zeroes.data(), zeroes.size());
    }
    return lost;
}

class JournalMarksOf : public ::testing::TestWithParam<Kind> {};

TEST_P(JournalMarksOf, AStoreWithoutItsRecordsIsRefusedAndNamedAsDamaged) {
    const Kind& kind = GetParam();
    const Scratch scratch;
    const auto path = scratch / "s";
    ASSERT_NO_FATAL_FAILURE(make(path, kind));
    ASSERT_GT(lose_records(path, [](PageNumber, const PageOob&) { return true; }), kBlocks);

    const auto reactor = Reactor::start("test-drive").value();
    const auto refused = Drive::open(options(path, kind), *reactor);
    ASSERT_FALSE(refused.ok()) << "all of its blocks would read as zeroes";
    EXPECT_EQ(refused.error().code, Errc::kCorrupt);
    for (const char* said : {"records of pages are missing", "service unit 0", "replica", "--accept-loss"})
        EXPECT_NE(refused.error().message.find(said), std::string::npos) << refused.error().message;
    {
        const auto view = StoreView::open(path).value();
        const StoreCheck check = check_store(*view, {});
        EXPECT_GT(check.damages, 0u);
        EXPECT_FALSE(check.mounted);
    }
    EXPECT_FALSE(recover_store(path, false).ok());
    {
        const auto view = StoreView::open(path).value();
        const auto looked = recover_view(*view, true);
        ASSERT_TRUE(looked.ok()) << looked.error().message;
        ASSERT_FALSE(looked->report.findings.empty());
        EXPECT_NE(looked->report.findings.front().find("records of pages are missing"), std::string::npos);
    }
    EXPECT_FALSE(Drive::open(options(path, kind), *reactor).ok()) << "a look accepts nothing";

    // Whoever accepts the loss has a drive again, also for the next openings.
    const auto accepted = recover_store(path, true);
    ASSERT_TRUE(accepted.ok()) << accepted.error().message;
    for (int i = 0; i < 2; ++i) {
        const auto opened = Drive::open(options(path, kind), *reactor);
        ASSERT_TRUE(opened.ok()) << opened.error().message;
    }
}

INSTANTIATE_TEST_SUITE_P(
    Stores, JournalMarksOf,
    ::testing::Values(Kind{"Closed", BackboneKind::kMapped, 1, Durability::kPower, false},
                      Kind{"ClosedInMode", BackboneKind::kMapped, 1, Durability::kProcess, false},
                      Kind{"ClosedWithSeveralServiceUnits", BackboneKind::kMapped, 4, Durability::kPower,
                           false},
                      Kind{"ClosedDirect", BackboneKind::kDirect, 4, Durability::kPower, false},
                      Kind{"Killed", BackboneKind::kMapped, 1, Durability::kPower, true},
                      Kind{"KilledInMode", BackboneKind::kMapped, 4, Durability::kProcess, true},
                      Kind{"KilledDirect", BackboneKind::kDirect, 1, Durability::kPower, true}),
    [](const auto& kind) { return std::string(kind.param.name); });

/// The end of the last checkpoint alone, and one service unit of four.
TEST(JournalMarks, ACleanlyClosedStoreThatLacksTheEndOfAnyJournalIsRefused) {
    const Kind kind{"", BackboneKind::kMapped, 4, Durability::kPower, false};
    const Scratch scratch;
    const auto path = scratch / "s";
    ASSERT_NO_FATAL_FAILURE(make(path, kind));
    const auto reactor = Reactor::start("test-drive").value();
    ASSERT_TRUE(Drive::open(options(path, kind), *reactor).ok());
    JournalPages newest{};
    {
        const auto view = StoreView::open(path).value();
        const BootRecord boot = view->boot().value();
        std::copy(std::begin(boot.journal_pages), std::end(boot.journal_pages), newest.begin());
        for (std::uint32_t i = 0; i < kMaxServiceUnits; ++i) EXPECT_EQ(newest[i] != 0, i < 4) << i;
        EXPECT_FALSE(view->journal_loss().has_value());
    }
    const Superblock s = StoreView::open(path).value()->superblock();
    const auto is_end = [&](PageNumber page, const PageOob& oob) {
        return oob.kind == PageKind::kSystem && oob.sequence == newest[2] && s.service_unit_of(page) == 2;
    };
    ASSERT_EQ(lose_records(path, is_end), 1u);
    const auto refused = Drive::open(options(path, kind), *reactor);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find(fmt::format("service unit 2 had reached page {}", newest[2])),
              std::string::npos)
        << refused.error().message;
}

}  // namespace
}  // namespace gnstor::ssd
