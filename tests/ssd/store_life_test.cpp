// Lives of a store: which incarnation a drive goes on as, whatever way its process and its host ended before.
// docs/array.md, rule 10.
#include "drive_rig.hpp"
#include "ssd/flash/file/file_store.hpp"
#include "ssd/flash/file/store_view.hpp"
#include "support/file_bytes.hpp"

#include <fcntl.h>

#include <cstring>
#include <fstream>

namespace gnstor::ssd::store_life_test {

using deengine::FlashStatus;
using testing::oob_of;
using testing::page_of;
using testing::Scratch;

const Uuid kThisBoot{{1, 2, 3}};
const Uuid kNextBoot{{1, 2, 4}};

NewStore small() {
    return {.geometry = {4, 16, 2, 1}, .capacity_bytes = 4096 * 48, .serial = "LIFE", .service_units = 2};
}
BootRequest request(BootMode mode, Uuid boot = kThisBoot) {
    return {.mode = mode, .host_boot = boot};
}

/// A store with one page and a blob, used in `mode` and left without an end.
StoreIdentity used(const std::filesystem::path& path, BootMode mode) {
    auto store = FileStore::create(path, small()).value();
    EXPECT_TRUE(store->file().begin_use(request(mode)).ok());
    deengine::PageOob oob = oob_of(1, 2, 3);
    EXPECT_EQ(store->program(0, page_of(9).data(), oob), FlashStatus::kOk);
    EXPECT_TRUE(store->store(std::vector<std::byte>(100, std::byte{7})));
    return store->identity();
}

bool has_contents(FileStore& store) {
    testing::Page to;
    std::uint32_t crcs[8];
    const bool page = store.read(0, 0, 8, to.data(), crcs) == FlashStatus::kOk && to == page_of(9);
    const bool blob = store.load() == std::vector<std::byte>(100, std::byte{7});
    EXPECT_EQ(page, blob) << "all or nothing";
    return page;
}

std::vector<std::filesystem::path> others(const std::filesystem::path& path) {
    std::vector<std::filesystem::path> found;
    for (const auto& entry : std::filesystem::directory_iterator(path.parent_path())) {
        if (entry.path() != path) found.push_back(entry.path());
    }
    return found;
}

TEST(StoreLife, AKillOfTheProcessKeepsContentsAndIncarnationInBothModes) {
    for (const BootMode mode : {BootMode::kProcess, BootMode::kPower}) {
        Scratch scratch;
        const auto before = used(scratch / "s", mode);
        auto store = FileStore::open_for_use(scratch / "s", request(mode)).value();
        EXPECT_EQ(store->identity().incarnation, before.incarnation);
        EXPECT_TRUE(has_contents(*store));
    }
}

TEST(StoreLife, InPowerModeAcknowledgedWritesSurviveAHostCrash) {
    Scratch scratch;
    const auto before = used(scratch / "s", BootMode::kPower);
    auto store = FileStore::open_for_use(scratch / "s", request(BootMode::kProcess, kNextBoot)).value();
    EXPECT_EQ(store->identity().incarnation, before.incarnation);
    EXPECT_TRUE(has_contents(*store));
}

TEST(StoreLife, AfterAHostCrashInProcessModeAnEmptyIncarnationStartsAndNothingIsErased) {
    Scratch scratch;
    const auto path = scratch / "s";
    const auto before = used(path, BootMode::kProcess);
    {
        auto store = FileStore::open_for_use(path, request(BootMode::kPower, kNextBoot)).value();
        const StoreIdentity after = store->identity();
        EXPECT_NE(after.incarnation, before.incarnation);
        EXPECT_EQ(after.drive_uuid, before.drive_uuid) << "the drive is the same";
        EXPECT_EQ(after.serial, "LIFE");
        EXPECT_EQ(after.service_units, 2u);
        EXPECT_FALSE(has_contents(*store));
        const auto aside = others(path);
        ASSERT_EQ(aside.size(), 1u);
        auto kept = FileStore::open(aside.front()).value();
        EXPECT_EQ(kept->identity().incarnation, before.incarnation);
        EXPECT_TRUE(has_contents(*kept));
    }
    auto store = FileStore::open_for_use(path, request(BootMode::kPower, kNextBoot)).value();
    EXPECT_NE(store->identity().incarnation, before.incarnation) << "the store must keep its new incarnation";
    EXPECT_EQ(others(path).size(), 1u);
}

TEST(StoreLife, ACleanCloseIsTrustedUnderAnyBootOfTheHost) {
    Scratch scratch;
    const auto path = scratch / "s";
    const auto before = used(path, BootMode::kProcess);
    {
        auto store = FileStore::open_for_use(path, request(BootMode::kProcess)).value();
        EXPECT_TRUE(store->end_use());
        EXPECT_FALSE(store->end_use()) << "once";
    }
    auto store = FileStore::open_for_use(path, request(BootMode::kProcess, kNextBoot)).value();
    EXPECT_EQ(store->identity().incarnation, before.incarnation);
    EXPECT_TRUE(has_contents(*store));
}

/// Opens the store by this backbone, and ends as by a kill, after the mount or before its end.
bool judged_as_only_killed(const std::filesystem::path& path, BackboneKind by, bool mounted = true) {
    BootRequest r = request(BootMode::kPower);
    r.backbone = by;
    const auto file = StoreFile::open_for_use(path, r).value();
    EXPECT_TRUE(file->begin_changes());
    EXPECT_TRUE(!mounted || file->note_recovered());
    return file->was_only_killed_before();
}

TEST(StoreLife, AKillIsJudgedByTheBackboneInUseAtTheKillNotByTheNextOne) {
    Scratch scratch;
    const auto path = scratch / "s";
    (void)StoreFile::create(path, small()).value();
    constexpr auto kMapped = BackboneKind::kMapped, kDirect = BackboneKind::kDirect;
    EXPECT_FALSE(judged_as_only_killed(path, kMapped)) << "never used";
    EXPECT_TRUE(judged_as_only_killed(path, kDirect)) << "mapped, what it programmed is in the page cache";
    EXPECT_FALSE(judged_as_only_killed(path, kMapped, false)) << "direct, writes may be missing";
    EXPECT_FALSE(judged_as_only_killed(path, BackboneKind::kAuto)) << "and that recovery did not end";
    EXPECT_TRUE(judged_as_only_killed(path, kMapped)) << "a file is mapped by default";
    {
        const auto file = StoreFile::open(path).value();
        BootRecord r = file->boot();
        r.backbone = BootBackbone::kNotTold;
        ASSERT_TRUE(write_boot_record(file->fd(), r, seed_of(file->superblock())));
    }
    EXPECT_FALSE(judged_as_only_killed(path, kMapped))
        << "a store of an older program does not record its backbone";
}

/// Both have the same geometry and generations, as drives of an array do.
TEST(StoreLife, TheBootRecordAndTheMetadataOfAnotherStoreAreDamage) {
    const Scratch scratch;
    const std::filesystem::path paths[] = {scratch / "a", scratch / "b"};
    for (const auto& path : paths) {
        const auto file = StoreFile::create(path, small()).value();
        const std::vector<std::byte> blob(100, std::byte{7});
        ASSERT_TRUE(file->store(blob) && file->store(blob));
    }
    const std::string good = test::file_bytes(paths[0]), foreign = test::file_bytes(paths[1]);
    Superblock s{};
    std::memcpy(&s, good.data(), sizeof s);
    const auto with = [&](std::uint64_t at, std::uint64_t bytes) {
        std::string spliced = good;
        spliced.replace(at, bytes, foreign, at, bytes);
        std::ofstream(paths[0], std::ios::binary)
            .write(spliced.data(), static_cast<std::streamsize>(spliced.size()));
    };
    with(kBootOffset, kStorePage);
    const auto boot = StoreFile::open(paths[0]);
    ASSERT_FALSE(boot.ok());
    EXPECT_NE(boot.error().message.find("boot record"), std::string::npos) << boot.error().message;
    with(s.metadata_offset, 2ull * s.metadata_bytes);
    EXPECT_FALSE(StoreView::open(paths[0]).value()->check_metadata(false).ok());
    with(s.metadata_offset, 0);
    EXPECT_TRUE(StoreView::open(paths[0]).value()->check_metadata(false).ok());
}

TEST(StoreLife, AStoreOpenedForUseAndLeftUnchangedKeepsItsState) {
    Scratch scratch;
    const auto path = scratch / "s";
    (void)used(path, BootMode::kPower);
    const std::string before = test::file_bytes(path);
    for (const BootMode mode : {BootMode::kProcess, BootMode::kPower}) {
        auto store = FileStore::open_for_use(path, request(mode, kNextBoot)).value();
        EXPECT_TRUE(store->parts(2).ok());
    }
    EXPECT_TRUE(test::file_bytes(path) == before);
}

/// Another service unit may refuse the store when one has written its checkpoint already.
TEST(StoreLife, AnInterruptedMountDoesNotMakeAStoreUntrusted) {
    Scratch scratch;
    const auto path = scratch / "s";
    const auto before = used(path, BootMode::kPower);
    {
        auto store = FileStore::open_for_use(path, request(BootMode::kProcess)).value();
        deengine::PageOob oob = oob_of(1, 2, 4);
        ASSERT_EQ(store->program(1, page_of(8).data(), oob), FlashStatus::kOk);
        const BootRecord mounting = read_boot_record(store->file().fd(), path).value();
        EXPECT_EQ(mounting.state, BootState::kOpen);
        EXPECT_TRUE(trusted(mounting, kNextBoot));
        EXPECT_FALSE(was_only_killed(mounting, kNextBoot));
    }
    {
        auto store = FileStore::open_for_use(path, request(BootMode::kProcess, kNextBoot)).value();
        EXPECT_EQ(store->identity().incarnation, before.incarnation);
        EXPECT_TRUE(has_contents(*store));
        ASSERT_TRUE(store->note_recovered());
        const BootRecord serving = read_boot_record(store->file().fd(), path).value();
        EXPECT_FALSE(trusted(serving, kThisBoot)) << "from here on writes are acknowledged in this mode";
        EXPECT_TRUE(trusted(serving, kNextBoot));
    }
}

TEST(StoreLife, AHostWithoutABootIdIsNeverTakenForTheSameBoot) {
    Scratch scratch;
    const auto path = scratch / "s";
    const auto before = used(path, BootMode::kProcess);
    auto store = FileStore::open_for_use(path, request(BootMode::kPower, Uuid{})).value();
    EXPECT_NE(store->identity().incarnation, before.incarnation);
    store.reset();
    const auto refused = FileStore::open_for_use(path, request(BootMode::kProcess, Uuid{}));
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Errc::kUnsupported);
    EXPECT_NE(refused.error().message.find("use 'power'"), std::string::npos);
}

