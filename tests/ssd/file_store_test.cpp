// The store file: found again as it was, refused with a clear sentence when it is not one, never open twice.
#include "ssd/flash/file/file_store.hpp"
#include "scratch.hpp"
#include "ssd/flash/file/store_view.hpp"
#include "ssd/tools/store_tool.hpp"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <unistd.h>

#include <fstream>

namespace gnstor::ssd {
namespace {

using deengine::FlashStatus;
using deengine::PageOob;
using testing::oob_of;
using testing::page_of;
using testing::Scratch;

NewStore small() {
    return {.geometry = {4, 16}, .capacity_bytes = 4096 * 48, .serial = "TEST-1"};
}

void poke(const std::filesystem::path& path, std::uint64_t at, const std::string& bytes) {
    std::fstream f(path, std::ios::in | std::ios::out | std::ios::binary);
    f.seekp(static_cast<std::streamoff>(at));
    f.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

std::string refusal(const std::filesystem::path& path, Errc code) {
    const auto opened = FileStore::open(path);
    EXPECT_FALSE(opened.ok());
    if (opened.ok()) return {};
    EXPECT_EQ(opened.error().code, code) << opened.error().message;
    return opened.error().message;
}

TEST(FileStore, KeepsDataRecordsAndMetadataAcrossReopening) {
    Scratch scratch;
    const auto path = scratch / "store";
    std::vector<std::byte> blob(5000, std::byte{0x5A});
    std::array<std::uint8_t, 16> uuid{};
    {
        auto store = FileStore::create(path, small()).value();
        uuid = store->identity().incarnation;
        EXPECT_TRUE(store->load().empty());
        for (std::uint32_t p = 0; p < 20; ++p) {
            PageOob oob = oob_of(7, p, p + 1);
            ASSERT_EQ(store->program(p, page_of(p).data(), oob), FlashStatus::kOk);
        }
        ASSERT_TRUE(store->store(blob));
        EXPECT_EQ(store->sync(), FlashStatus::kOk);
    }
    auto store = FileStore::open(path).value();
    EXPECT_EQ(uuid, store->identity().incarnation);
    EXPECT_EQ(store->load(), blob);
    PageOob oob = oob_of(7, 3, 3);
    EXPECT_EQ(store->program(3, page_of(3).data(), oob), FlashStatus::kRefused)
        << "write pointers were found again";
    EXPECT_EQ(store->program(20, page_of(20).data(), oob), FlashStatus::kOk);
    testing::Page to;
    std::uint32_t crcs[8];
    for (std::uint32_t p = 0; p < 20; ++p) {
        ASSERT_EQ(store->read(p, 0, 8, to.data(), crcs), FlashStatus::kOk);
        EXPECT_EQ(to, page_of(p));
    }
}

TEST(FileStore, IsNotOpenedTwice) {
    Scratch scratch;
    auto store = FileStore::create(scratch / "s", small()).value();
    EXPECT_NE(refusal(scratch / "s", Errc::kBusy).find("in use by another process"), std::string::npos);
    store.reset();
    EXPECT_TRUE(FileStore::open(scratch / "s").ok());
}

TEST(FileStore, CreationRefusesAnExistingNameAndLeavesNoFileBehind) {
    Scratch scratch;
    { auto store = FileStore::create(scratch / "s", small()).value(); }
    const auto again = FileStore::create(scratch / "s", small());
    ASSERT_FALSE(again.ok());
    EXPECT_EQ(again.error().code, Errc::kExists);
    EXPECT_FALSE(FileStore::create(scratch / "no-such-folder/s", small()).ok());
    EXPECT_FALSE(
        FileStore::create(scratch / "t", {.geometry = {0, 16}, .capacity_bytes = 0, .serial = ""}).ok());
    EXPECT_FALSE(FileStore::create(scratch / "t",
                                   {.geometry = {4, 16}, .capacity_bytes = 0, .serial = std::string(21, 'x')})
                     .ok());
    int files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(scratch / ""))
        files += entry.is_regular_file() ? 1 : 0;
    EXPECT_EQ(files, 1);
}

TEST(FileStore, RefusesFilesThatAreNoStoreWithASpecificError) {
    Scratch scratch;
    const auto path = scratch / "s";
    EXPECT_NE(refusal(path, Errc::kNotFound).find("cannot open the store"), std::string::npos);
    std::ofstream(path) << "short";
    EXPECT_NE(refusal(path, Errc::kCorrupt).find("a superblock alone has 4096"), std::string::npos);
    std::ofstream(path) << std::string(10000, 'x');
    EXPECT_NE(refusal(path, Errc::kCorrupt).find("magic"), std::string::npos);
    std::filesystem::remove(path);
    std::filesystem::create_directory(path);
    EXPECT_FALSE(FileStore::open(path).ok());
    std::filesystem::remove(path);

    { auto store = FileStore::create(path, small()).value(); }
    std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
    EXPECT_NE(refusal(path, Errc::kCorrupt).find("truncated"), std::string::npos);
    std::filesystem::remove(path);

    { auto store = FileStore::create(path, small()).value(); }
    poke(path, offsetof(Superblock, format_version), std::string("\x06\0\0\0", 4));
    EXPECT_NE(refusal(path, Errc::kUnsupported).find("use a newer gnstor"), std::string::npos);
    for (const char* older : {"\x02\0\0\0", "\x03\0\0\0"}) {
        poke(path, offsetof(Superblock, format_version), std::string(older, 4));
        EXPECT_NE(refusal(path, Errc::kUnsupported).find("format it again"), std::string::npos);
    }
    poke(path, offsetof(Superblock, format_version), std::string("\x05\0\0\0", 4));
    EXPECT_TRUE(FileStore::open(path).ok());
    poke(path, offsetof(Superblock, units), std::string("\x05", 1));
    EXPECT_NE(refusal(path, Errc::kCorrupt).find("checksum"), std::string::npos);
}

/// A store that was given `first`, then `second` (which goes to slot 1).
void two_blobs(const std::filesystem::path& path, const std::vector<std::byte>& first,
               const std::vector<std::byte>& second) {
    auto store = FileStore::create(path, small()).value();
    ASSERT_TRUE(store->store(first));
    ASSERT_TRUE(store->store(second));
    EXPECT_FALSE(store->store(std::vector<std::byte>(store->capacity() + 1)))
        << "too large: the old one stands";
    EXPECT_EQ(store->load(), second);
}

TEST(FileStore, MetadataFallsBackToTheOlderCopyWhenTheNewerIsTorn) {
    Scratch scratch;
    const auto path = scratch / "s";
    const std::vector<std::byte> first(300, std::byte{1});
    const std::vector<std::byte> second(400, std::byte{2});
    two_blobs(path, first, second);
    // As a kill leaves it: the blob is there, its headers are not whole.
    poke(path, kStoreHeadBytes + kStoreMetadataBytes + 32, std::string(32, '\0'));
    poke(path, kStoreHeadBytes + 2 * kStoreMetadataBytes - 32, std::string(32, '\0'));
    auto store = FileStore::open(path).value();
    EXPECT_EQ(store->load(), first);
    ASSERT_TRUE(store->store(second));
    EXPECT_EQ(store->load(), second);
    EXPECT_TRUE(store->store({}));
    EXPECT_TRUE(store->load().empty());
}

TEST(FileStore, OneBadSectorOverTheNewestMetadatasHeaderCostsNothing) {
    for (const std::uint64_t header : {std::uint64_t{0}, std::uint64_t{kStoreMetadataBytes} - 512}) {
        Scratch scratch;
        const auto path = scratch / "s";
        const std::vector<std::byte> second(400, std::byte{2});
        two_blobs(path, std::vector<std::byte>(300, std::byte{1}), second);
        poke(path, kStoreHeadBytes + kStoreMetadataBytes + header + (header == 0 ? 0 : 448),
             std::string(64, '\0'));
        EXPECT_EQ(FileStore::open(path).value()->load(), second) << header;
    }
}

/// Both headers of the metadata in slot 1 are gone without a trace, as zeroes.
void lose_headers(const std::filesystem::path& path) {
    poke(path, kStoreHeadBytes + kStoreMetadataBytes, std::string(512, '\0'));
    poke(path, kStoreHeadBytes + 2 * kStoreMetadataBytes - 512, std::string(512, '\0'));
}

/// Given `first`, then something else, which goes to slot 1; closed cleanly.
void closed_with_two(const std::filesystem::path& path, const std::vector<std::byte>& first) {
    auto store = StoreFile::create(path, small()).value();
    ASSERT_TRUE(store->begin_use({}).ok());
    ASSERT_TRUE(store->store(first));
    ASSERT_TRUE(store->store(std::vector<std::byte>(400, std::byte{2})));
    ASSERT_TRUE(store->end_use().ok());
}

std::string refusal_of_use(const std::filesystem::path& path) {
    const auto opened = StoreFile::open_for_use(path, {});
    EXPECT_FALSE(opened.ok());
    return opened.ok() ? "" : opened.error().message;
}

constexpr const char* kOlder = "had reached generation 2, but the newest copy is of generation 1";

TEST(FileStore, ACleanCloseNamesTheMetadataSoThatAnOlderOneIsRefused) {
    Scratch scratch;
    const auto path = scratch / "s";
    const std::vector<std::byte> first(300, std::byte{1});
    closed_with_two(path, first);
    lose_headers(path);
    const std::string refused = refusal_of_use(path);
    EXPECT_NE(refused.find(kOlder), std::string::npos) << refused;
    EXPECT_NE(refused.find(fmt::format("`gnstor ssd recover {} --accept-loss --write`", path.string())),
              std::string::npos)
        << refused;
    BootRequest anyhow;
    anyhow.accept_loss = true;
    EXPECT_EQ(StoreFile::open_for_use(path, anyhow).value()->load(), first);
}

TEST(FileStore, AnOpenOrKilledStoreStillKnowsTheMetadataOfItsLastClose) {
    Scratch scratch;
    const auto path = scratch / "s";
    closed_with_two(path, std::vector<std::byte>(300, std::byte{1}));
    ASSERT_TRUE(StoreFile::open_for_use(path, {}).value()->note_recovered());  // and killed
    lose_headers(path);
    const std::string refused = refusal_of_use(path);
    EXPECT_NE(refused.find(kOlder), std::string::npos) << refused;
    EXPECT_FALSE(StoreFile::open(path).ok());
    EXPECT_EQ(StoreView::open(path).value()->metadata_missing(), 2u);
}

TEST(FileStore, AnInterruptedRecoveryWithOlderMetadataLeavesTheStoreRefused) {
    Scratch scratch;
    const auto path = scratch / "s";
    const std::vector<std::byte> first(300, std::byte{1});
    closed_with_two(path, first);
    lose_headers(path);
    BootRequest anyhow;
    anyhow.accept_loss = true;
    for (const int stores : {0, 1, 3}) {
        {
            const auto store = StoreFile::open_for_use(path, anyhow).value();
            for (int i = 0; i < stores; ++i) ASSERT_TRUE(store->store(first));
            ASSERT_TRUE(store->note_recovered());
        }
        const std::string refused = refusal_of_use(path);
        EXPECT_NE(refused.find("was interrupted"), std::string::npos) << refused;
        EXPECT_EQ(StoreView::open(path).value()->metadata_missing(), kMetadataGivenUp);
    }
    ASSERT_TRUE(StoreFile::open_for_use(path, anyhow).value()->end_use().ok());
    const auto store = StoreFile::open_for_use(path, {});
    ASSERT_TRUE(store.ok()) << store.error().message;
    EXPECT_EQ(store.value()->load(), first);
}

/// A store whose newer copy of the metadata is damaged, so that a recovery uses the older one, `first`.
struct OlderMetadata {
    OlderMetadata() {
        closed_with_two(path, first);
        poke(path, blob + kStoreMetadataBytes, "X");
        anyhow.accept_loss = true;
    }

