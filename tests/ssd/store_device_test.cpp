// A block device as a store: taken only when that is asked for, used directly, kept across openings, emptied
// in place when its contents cannot be trusted. Loop devices stand for it, where this machine lets us have
// them.
#include "backbones.hpp"
#include "drive_rig.hpp"
#include "loop_device.hpp"
#include "ssd/drive/backbone.hpp"

namespace gnstor::ssd {
namespace {

using deengine::FlashStatus;
using deengine::PageOob;
using testing::page_of;
using testing::program;
using testing::Scratch;

constexpr std::uint64_t kDeviceBytes = 64ull << 20;

class StoreDevice : public ::testing::Test {
  protected:
    void SetUp() override {
        if (device.path().empty()) GTEST_SKIP() << "this machine has no free loop device";
    }
    static NewStore what(bool replace) {
        return {
            .geometry = {8, 64, 2, 1}, .capacity_bytes = 4096 * 256, .serial = "DEVICE", .replace = replace};
    }
    Scratch scratch{Scratch::On::kDisk};
    testing::LoopDevice device{scratch / "image", kDeviceBytes};
};

TEST_F(StoreDevice, IsFormattedOnlyOnRequestAndOnlyIfItIsLargeEnough) {
    const auto unasked = StoreFile::create(device.path(), what(false));
    ASSERT_FALSE(unasked.ok());
    EXPECT_EQ(unasked.error().code, Errc::kExists);
    EXPECT_EQ(StoreFile::open(device.path()).error().code, Errc::kCorrupt)
        << "the device must not contain a store yet";
    NewStore large = what(true);
    large.geometry.units = 1024;
    EXPECT_EQ(StoreFile::create(device.path(), large).error().code, Errc::kNoSpace);
    ASSERT_TRUE(StoreFile::create(device.path(), what(true)).ok());
    EXPECT_TRUE(StoreFile::open(device.path()).ok());
    EXPECT_EQ(StoreFile::create(device.path(), what(false)).error().code, Errc::kExists);
}

TEST_F(StoreDevice, KeepsSyncedDataAndHasOneUserAtATime) {
    ASSERT_TRUE(StoreFile::create(device.path(), what(true)).ok());
    {
        auto store = DirectStore::over(StoreFile::open(device.path()).value()).value();
        EXPECT_NE(store->describe().find("device"), std::string::npos);
        const FlashParts parts = store->parts(1).value();
        for (std::uint32_t p = 0; p < 100; ++p) ASSERT_EQ(program(*parts[0], p, p), FlashStatus::kOk);
        ASSERT_EQ(parts[0]->sync(), FlashStatus::kOk);
        ASSERT_TRUE(store->metadata().store(std::vector<std::byte>(10'000, std::byte{4})));
        const auto second = StoreFile::open(device.path());
        ASSERT_FALSE(second.ok());
        EXPECT_EQ(second.error().code, Errc::kBusy) << second.error().message;
    }
    auto store = DirectStore::over(StoreFile::open(device.path()).value()).value();
    EXPECT_EQ(store->metadata().load(), std::vector<std::byte>(10'000, std::byte{4}));
    const FlashParts parts = store->parts(1).value();
    for (std::uint32_t p = 0; p < 100; ++p) {
        testing::Page to;
        std::uint32_t crcs[8];
        ASSERT_EQ(parts[0]->read(p, 0, 8, to.data(), crcs), FlashStatus::kOk);
        ASSERT_EQ(to, page_of(p));
    }
    EXPECT_EQ(program(*parts[0], 100, 100), FlashStatus::kOk) << "write pointers were found again";
}

TEST_F(StoreDevice, IsEmptiedInPlaceAfterAHostCrashInProcessMode) {
    ASSERT_TRUE(StoreFile::create(device.path(), what(true)).ok());
    StoreIdentity before;
    {
        auto file = StoreFile::open(device.path()).value();
        ASSERT_TRUE(file->begin_use({.mode = BootMode::kProcess}).ok());
        BootRecord other = file->boot();
        other.host_boot_id[3] ^= 1;
        ASSERT_TRUE(write_boot_record(file->fd(), other, seed_of(file->superblock())));
        auto store = DirectStore::over(std::move(file)).value();
        before = store->identity();
        const FlashParts parts = store->parts(1).value();
        ASSERT_EQ(program(*parts[0], 0, 1), FlashStatus::kOk);
        ASSERT_EQ(parts[0]->sync(), FlashStatus::kOk);
        ASSERT_TRUE(store->metadata().store(std::vector<std::byte>(10, std::byte{4})));
    }
    auto store = DirectStore::over(StoreFile::open_for_use(device.path(), {}).value()).value();
    EXPECT_NE(store->identity().incarnation, before.incarnation);
    EXPECT_EQ(store->identity().drive_uuid, before.drive_uuid);
    EXPECT_TRUE(store->metadata().load().empty());
    const FlashParts parts = store->parts(1).value();
    PageOob oob{};
    ASSERT_EQ(parts[0]->read_oob(0, oob), FlashStatus::kOk);
    EXPECT_EQ(oob.kind, deengine::PageKind::kErased);
}

TEST_F(StoreDevice, ADriveUsesTheDeviceDirectlyAndNeverFormatsItByItself) {
    DriveOptions o{.capacity_bytes = 8u << 20, .file = device.path(), .pages_per_unit = 64, .serial = "D"};
    auto reactor = Reactor::start("test-drive").value();
    const auto refused = Drive::open(o, *reactor);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Errc::kCorrupt) << "there must be no store on the device";
    NewStore store = new_store_for(o).value();
    store.replace = true;
    ASSERT_TRUE(StoreFile::create(o.file, store).ok());
    testing::DriveRig rig(o);
    rig.grant();
    rig.add_volume();
    for (std::uint32_t b = 0; b < 50; ++b) ASSERT_EQ(rig.write(b, page_of(b + 1)), nvme::Status::kSuccess);
    rig.remount();
    EXPECT_EQ(rig.drive->serial(), "D");
    testing::Page to;
    for (std::uint32_t b = 0; b < 50; ++b) {
        ASSERT_EQ(rig.read(b, to), nvme::Status::kSuccess);
        EXPECT_EQ(to, page_of(b + 1));
    }
}

}  // namespace
}  // namespace gnstor::ssd