void put_boot(const std::filesystem::path& path, std::size_t copy, const BootRecord& r) {
    std::fstream f(path, std::ios::in | std::ios::out | std::ios::binary);
    f.seekp(static_cast<std::streamoff>(kBootOffset + copy * sizeof r));
    f.write(reinterpret_cast<const char*>(&r), sizeof r);
}

TEST(StoreLife, AnInterruptedEmptyingOfAStoreIsCompleted) {
    Scratch scratch;
    const auto path = scratch / "s";
    const auto before = used(path, BootMode::kProcess);
    {
        auto store = FileStore::open(path).value();
        BootRecord r = store->file().boot();
        r.state = BootState::kEmptying;
        ASSERT_TRUE(write_boot_record(store->file().fd(), r, seed_of(store->file().superblock())));
    }
    const auto looked_at = FileStore::open(path);
    ASSERT_FALSE(looked_at.ok());
    EXPECT_EQ(looked_at.error().code, Errc::kState);
    auto store = FileStore::open_for_use(path, request(BootMode::kProcess)).value();
    EXPECT_NE(store->identity().incarnation, before.incarnation);
    EXPECT_EQ(store->identity().drive_uuid, before.drive_uuid);
    EXPECT_FALSE(has_contents(*store));
    EXPECT_TRUE(others(path).empty()) << "emptied in place";
    for (std::uint32_t page = 0; page < 64; ++page) {
        deengine::PageOob oob{};
        ASSERT_EQ(store->read_oob(page, oob), FlashStatus::kOk);
        EXPECT_EQ(oob.kind, deengine::PageKind::kErased);
    }
}

