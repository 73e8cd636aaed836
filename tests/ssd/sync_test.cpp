// What a store says is on the medium is there as far as the kernel's answers go. fdatasync is replaced here:
// it counts, and fails on demand.
#include "drive_rig.hpp"
#include "ssd/flash/file/file_store.hpp"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>

namespace {
std::atomic<std::uint64_t> g_syncs{0};
std::atomic<bool> g_fail{false};
std::atomic<bool> g_disk_full{false};
std::atomic<bool> g_hold{false};  // a sync does not end before this falls

/// Until the gate opens, at most 60 s.
void pass_gate() {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (g_hold.load() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
}
}  // namespace

extern "C" int fdatasync(int fd) {
    ++g_syncs;
    pass_gate();
    if (g_fail.load()) {
        errno = EIO;
        return -1;
    }
    return static_cast<int>(::syscall(SYS_fdatasync, fd));
}

extern "C" int fallocate(int fd, int mode, off_t offset, off_t bytes) {
    if (g_disk_full.load() && (mode & FALLOC_FL_PUNCH_HOLE) == 0) {
        errno = ENOSPC;
        return -1;
    }
    return static_cast<int>(::syscall(SYS_fallocate, fd, mode, offset, bytes));
}

namespace gnstor::ssd {
namespace {

using deengine::FlashStatus;
using deengine::SyncLevel;
using deengine::SyncState;
using testing::DriveRig;
using testing::page_of;
using testing::Scratch;

DriveOptions in_file(const Scratch& scratch, Durability durability) {
    DriveOptions o;
    o.capacity_bytes = 4u << 20;
    o.pages_per_unit = 64;
    o.file = scratch / "drive";
    o.durability = durability;
    return o;
}

TEST(Sync, AStoreIsSyncedAfterItsOpeningBecauseItsLastUserMayHaveBeenKilled) {
    Scratch scratch;
    const NewStore what{.geometry = {4, 16}, .capacity_bytes = 4096 * 48, .serial = "T"};
    { (void)FileStore::create(scratch / "s", what).value(); }
    auto store = FileStore::open(scratch / "s").value();
    const std::uint64_t before = g_syncs;
    EXPECT_EQ(store->sync(), deengine::FlashStatus::kOk);
    EXPECT_EQ(g_syncs, before + 1);
    EXPECT_EQ(store->sync(), deengine::FlashStatus::kOk);
    EXPECT_EQ(g_syncs, before + 1) << "a sync without new data must not reach the disk";
}

TEST(Sync, AfterOneFailureNothingIsCalledStableUntilTheStoreIsOpenedAgain) {
    Scratch scratch;
    DriveRig rig(in_file(scratch, Durability::kPower));
    rig.grant();
    rig.add_volume();
    const auto page = page_of(1);
    ASSERT_EQ(rig.write(0, page), nvme::Status::kSuccess);
    g_fail = true;
    EXPECT_EQ(rig.write(1, page), nvme::Status::kWriteFault);
    // The kernel tells of lost pages once; the next fdatasync succeeds and has written none of them.
    g_fail = false;
    EXPECT_EQ(rig.write(2, page), nvme::Status::kWriteFault);
    const nvme::VolumeRecord other = testing::record_of(9, testing::kWriter, 64);
    EXPECT_EQ(rig.vendor(nvme::AdminOpcode::kVolumeAdd, &other, sizeof other), nvme::Status::kInternalError);
    testing::Page to;
    EXPECT_EQ(rig.read(0, to), nvme::Status::kSuccess) << "reads must still succeed";
    EXPECT_EQ(to, page);
    rig.remount();
    EXPECT_EQ(rig.write(2, page), nvme::Status::kSuccess);
    EXPECT_EQ(rig.read(0, to), nvme::Status::kSuccess);
    EXPECT_EQ(to, page);
}

TEST(Sync, DiskSpaceOfAUnitStartedBeforeTheOpeningIsReservedAgainBeforeItIsWritten) {
    Scratch scratch;
    DriveRig rig(in_file(scratch, Durability::kPower));
    rig.grant();
    rig.add_volume();
    const auto page = page_of(1);
    ASSERT_EQ(rig.write(0, page), nvme::Status::kSuccess);
    rig.remount();
    // A copy of a store is sparse where nothing was programmed; storing there on a full disk is a SIGBUS.
    g_disk_full = true;
    EXPECT_EQ(rig.write(1, page), nvme::Status::kCapacityExceeded);
    testing::Page to;
    EXPECT_EQ(rig.read(0, to), nvme::Status::kSuccess);
    EXPECT_EQ(to, page);
    g_disk_full = false;
    EXPECT_EQ(rig.write(1, page), nvme::Status::kSuccess);
    const std::uint64_t pages = rig.drive->counters().free_pages;
    rig.remount();
    EXPECT_EQ(rig.drive->counters().free_pages, pages) << "no unit may be retired";
    EXPECT_EQ(rig.read(1, to), nvme::Status::kSuccess);
    EXPECT_EQ(to, page);
}

deengine::SyncState ended(deengine::Flash& flash) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    deengine::SyncState state = deengine::SyncState::kBusy;
    while (state == deengine::SyncState::kBusy && std::chrono::steady_clock::now() < deadline) {
        state = flash.sync_poll();
        std::this_thread::yield();
    }
    return state;
}

FlashStatus program(deengine::Flash& flash, std::uint32_t page) {
    deengine::PageOob oob = testing::oob_of(1, page, page + 1);
    return flash.program(page, page_of(page).data(), oob);
}

TEST(Sync, ProgramsAndReadsContinueDuringASync) {
    Scratch scratch;
    auto store =
        FileStore::create(scratch / "s", {.geometry = {4, 16}, .capacity_bytes = 4096 * 48, .serial = "T"})
            .value();
    ASSERT_EQ(program(*store, 0), FlashStatus::kOk);
    g_hold = true;
    ASSERT_EQ(store->sync_begin(SyncLevel::kPower), FlashStatus::kOk);
    EXPECT_EQ(store->sync_begin(SyncLevel::kPower), FlashStatus::kRefused) << "one at a time";
    for (std::uint32_t p = 1; p < 10; ++p) {
        EXPECT_EQ(store->sync_poll(), SyncState::kBusy);
        ASSERT_EQ(program(*store, p), FlashStatus::kOk);
        testing::Page to;
        std::uint32_t crcs[8];
        ASSERT_EQ(store->read(p, 0, 8, to.data(), crcs), FlashStatus::kOk);
    }
    g_hold = false;
    EXPECT_EQ(ended(*store), SyncState::kDone);
    EXPECT_EQ(store->sync_poll(), SyncState::kIdle);
    const std::uint64_t before = g_syncs;
    EXPECT_EQ(store->sync(), FlashStatus::kOk);
    EXPECT_EQ(g_syncs, before + 1) << "pages written meanwhile must wait for the next sync";
}

TEST(Sync, OneSyncServesEveryPartThatWaitsForTheNext) {
    Scratch scratch;
    auto store =
        FileStore::create(scratch / "s", {.geometry = {8, 16}, .capacity_bytes = 4096 * 48, .serial = "T"})
            .value();
    std::atomic<std::uint32_t> told{0};
    store->on_sync_end([&] { ++told; });
    auto parts = store->parts(4).value();
    for (std::uint32_t i = 0; i < 4; ++i) ASSERT_EQ(program(*parts[i], i * 32), FlashStatus::kOk);
    const std::uint64_t before = g_syncs;
    g_hold = true;
    ASSERT_EQ(parts[0]->sync_begin(SyncLevel::kPower), FlashStatus::kOk);
    while (g_syncs == before) std::this_thread::yield();
    for (std::uint32_t i = 1; i < 4; ++i) {
        ASSERT_EQ(parts[i]->sync_begin(SyncLevel::kPower), FlashStatus::kOk);
        EXPECT_EQ(parts[i]->sync_poll(), SyncState::kBusy);
    }
    g_hold = false;
    for (auto& part : parts) EXPECT_EQ(ended(*part), SyncState::kDone);
    EXPECT_EQ(g_syncs, before + 2) << "the first alone, the others together";
    parts.clear();
    store.reset();
    EXPECT_EQ(told, 2u) << "every polling part must be woken";
}

TEST(Sync, AFailedSyncOfOnePartFailsEveryPartPermanently) {
    Scratch scratch;
    auto store =
        FileStore::create(scratch / "s", {.geometry = {8, 16}, .capacity_bytes = 4096 * 48, .serial = "T"})
            .value();
    auto parts = store->parts(2).value();
    g_fail = true;
    ASSERT_EQ(parts[0]->sync_begin(SyncLevel::kPower), FlashStatus::kOk);
    EXPECT_EQ(ended(*parts[0]), SyncState::kFailed);
    g_fail = false;
    EXPECT_NE(parts[1]->sync(), FlashStatus::kOk) << "its pages may be among those that were lost";
    EXPECT_NE(parts[1]->sync_begin(SyncLevel::kKill), FlashStatus::kOk);
    EXPECT_FALSE(store->store({}));
    EXPECT_FALSE(store->end_use());
}

}  // namespace
}  // namespace gnstor::ssd