    Scratch scratch;
    const std::filesystem::path path = scratch / "s";
    const std::vector<std::byte> first = std::vector<std::byte>(300, std::byte{1});
    const std::uint64_t blob = kStoreHeadBytes + sizeof(MetadataHeader) + 10;  ///< a byte of the older copy
    BootRequest anyhow;
};

TEST(FileStore, ARecoveryWhoseOlderMetadataBecomesCorruptDoesNotOverwriteIt) {
    const OlderMetadata damaged;
    {
        const auto store = StoreFile::open_for_use(damaged.path, damaged.anyhow).value();
        poke(damaged.path, damaged.blob, "X");
        const auto ended = store->end_use();
        ASSERT_FALSE(ended.ok());
        EXPECT_NE(ended.error().message.find("cannot be read any more"), std::string::npos)
            << ended.error().message;
    }
    poke(damaged.path, damaged.blob, "\1");
    EXPECT_EQ(StoreFile::open_for_use(damaged.path, damaged.anyhow).value()->load(), damaged.first);
}

TEST(FileStore, MetadataStoredWhileNoCopyIsReadableDoesNotOverwriteTheLastGoodOne) {
    const OlderMetadata damaged;
    {
        const auto store = StoreFile::open_for_use(damaged.path, damaged.anyhow).value();
        poke(damaged.path, damaged.blob, "X");
        ASSERT_TRUE(store->store(std::vector<std::byte>(500, std::byte{3})));
    }
    poke(damaged.path, damaged.blob, "\1");
    const MetadataSlots slots = StoreView::open(damaged.path).value()->metadata_copies();
    EXPECT_EQ(slots[0].bytes, damaged.first.size());
    EXPECT_EQ(slots[1].bytes, 500u);
}

TEST(FileStore, MetadataThatBecomesCorruptWhileServedIsNotConfirmedByTheClose) {
    Scratch scratch;
    const auto path = scratch / "s";
    {
        auto store = StoreFile::create(path, small()).value();
        ASSERT_TRUE(store->begin_use({}).ok());
        ASSERT_TRUE(store->store(std::vector<std::byte>(300, std::byte{1})));
        ASSERT_TRUE(store->store(std::vector<std::byte>(400, std::byte{2})));
        lose_headers(path);
        ASSERT_TRUE(store->end_use().ok());
    }
    const std::string refused = refusal_of_use(path);
    EXPECT_NE(refused.find(kOlder), std::string::npos) << refused;
}

TEST(FileStore, MetadataStoredAfterTheNewestBecameCorruptIsNewerThanIt) {
    Scratch scratch;
    const auto path = scratch / "s";
    const std::vector<std::byte> third(500, std::byte{3});
    {
        auto store = StoreFile::create(path, small()).value();
        ASSERT_TRUE(store->begin_use({}).ok());
        ASSERT_TRUE(store->store(std::vector<std::byte>(300, std::byte{1})));
        ASSERT_TRUE(store->store(std::vector<std::byte>(400, std::byte{2})));
        lose_headers(path);
        ASSERT_TRUE(store->store(third));
        ASSERT_TRUE(store->end_use().ok());
        EXPECT_EQ(store->boot().metadata_generation, 3u);
    }
    const auto store = StoreFile::open_for_use(path, {});
    ASSERT_TRUE(store.ok()) << store.error().message;
    EXPECT_EQ(store.value()->load(), third);
}

TEST(FileStore, MetadataNeverFallsBackToAnOlderCopyBecauseTheNewerIsCorrupt) {
    Scratch scratch;
    const auto path = scratch / "s";
    two_blobs(path, std::vector<std::byte>(300, std::byte{1}), std::vector<std::byte>(400, std::byte{2}));
    const std::uint64_t blob = kStoreHeadBytes + sizeof(MetadataHeader) + 10;
    poke(path, blob, "X");  // of the older copy: a power cut in the middle of the next store leaves that
    EXPECT_EQ(FileStore::open(path).value()->load(), std::vector<std::byte>(400, std::byte{2}));
    poke(path, blob + kStoreMetadataBytes, "X");
    EXPECT_NE(refusal(path, Errc::kCorrupt).find("no copy of it can be read"), std::string::npos);
    BootRequest anyhow;
    anyhow.accept_loss = true;
    EXPECT_FALSE(StoreFile::open_for_use(path, anyhow).ok());
    poke(path, blob, "\1");
    EXPECT_NE(refusal(path, Errc::kCorrupt).find("would undo"), std::string::npos);
    EXPECT_EQ(StoreView::open(path).value()->load(), std::vector<std::byte>(300, std::byte{1}));
}

TEST(FileStore, ManyMetadataStoresAlternateAndTheLastCounts) {
    Scratch scratch;
    const auto path = scratch / "s";
    for (int i = 1; i <= 40; ++i) {
        auto store = i == 1 ? FileStore::create(path, small()).value() : FileStore::open(path).value();
        const std::vector<std::byte> blob(static_cast<std::size_t>(i) * 17, static_cast<std::byte>(i));
        ASSERT_TRUE(store->store(blob));
        EXPECT_EQ(store->load(), blob);
    }
}

TEST(StoreTool, CountsPagesAndFlipsOneByteOfTheNewestPageOfABlock) {
    Scratch scratch;
    const auto path = scratch / "s";
    {
        auto store = FileStore::create(path, small()).value();
        PageOob oob = oob_of(5, 42, 1);
        ASSERT_EQ(store->program(0, page_of(1).data(), oob), FlashStatus::kOk);
        oob = oob_of(5, 43, 2);
        ASSERT_EQ(store->program(1, page_of(2).data(), oob), FlashStatus::kOk);
        oob = oob_of(5, 42, 3);
        ASSERT_EQ(store->program(2, page_of(3).data(), oob), FlashStatus::kOk);
        oob = oob_of(5, 44, 4, deengine::PageKind::kLost);
        ASSERT_EQ(store->program(3, page_of(0).data(), oob), FlashStatus::kOk);
        oob = oob_of(0, 45, 5, deengine::PageKind::kSystem);
        ASSERT_EQ(store->program(16, page_of(5).data(), oob), FlashStatus::kOk);
    }
    const StoreFacts facts = inspect_store(path).value();
    EXPECT_EQ(facts.serial, "TEST-1");
    EXPECT_EQ(facts.data_pages, 3u);
    EXPECT_EQ(facts.lost_pages, 1u);
    EXPECT_EQ(facts.system_pages, 1u);
    EXPECT_EQ(facts.erased_pages, 59u);
    EXPECT_EQ(facts.damaged_records, 0u);
    EXPECT_NE(describe(facts).find("3 data, 1 system, 1 lost, 0 damaged"), std::string::npos);

    const CorruptedByte hit = corrupt_block(path, 5, 42, 100).value();
    EXPECT_EQ(hit.page, 2u) << "the page in force, not the superseded one";
    EXPECT_EQ(hit.after, static_cast<std::uint8_t>(~hit.before));
    EXPECT_EQ(corrupt_block(path, 6, 42, 0).error().code, Errc::kNotFound);
    EXPECT_EQ(corrupt_block(path, 5, 44, 0).error().code, Errc::kNotFound) << "a lost page has no data";
    EXPECT_FALSE(corrupt_block(path, 5, 42, 4096).ok());
    EXPECT_EQ(corrupt_nth_page(path, 1, 0).value().page, 1u);
    EXPECT_EQ(corrupt_nth_page(path, 3, 0).error().code, Errc::kNotFound)
        << "pages of the journal do not count";

    auto store = FileStore::open(path).value();
    testing::Page to;
    std::uint32_t crcs[8];
    PageOob oob{};
    ASSERT_EQ(store->read_oob(2, oob), FlashStatus::kOk) << "the record is untouched";
    ASSERT_EQ(store->read(2, 0, 8, to.data(), crcs), FlashStatus::kOk);
    EXPECT_NE(crcs[0], oob.sector_crc[0]) << "and tells";
    for (int i = 1; i < 8; ++i) EXPECT_EQ(crcs[i], oob.sector_crc[i]);
    EXPECT_FALSE(corrupt_block(path, 5, 42, 0).ok()) << "in use";
}

}  // namespace
}  // namespace gnstor::ssd