TEST(StoreLife, OneDamagedCopyOfTheBootRecordIsSurvivedAndTwoAreRefused) {
    Scratch scratch;
    const auto path = scratch / "s";
    const auto before = used(path, BootMode::kPower);
    const BootRecord rotten{};
    for (const std::size_t copy : {0u, 1u}) {
        put_boot(path, copy, rotten);
        auto store = FileStore::open_for_use(path, request(BootMode::kPower)).value();
        EXPECT_EQ(store->identity().incarnation, before.incarnation);
        EXPECT_TRUE(store->note_recovered()) << "writes both copies";
    }
    put_boot(path, 0, rotten);
    put_boot(path, 1, rotten);
    const auto refused = FileStore::open(path);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Errc::kCorrupt);
    EXPECT_NE(refused.error().message.find("which incarnation of the drive"), std::string::npos);
}

TEST(StoreLife, ADriveKeepsItsIdentityAcrossIncarnationsAndAMemoryDriveIsNewEachTime) {
    Scratch scratch;
    DriveOptions o{.capacity_bytes = 4u << 20, .file = scratch / "d", .pages_per_unit = 64, .serial = ""};
    o.durability = Durability::kProcess;
    auto reactor = Reactor::start("test-drive").value();
    auto first = Drive::open(o, *reactor).value();
    const auto incarnation = first->uuid();
    const auto drive = first->drive_uuid();
    const std::string serial = first->serial();
    EXPECT_NE(incarnation, drive);
    first.reset();
    {
        // As a host leaves it that lost its power: open, under another boot.
        auto file = StoreFile::open(o.file).value();
        ASSERT_TRUE(file->begin_use(request(BootMode::kProcess, kNextBoot)).ok());
    }
    const auto second = Drive::open(o, *reactor).value();
    EXPECT_NE(second->uuid(), incarnation);
    EXPECT_EQ(second->drive_uuid(), drive);
    EXPECT_EQ(second->serial(), serial);
    o.file.clear();
    const auto a = Drive::open(o, *reactor).value();
    const auto b = Drive::open(o, *reactor).value();
    EXPECT_NE(a->uuid(), b->uuid()) << "an empty start is another incarnation";
}

}  // namespace gnstor::ssd::store_life_test
