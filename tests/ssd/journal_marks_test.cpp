// A store that has lost the records of its newest pages is refused, and never mounted as the empty or the
// older drive that the rest of it describes: after a clean close and after a kill, on any backbone.
#include "ssd/flash/journal_marks.hpp"
#include "deengine/log/journal.hpp"
#include "deengine/map/order.hpp"
#include "drive_rig.hpp"
#include "loop_device.hpp"
#include "ssd/drive/backbone.hpp"
#include "ssd/flash/record_copies.hpp"
#include "ssd/tools/store_check.hpp"
#include "ssd/tools/store_mount.hpp"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <fstream>
#include <functional>
#include <string_view>

namespace gnstor::ssd::journal_marks_test {

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
        ASSERT_EQ(looked->accepted_losses.size(), 1u);
        EXPECT_NE(looked->accepted_losses.front().find("records of pages are missing"), std::string::npos);
    }
    EXPECT_FALSE(Drive::open(options(path, kind), *reactor).ok()) << "a check must not accept the loss";

    // Whoever accepts the loss has a drive again, also for the next openings.
    const auto accepted = recover_store(path, true);
    ASSERT_TRUE(accepted.ok()) << accepted.error().message;
    ASSERT_EQ(accepted->accepted_losses.size(), 1u) << "the accepted loss must be reported once";
    EXPECT_NE(accepted->accepted_losses.front().find("records of pages are missing"), std::string::npos);
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
    const auto is_its_end = [&](PageNumber page, const PageOob& oob) {
        return oob.kind == PageKind::kSystem && oob.sequence == newest[2] && s.service_unit_of(page) == 2;
    };
    ASSERT_EQ(lose_records(path, is_its_end), 1u);
    const auto refused = Drive::open(options(path, kind), *reactor);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find(fmt::format("service unit 2 had reached page {}", newest[2])),
              std::string::npos)
        << refused.error().message;
}

/// Of all bytes of the store. No CRC: of records that end in their own it sees no change.
std::size_t hash_of(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::vector<char> chunk(1u << 20);
    std::size_t hash = 0;
    while (file.read(chunk.data(), static_cast<std::streamsize>(chunk.size())) || file.gcount() > 0)
        hash = hash * 31 +
               std::hash<std::string_view>{}({chunk.data(), static_cast<std::size_t>(file.gcount())});
    return hash;
}

/// As if the host had been started anew since the store was used.
void change_host_boot(const std::filesystem::path& path) {
    const FileDescriptor fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    BootRecord boot = read_boot_record(fd.get(), path).value();
    boot.host_boot_id[3] ^= 1;
    ASSERT_TRUE(write_boot_record(fd.get(), boot, seed_of(read_superblock(fd.get(), path).value())));
}

bool is_end(PageNumber, const PageOob& oob) {
    return oob.kind == PageKind::kSystem &&
           oob.epoch == static_cast<std::uint32_t>(deengine::JournalPage::kCheckpointEnd);
}

