// What a store says is on the medium is there as far as the kernel's answers go. fdatasync is replaced here:
// it counts, and fails on demand.
#include "drive_rig.hpp"
#include "ssd/file_store.hpp"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace {
std::atomic<std::uint64_t> g_syncs{0};
std::atomic<bool> g_fail{false};
std::atomic<bool> g_disk_full{false};
}  // namespace

extern "C" int fdatasync(int fd) {
    ++g_syncs;
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

TEST(Sync, AStoreIsSynchronizedAfterItsOpeningBecauseItsLastUserMayHaveBeenKilled) {
    Scratch scratch;
    const NewStore what{.geometry = {4, 16}, .capacity_bytes = 4096 * 48, .serial = "T"};
    { (void)FileStore::create(scratch / "s", what).value(); }
    auto store = FileStore::open(scratch / "s").value();
    const std::uint64_t before = g_syncs;
    EXPECT_EQ(store->sync(), deengine::FlashStatus::kOk);
    EXPECT_EQ(g_syncs, before + 1);
    EXPECT_EQ(store->sync(), deengine::FlashStatus::kOk);
    EXPECT_EQ(g_syncs, before + 1) << "nothing new";
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
    EXPECT_EQ(rig.read(0, to), nvme::Status::kSuccess) << "reads go on";
    EXPECT_EQ(to, page);
    rig.remount();
    EXPECT_EQ(rig.write(2, page), nvme::Status::kSuccess);
    EXPECT_EQ(rig.read(0, to), nvme::Status::kSuccess);
    EXPECT_EQ(to, page);
}

TEST(Sync, AUnitThatWasBegunBeforeTheOpeningIsGivenItsRoomAgainBeforeItIsStoredTo) {
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
    EXPECT_EQ(rig.drive->counters().free_pages, pages) << "no unit was given up";
    EXPECT_EQ(rig.read(1, to), nvme::Status::kSuccess);
    EXPECT_EQ(to, page);
}

}  // namespace
}  // namespace gnstor::ssd
