// check finds what a reader would notice, says of whom it is, and passes what is whole; recover on a view
// changes nothing.
#include "ssd/tools/store_check.hpp"

#include <gnstor/base/crc32c.hpp>

#include "shard_store.hpp"
#include "ssd/flash/file/view_store.hpp"
#include "ssd/flash/record_copies.hpp"
#include "ssd/tools/store_mount.hpp"
#include "ssd/tools/store_tool.hpp"
#include "support/file_bytes.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <fstream>
#include <tuple>

namespace gnstor::ssd {
namespace {

namespace fs = std::filesystem;
using testing::kVolumeBlocks;
using testing::kVolumes;
using testing::Scratch;
using testing::ShardStore;

/// A store with some overwritten and some trimmed blocks; `closed`, or as a kill leaves it.
void make(const fs::path& path, bool closed, std::uint32_t service_units = 1) {
    auto s = ShardStore::open(path, service_units).value();
    SplitMix64 random(7);
    for (const nvme::VolumeId v : kVolumes)
        for (std::uint32_t b = 0; b < kVolumeBlocks; b += 4)
            ASSERT_EQ(s->write(v, b, 4), nvme::Status::kSuccess);
    for (int i = 0; i < 400; ++i) {
        const nvme::VolumeId v = kVolumes[random.below(2)];
        const auto b = static_cast<std::uint32_t>(random.below(kVolumeBlocks));
        ASSERT_EQ(i % 9 == 0 ? s->trim(v, b) : s->write(v, b), nvme::Status::kSuccess);
    }
    if (closed) s->close();
}

void flip(const fs::path& path, std::uint64_t at) {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekg(static_cast<std::streamoff>(at));
    const char was = static_cast<char>(file.get());
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(~was));
}

StoreCheck check(const fs::path& path) {
    const auto view = StoreView::open(path).value();
    return check_store(*view, {});
}

std::string all(const StoreCheck& check) {
    std::string text;
    for (const StoreFinding& f : check.findings)
        text +=
            fmt::format("{} {} {}\n", f.severity == Severity::kDamage ? "damage" : "note", f.offset, f.what);
    return text;
}

class AnyStore : public ::testing::TestWithParam<std::pair<bool, std::uint32_t>> {};
INSTANTIATE_TEST_SUITE_P(Stores, AnyStore,
                         ::testing::Values(std::pair{true, 1u}, std::pair{false, 1u}, std::pair{true, 2u},
                                           std::pair{false, 2u}));

TEST_P(AnyStore, IsIntactAndCheckingItChangesNothing) {
    const Scratch scratch;
    const fs::path path = scratch / "s";
    make(path, GetParam().first, GetParam().second);
    const std::string before = test::file_bytes(path);
    const StoreCheck k = check(path);
    EXPECT_EQ(k.damages, 0u) << all(k);
    EXPECT_TRUE(k.mounted);
    EXPECT_GT(k.blocks, 100u);
    EXPECT_GE(k.data_pages, k.blocks);
    EXPECT_GT(k.system_pages, 0u);
    EXPECT_EQ(test::file_bytes(path), before);
}

TEST_P(AnyStore, RecoversOnAViewAsOnTheStoreAndOnlyWriteModeChangesTheStore) {
    const Scratch scratch;
    const fs::path path = scratch / "s";
    make(path, GetParam().first, GetParam().second);
    const std::string before = test::file_bytes(path);
    Recovered seen;
    {
        const auto view = StoreView::open(path).value();
        const auto recovered = recover_view(*view, false);
        ASSERT_TRUE(recovered.ok()) << recovered.error().message;
        seen = *recovered;
        EXPECT_EQ(ShardStore::open(path).ok(), false) << "a view keeps drives away";
    }
    EXPECT_EQ(test::file_bytes(path), before);
    const auto written = recover_store(path, false);
    ASSERT_TRUE(written.ok()) << written.error().message;
    EXPECT_EQ(written->mapped_blocks, seen.mapped_blocks);
    EXPECT_EQ(written->report.pages_mapped, seen.report.pages_mapped);
    EXPECT_NE(test::file_bytes(path), before);
    const auto view = StoreView::open(path).value();
    EXPECT_EQ(view->boot()->state, BootState::kClean);
    const auto again = recover_view(*view, false);
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(again->mapped_blocks, seen.mapped_blocks);
    EXPECT_EQ(again->report.log_records, 0u) << "a cleanly closed store must have nothing to replay";
    EXPECT_EQ(again->report.pages_torn, 0u);
}

TEST(StoreCheck, ADamagedByteIsNamedWithItsBlockAndPlace) {
    const Scratch scratch;
    const fs::path path = scratch / "s";
    make(path, true);
    SplitMix64 random(testing::seed_or(5));
    for (int i = 0; i < 12; ++i) {
        nvme::VolumeId volume = 0;
        nvme::BlockAddress block = 0;
        std::uint64_t at = 0;
        {
            auto s = ShardStore::open(path).value();
            std::vector<std::pair<std::uint64_t, std::uint32_t>> mapped;
            s->shard(0).for_each_block([&](nvme::VolumeId v, nvme::BlockAddress b, deengine::PageNumber p) {
                mapped.emplace_back((std::uint64_t{v} << 32) | b, p);
            });
            const auto& [key, page] = mapped[random.below(mapped.size())];
            volume = static_cast<nvme::VolumeId>(key >> 32);
            block = static_cast<nvme::BlockAddress>(key);
            at = s->store().superblock().data_offset + std::uint64_t{page} * nvme::kBlockBytes +
                 random.below(4096);
            s->close();
        }
        flip(path, at);
        const StoreCheck k = check(path);
        EXPECT_EQ(k.damages, 1u) << all(k);
        const std::string want = fmt::format("reads of block {} of volume {} fail", block, volume);
        EXPECT_NE(all(k).find(want), std::string::npos) << want << "\n" << all(k);
        flip(path, at);
        EXPECT_EQ(check(path).damages, 0u);
    }
}

TEST(StoreCheck, EveryCopyOfSuperblockAndMetadataIsChecked) {
    const Scratch scratch;
    const fs::path path = scratch / "s";
    make(path, true);
    const auto view = StoreView::open(path).value();
    const Superblock s = view->superblock();
    const int newest = newest_slot(view->metadata_copies());
    struct Case {
        std::uint64_t at;
        std::uint64_t damages;
        const char* says;
    };
    const std::uint64_t slot = s.metadata_offset + static_cast<std::uint64_t>(newest) * s.metadata_bytes;
    const Case cases[] = {{kBootOffset + 20, 0, "copy 0 of the boot record"},
                          {kBootOffset + 2048 + 20, 0, "copy 1 of the boot record"},
                          {slot + 100, 1, "newest copy of the metadata"}};
    for (const Case& c : cases) {
        flip(path, c.at);
        const StoreCheck k = check(path);
        EXPECT_EQ(k.damages > 0, c.damages > 0) << all(k);
        EXPECT_NE(all(k).find(c.says), std::string::npos) << c.says << "\n" << all(k);
        flip(path, c.at);
    }
}

/// What an erase that a power cut undid leaves under the programs after it: a page of an earlier opening.
TEST(StoreCheck, PagesOfAnEarlierOpeningOfAUnitAreNoDamageAndCountForNothing) {
    const Scratch scratch;
    const fs::path path = scratch / "s";
    make(path, true);
    const StoreCheck before = check(path);
    std::uint64_t at = 0, oob_offset = 0;
    DriveSeed drive{};
    deengine::PageOob oob{};
    {
        // A record behind the last one of a unit that is in use.
        const auto view = StoreView::open(path).value();
        const Superblock& s = view->superblock();
        oob_offset = s.oob_offset;
        drive = view->drive_seed();
        for (std::uint32_t page = 1; page < s.geometry().pages() && at == 0; ++page) {
            deengine::PageOob last{}, here{};
            std::memcpy(&last, view->raw(view->record_offset(page - 1), sizeof last).data(), sizeof last);
            std::memcpy(&here, view->raw(view->record_offset(page), sizeof here).data(), sizeof here);
            if (page % s.pages_per_unit == 0 || last.unit_serial < 2 || here.crc != 0) continue;
            at = view->record_offset(page);
            oob = last;
        }
    }
    ASSERT_NE(at, 0u);
    oob.unit_serial -= 1;
    oob.kind =
        oob.kind == deengine::PageKind::kSystem ? deengine::PageKind::kData : deengine::PageKind::kSystem;
    oob.crc = record_crc(oob, static_cast<deengine::PageNumber>((at - oob_offset) / sizeof oob), drive);
    {
        std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
        file.seekp(static_cast<std::streamoff>(at));
        file.write(reinterpret_cast<const char*>(&oob), sizeof oob);
    }
    const StoreCheck k = check(path);
    EXPECT_EQ(k.damages, 0u) << all(k);
    EXPECT_NE(all(k).find("1 pages of an earlier opening"), std::string::npos) << all(k);
    EXPECT_EQ(std::tuple(k.data_pages, k.system_pages, k.blocks),
              std::tuple(before.data_pages, before.system_pages, before.blocks));
    EXPECT_EQ(k.records, before.records + 1);
}

void set_state(const fs::path& path, BootState state, BootMode mode) {
    const auto file = StoreFile::open(path).value();
    BootRecord r = file->boot();
    r.state = state;
    r.mode = mode;
    ASSERT_TRUE(write_boot_record(file->fd(), r, seed_of(file->superblock())));
}

TEST(StoreCheck, AStoreBeingEmptiedHasNothingToCheckOrRecoverButIsIdentified) {
    const Scratch scratch;
    const fs::path path = scratch / "s";
    make(path, true);
    set_state(path, BootState::kEmptying, BootMode::kProcess);
    const StoreCheck k = check(path);
    EXPECT_EQ(k.damages, 0u) << all(k);
    EXPECT_NE(all(k).find("being emptied"), std::string::npos) << all(k);
    const auto view = StoreView::open(path).value();
    const auto recovered = recover_view(*view, false);
    ASSERT_FALSE(recovered.ok());
    EXPECT_EQ(recovered.error().code, Errc::kState);
    const auto facts = inspect_store(path);
    ASSERT_TRUE(facts.ok()) << "what looks may look together";
    EXPECT_EQ(facts->state, BootState::kEmptying);
}

TEST(StoreCheck, AStoreThatMayLackAcknowledgedWritesIsReportedWithThatFirst) {
    const Scratch scratch;
    const fs::path path = scratch / "s";
    make(path, false);
    set_state(path, BootState::kOpen, BootMode::kProcess);  // under no boot that this host is in
    EXPECT_GT(check(path).damages, 0u);
    {
        const auto view = StoreView::open(path).value();
        const auto recovered = recover_view(*view, false);
        ASSERT_TRUE(recovered.ok()) << recovered.error().message;
        ASSERT_FALSE(recovered->report.findings.empty());
        EXPECT_NE(recovered->report.findings[0].find("may be missing"), std::string::npos);
    }
    EXPECT_EQ(recover_store(path, false).error().code, Errc::kState);
}

/// A store with metadata in both slots. Where the blobs lie, the newest first: flip() makes one rotten.
std::array<std::uint64_t, 2> make_with_two_blobs(const fs::path& path) {
    make(path, true);
    {
        const auto file = StoreFile::open(path).value();
        EXPECT_TRUE(file->store(file->load()));
    }
    const auto view = StoreView::open(path).value();
    const Superblock& s = view->superblock();
    const std::uint64_t first = s.metadata_offset + 100, second = first + s.metadata_bytes;
    if (newest_slot(view->metadata_copies()) == 0) return {first, second};
    return {second, first};
}

TEST(StoreCheck, AnAcceptedLossOfMetadataIsReported) {
    const Scratch scratch;
    const fs::path path = scratch / "s";
    const auto blobs = make_with_two_blobs(path);
    ASSERT_TRUE(recover_view(*StoreView::open(path).value(), true)->accepted_losses.empty());
    flip(path, blobs[0]);
    const auto reports = [](const Result<Recovered>& recovered) {
        ASSERT_TRUE(recovered.ok()) << recovered.error().message;
        ASSERT_EQ(recovered->accepted_losses.size(), 1u);
        EXPECT_NE(recovered->accepted_losses.front().find("the older copy is used"), std::string::npos);
    };
    reports(recover_view(*StoreView::open(path).value(), true));
    reports(recover_store(path, true));
    const auto again = recover_store(path, true);
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_TRUE(again->accepted_losses.empty()) << "the loss must be accepted only once";
}

TEST(StoreCheck, AWritableFileSystemIsRequestedOnlyIfARecoveryIsPossible) {
    const Scratch scratch;
    const fs::path path = scratch / "s";
    const auto blobs = make_with_two_blobs(path);
    flip(path, blobs[0]);
    const auto refused = ViewStore::open(path, host_boot_id());
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("a recovery needs it writable"), std::string::npos);
    flip(path, blobs[1]);
    const auto hopeless = ViewStore::open(path, host_boot_id());
    ASSERT_FALSE(hopeless.ok());
    EXPECT_NE(hopeless.error().message.find("no recovery is possible"), std::string::npos);
    EXPECT_EQ(hopeless.error().message.find("writable"), std::string::npos) << hopeless.error().message;
}

TEST(StoreCheck, AnErrorAboutMissingAcknowledgedWritesNamesNoCommandThatRefusesTheStore) {
    const Scratch scratch;
    const fs::path path = scratch / "s";
    const auto blobs = make_with_two_blobs(path);
    set_state(path, BootState::kOpen, BootMode::kProcess);  // under no boot that this host is in
    flip(path, blobs[0]);
    const auto recovered = recover_view(*StoreView::open(path).value(), false);
    ASSERT_FALSE(recovered.ok());
    EXPECT_EQ(recovered.error().message, recover_store(path, true).error().message);
    const std::string found = all(check(path));
    EXPECT_EQ(found.find("--accept-loss"), std::string::npos) << found;
    EXPECT_NE(found.find("start its drive"), std::string::npos) << found;
}

}  // namespace
}  // namespace gnstor::ssd