/// A closed store in mode process is refused, for the loss of its newest records or by the firmware, and is
/// byte for byte the same afterwards: a host that is started anew still finds it closed cleanly.
void refuse_and_accept(const std::filesystem::path& path, const Kind& kind, bool by_the_firmware) {
    ASSERT_NO_FATAL_FAILURE(make(path, kind));
    const auto reactor = Reactor::start("test-drive").value();
    if (by_the_firmware) {
        // Until the journal does not reach back to its beginning any more. Then the contents of all of it are
        // damaged; the records still say how far it had come.
        for (int i = 0; i < 16; ++i) ASSERT_TRUE(Drive::open(options(path, kind), *reactor).ok());
        std::vector<std::uint64_t> places;
        {
            const auto view = StoreView::open(path).value();
            for (std::uint32_t page = 0; page < view->superblock().geometry().pages(); ++page) {
                const PageOob oob = view->record(page).counts;
                if (oob.kind == PageKind::kSystem) places.push_back(view->page_offset(page) + 100);
            }
        }
        std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
        for (const std::uint64_t at : places) file.seekp(static_cast<std::streamoff>(at)).put('\x5A');
    } else {
        std::uint64_t newest = 0;
        (void)lose_records(path, [&](PageNumber page, const PageOob& oob) {
            if (is_end(page, oob)) newest = std::max(newest, oob.sequence);
            return false;
        });
        ASSERT_EQ(lose_records(path,
                               [&](PageNumber page, const PageOob& oob) {
                                   return is_end(page, oob) && oob.sequence == newest;
                               }),
                  1u);
    }
    const std::size_t before = hash_of(path);
    for (int i = 0; i < 2; ++i) {
        const auto refused = Drive::open(options(path, kind), *reactor);
        ASSERT_FALSE(refused.ok());
        EXPECT_EQ(refused.error().code, Errc::kCorrupt) << refused.error().message;
        EXPECT_EQ(recover_store(path, false).ok(), false);
        EXPECT_EQ(hash_of(path), before) << "refused by the " << (by_the_firmware ? "firmware" : "store");
    }
    change_host_boot(path);
    EXPECT_FALSE(Drive::open(options(path, kind), *reactor).ok())
        << "the store must not be opened as an empty one";
    if (by_the_firmware) return;
    const auto accepted = recover_store(path, true);
    ASSERT_TRUE(accepted.ok()) << accepted.error().message;
    EXPECT_EQ(accepted->mapped_blocks, kBlocks) << "all its blocks must be mapped";
}

TEST(RefusedStore, AStoreFileIsNotChanged) {
    for (const BackboneKind backbone : {BackboneKind::kMapped, BackboneKind::kDirect})
        for (const bool by_the_firmware : {false, true}) {
            const Scratch scratch;
            refuse_and_accept(scratch / "s", {"", backbone, 1, Durability::kProcess, false}, by_the_firmware);
        }
}

/// Which would be emptied in place.
TEST(RefusedStore, AStoreDeviceIsNotChanged) {
    for (const bool by_the_firmware : {false, true}) {
        const Scratch scratch(Scratch::On::kDisk);
        const LoopDevice device(scratch / "image", 64ull << 20);
        if (device.path().empty()) GTEST_SKIP() << "this machine has no free loop device";
        const Kind kind{"", BackboneKind::kDirect, 1, Durability::kProcess, false};
        NewStore what = new_store_for(options(device.path(), kind)).value();
        what.replace = true;
        ASSERT_TRUE(StoreFile::create(device.path(), what).ok());
        refuse_and_accept(device.path(), kind, by_the_firmware);
    }
}

/// The last unit whose first page has a record for which `is_it` answers true.
template <class Predicate>
std::uint32_t last_unit(deengine::Flash& flash, Predicate is_it) {
    const deengine::FlashGeometry g = flash.geometry();
    std::uint32_t unit = g.units;
    PageOob oob{};
    do {
        oob = {};
        (void)flash.read_oob(--unit * g.pages_per_unit, oob);
    } while (!is_it(oob));
    return unit;
}

/// As a close without room for its checkpoint leaves it: a part behind the last lasting page of the journal.
void add_part(const DriveOptions& o, std::uint64_t number) {
    const auto store = open_backbone(o, BootMode::kPower).value();
    const FlashParts parts = store->parts(1).value();
    const deengine::FlashGeometry g = parts[0]->geometry();
    const std::uint32_t unit =
        last_unit(*parts[0], [](const PageOob& record) { return record.kind == PageKind::kErased; });
    PageOob oob{};
    oob.kind = PageKind::kSystem;
    oob.version = deengine::kOobVersion;
    oob.sequence = number;
    oob.vba = static_cast<std::uint32_t>(number);
    oob.epoch = static_cast<std::uint32_t>(deengine::JournalPage::kCheckpointUnits);
    oob.unit_serial = 1u << 20;
    const std::vector<std::byte> data(nvme::kBlockBytes);
    ASSERT_EQ(parts[0]->program(unit * g.pages_per_unit, data.data(), oob), deengine::FlashStatus::kOk);
    ASSERT_EQ(parts[0]->sync(deengine::SyncLevel::kPower), deengine::FlashStatus::kOk);
    ASSERT_TRUE(store->end_use());
}

/// A store that was closed like that. `end`: the number of the last lasting page.
void make_with_part(const std::filesystem::path& path, const Kind& kind, std::uint64_t& end) {
    ASSERT_NO_FATAL_FAILURE(make(path, kind));
    end = StoreView::open(path).value()->boot().value().journal_pages[0];
    ASSERT_NE(end, 0u);
    ASSERT_NO_FATAL_FAILURE(add_part(options(path, kind), end + 1));
}

/// A drive without room for the checkpoint of its close leaves parts of it, and the store is closed all the
/// same. The next mount gives their unit up, and may be killed when it has erased it.
TEST(JournalMarks, PartsOfAnAbandonedCheckpointMayBeErasedBeforeANewerOneExists) {
    for (const BackboneKind backbone : {BackboneKind::kMapped, BackboneKind::kDirect}) {
        const Kind kind{"", backbone, 1, Durability::kPower, false};
        const Scratch scratch;
        const auto path = scratch / "s";
        std::uint64_t end = 0;
        ASSERT_NO_FATAL_FAILURE(make_with_part(path, kind, end));
        const auto is_part = [&](PageNumber, const PageOob& oob) { return oob.sequence == end + 1; };
        ASSERT_EQ(lose_records(path, is_part), 1u);
        const auto reactor = Reactor::start("test-drive").value();
        const auto opened = Drive::open(options(path, kind), *reactor);
        EXPECT_TRUE(opened.ok()) << opened.error().message;
    }
}

/// As a boot record of a program that told the newest page of the journal, of whatever type it was.
void tell_journal_page(const std::filesystem::path& path, std::uint64_t number) {
    const FileDescriptor fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    BootRecord boot = read_boot_record(fd.get(), path).value();
    boot.journal_pages[0] = number;
    ASSERT_TRUE(write_boot_record(fd.get(), boot, seed_of(read_superblock(fd.get(), path).value())));
}

TEST(JournalMarks, AStoreWhoseBootRecordNamesACheckpointPartIsOpenedWhileThePartExists) {
    for (const BackboneKind backbone : {BackboneKind::kMapped, BackboneKind::kDirect}) {
        const Kind kind{"", backbone, 1, Durability::kPower, false};
        const Scratch scratch;
        const auto path = scratch / "s";
        std::uint64_t end = 0;
        ASSERT_NO_FATAL_FAILURE(make_with_part(path, kind, end));
        ASSERT_NO_FATAL_FAILURE(tell_journal_page(path, end + 1));
        EXPECT_FALSE(StoreView::open(path).value()->journal_loss().has_value());
        const auto is_part = [&](PageNumber, const PageOob& oob) { return oob.sequence == end + 1; };
        {
            // A mount that is killed behind its first change, which gives the part up.
            const auto store = open_backbone(options(path, kind), BootMode::kPower).value();
            const auto parts = store->parts(1);
            ASSERT_TRUE(parts.ok()) << parts.error().message;
            const std::uint32_t unit =
                last_unit(*parts.value()[0], [&](const PageOob& record) { return is_part(0, record); });
            ASSERT_EQ(parts.value()[0]->erase(unit), deengine::FlashStatus::kOk);
        }
        ASSERT_EQ(lose_records(path, is_part), 0u);
        const auto reactor = Reactor::start("test-drive").value();
        const auto opened = Drive::open(options(path, kind), *reactor);
        ASSERT_TRUE(opened.ok()) << opened.error().message;
    }
}

/// No page behind the one of which the boot record tells makes up for its loss.
TEST(JournalMarks, ACheckpointPartDoesNotReplaceTheLostJournalEndBeforeIt) {
    const Kind kind{"", BackboneKind::kMapped, 1, Durability::kPower, false};
    const Scratch scratch;
    const auto path = scratch / "s";
    std::uint64_t end = 0;
    ASSERT_NO_FATAL_FAILURE(make_with_part(path, kind, end));
    ASSERT_EQ(
        lose_records(path, [&](PageNumber page,
                               const PageOob& oob) { return is_end(page, oob) && oob.sequence == end; }),
        1u);
    const auto reactor = Reactor::start("test-drive").value();
    EXPECT_FALSE(Drive::open(options(path, kind), *reactor).ok());
}

}  // namespace gnstor::ssd::journal_marks_test
