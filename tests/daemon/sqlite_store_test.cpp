// sqlite_store_test.cpp: what the record store keeps, and what it refuses.
#include "daemon/records/sqlite_store.hpp"
#include "daemon/decisions/manager.hpp"
#include "daemon/model_ssd.hpp"
#include "daemon/records/sqlite_database.hpp"
#include "daemon/sample_records.hpp"
#include "support/file_bytes.hpp"

#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <random>

using namespace gnstor;
using namespace gnstor::daemon;
using namespace gnstor::daemon::test;

namespace {

class SqliteStoreTest : public ::testing::Test {
  protected:
    void SetUp() override {
        char folder[] = "/tmp/gnstor-store-XXXXXX";
        ASSERT_NE(::mkdtemp(folder), nullptr);
        dir = folder;
    }
    void TearDown() override { std::filesystem::remove_all(dir); }
    [[nodiscard]] std::filesystem::path file() const { return dir / "records.db"; }
    auto open(bool quarantine = false) { return SqliteRecordStore::open({file(), quarantine}); }
    void sql(const std::string& text) {
        sqlite3* db = nullptr;
        ASSERT_EQ(sqlite3_open(file().c_str(), &db), SQLITE_OK);
        char* message = nullptr;
        EXPECT_EQ(sqlite3_exec(db, text.c_str(), nullptr, nullptr, &message), SQLITE_OK) << message;
        sqlite3_close(db);
    }
    /// As schema 5 had them.
    void without_generations() {
        sql("ALTER TABLE clients DROP COLUMN generation; ALTER TABLE clients DROP COLUMN removed");
        ASSERT_NO_FATAL_FAILURE(with_checksum("UPDATE clients SET crc = gn_crc('clients', id, name)"));
        sql("PRAGMA user_version = 5");
    }
    /// As schema 4 had them.
    void without_checksums() {
        without_generations();
        for (const char* table : {"array", "clients", "volumes", "creating", "retired", "ssds"})
            sql(fmt::format("ALTER TABLE {} DROP COLUMN crc", table));
        sql("PRAGMA user_version = 4");
    }
    void with_checksum(const std::string& text) const {
        SqliteDatabase db(file());
        ASSERT_TRUE(db.open().ok());
        const auto ran = db.run(text, "run a test's statement");
        ASSERT_TRUE(ran.ok()) << ran.error().message;
        db.set_checkpoint_at_close(true);
    }
    [[nodiscard]] std::string contents() const { return gnstor::test::file_bytes(file()); }
    void expect_refused(Errc code, const std::string& part) {
        auto opened = open();
        ASSERT_FALSE(opened.ok()) << "expected: " << part;
        EXPECT_EQ(opened.error().code, code) << opened.error().message;
        EXPECT_NE(opened.error().message.find(part), std::string::npos) << opened.error().message;
        EXPECT_NE(opened.error().message.find(file().string()), std::string::npos) << opened.error().message;
    }
    std::filesystem::path dir;
};

TEST_F(SqliteStoreTest, SavedRecordsAreReadAfterReopening) {
    { ASSERT_TRUE(open().value()->save(sample_change()).ok()); }
    Records expected;
    apply(expected, sample_change());
    const Records got = open().value()->load().value();
    EXPECT_EQ(got.term, 7u);
    EXPECT_EQ(got.epoch_floor, 4'000'000'000u);
    EXPECT_EQ(std::memcmp(&got.map, &expected.map, sizeof(got.map)), 0);
    EXPECT_EQ(got.clients, expected.clients);
    EXPECT_EQ(got.retired, expected.retired);
    ASSERT_EQ(got.volumes.size(), 2u);
    EXPECT_EQ(std::memcmp(&got.volumes.at(5), &expected.volumes.at(5), sizeof(nvme::VolumeRecord)), 0);
    EXPECT_EQ(got.creating, std::set<nvme::VolumeId>{5});
    Change revive = sample_change();
    revive.retire_volumes = {{5, 9}};
    revive.put_volumes[0].geometry.volume = 8;
    revive.begin_creations = {8};
    ASSERT_TRUE(open().value()->save(revive).ok());
    const Records swapped = open().value()->load().value();
    EXPECT_TRUE(swapped.volumes.contains(8) && !swapped.volumes.contains(5));
    EXPECT_TRUE(swapped.retired.contains(5) && !swapped.retired.contains(8));
    EXPECT_EQ(swapped.creating, std::set<nvme::VolumeId>{8}) << "retired tables must not be created any more";
    Change told;
    told.end_creations = {8};
    ASSERT_TRUE(open().value()->save(told).ok());
    EXPECT_TRUE(open().value()->load().value().creating.empty());
}

TEST_F(SqliteStoreTest, AStoreOfTheFirstSchemaIsMigratedAndKeepsItsRecords) {
    { ASSERT_TRUE(open().value()->save(sample_change()).ok()); }
    without_checksums();
    sql("DROP TABLE ssds; DROP TABLE creating; ALTER TABLE array DROP COLUMN told; PRAGMA user_version = 1");
    for (int opened = 0; opened < 2; ++opened) {
        auto store = open();
        ASSERT_TRUE(store.ok()) << store.error().message;
        EXPECT_EQ(store.value()->load()->volumes.size(), 2u);
        EXPECT_TRUE(store.value()->load()->creating.empty());
        EXPECT_EQ(store.value()->load()->told, 0u);
    }
}

TEST_F(SqliteStoreTest, AStoreOfTheSecondSchemaIsMigratedAndKeepsTheMapInForce) {
    { ASSERT_TRUE(open().value()->save(sample_change()).ok()); }
    without_checksums();
    sql("DROP TABLE ssds; ALTER TABLE array DROP COLUMN told; PRAGMA user_version = 2");
    Change told;
    told.told = 7;
    ASSERT_TRUE(open().value()->save(told).ok());
    EXPECT_EQ(open().value()->load()->told, 7u);
    EXPECT_EQ(open().value()->load()->volumes.size(), 2u);
}

TEST_F(SqliteStoreTest, AStoreOfTheFifthSchemaIsMigratedAndItsClientsHaveTheFirstGeneration) {
    { ASSERT_TRUE(open().value()->save(sample_change()).ok()); }
    without_generations();
    for (int opened = 0; opened < 2; ++opened) {
        auto store = open();
        ASSERT_TRUE(store.ok()) << store.error().message;
        const Records got = store.value()->load().value();
        EXPECT_EQ(got.clients.at(1), (ClientRecord{"alice", 1, false}));
        EXPECT_EQ(got.clients.at(2), (ClientRecord{"bob", 1, false}));
        EXPECT_EQ(got.clients.size(), 3u);
        EXPECT_EQ(got.volumes.size(), 2u);
    }
    { ASSERT_TRUE(open().value()->save(sample_change()).ok()); }
    EXPECT_EQ(open().value()->load()->clients.at(2), (ClientRecord{"bob", 4'294'967'295u, true}));
}

TEST_F(SqliteStoreTest, ADamagedClientOfTheFifthSchemaIsNotMigrated) {
    { ASSERT_TRUE(open().value()->save(sample_change()).ok()); }
    without_generations();
    sql("UPDATE clients SET name = 'mallory' WHERE id = 1");
    const std::string before = contents();
    expect_refused(Errc::kCorrupt, "the checksum of a client is wrong");
    EXPECT_TRUE(contents() == before) << "its rows would have good checksums";
}

TEST_F(SqliteStoreTest, ADamagedStoreOfAnOlderSchemaIsNotMigrated) {
    { ASSERT_TRUE(open().value()->save(sample_change()).ok()); }
    without_checksums();
    sql("UPDATE volumes SET record = zeroblob(384)");
    const std::string before = contents();
    expect_refused(Errc::kCorrupt, "damaged");
    EXPECT_TRUE(contents() == before) << "its rows would have good checksums";
}

TEST_F(SqliteStoreTest, AKilledProcessLosesNoAcknowledgedChange) {
    std::uint64_t checked = 0;
    for (int round = 0; round < 5; ++round) {
        int pipes[2];
        ASSERT_EQ(::pipe(pipes), 0);
        const pid_t child = ::fork();
        ASSERT_GE(child, 0);
        if (child == 0) {
            auto store = SqliteRecordStore::open({file(), false});
            if (!store.ok()) ::_exit(1);
            Change change = sample_change();
            for (std::uint64_t term = store.value()->load().value().term + 1;; ++term) {
                change.term = term;
                change.put_volumes[0].revision = term;
                if (!store.value()->save(change).ok()) ::_exit(2);
                if (::write(pipes[1], &term, sizeof(term)) != sizeof(term)) ::_exit(3);
            }
        }
        ::close(pipes[1]);
        std::uint64_t acknowledged = 0;
        for (int i = 0; i < 20 + round * 7; ++i)
            ASSERT_EQ(::read(pipes[0], &acknowledged, sizeof(acknowledged)), 8);
        ::kill(child, SIGKILL);
        ::waitpid(child, nullptr, 0);
        std::uint64_t last = 0;
        while (::read(pipes[0], &last, sizeof(last)) == 8) acknowledged = last;
        ::close(pipes[0]);
        const Records got = open().value()->load().value();
        EXPECT_GE(got.term, acknowledged);
        EXPECT_LE(got.term, acknowledged + 1);
        EXPECT_EQ(got.volumes.at(5).revision, got.term) << "a change is whole or not there";
        checked += acknowledged;
    }
    std::printf("record store: killed 5 times over %llu acknowledged changes\n",
                static_cast<unsigned long long>(checked));
}

TEST_F(SqliteStoreTest, ADamagedFileIsRefusedAndSetAsideOnlyWhenAsked) {
    { ASSERT_TRUE(open().value()->save(sample_change()).ok()); }
    std::ofstream(file(), std::ios::binary | std::ios::trunc) << std::string(9000, 'x');
    expect_refused(Errc::kCorrupt, "damaged");
    EXPECT_TRUE(std::filesystem::exists(file()));
    auto quarantined = open(true);
    ASSERT_TRUE(quarantined.ok()) << quarantined.error().message;
    EXPECT_TRUE(std::filesystem::exists(quarantined.value()->quarantined()));
    EXPECT_EQ(quarantined.value()->load().value().term, 0u);
}

TEST_F(SqliteStoreTest, AnyDamagedFileIsRefusedUnchangedAndSetAsideOnRequest) {
    const char* const damages[] = {"PRAGMA user_version = 5", "PRAGMA user_version = 4",
                                   "PRAGMA user_version = 1", "PRAGMA application_id = 5",
                                   "DROP TABLE volumes"};
    for (const char* damage : damages) {
        { ASSERT_TRUE(open().value()->save(sample_change()).ok()); }
        sql(damage);
        const std::string before = contents();
        ASSERT_FALSE(open().ok()) << damage;
        EXPECT_TRUE(contents() == before) << damage;
        const auto quarantined = open(true);
        ASSERT_TRUE(quarantined.ok()) << damage << ": " << quarantined.error().message;
        EXPECT_EQ(quarantined.value()->load().value().term, 0u);
    }
}

TEST_F(SqliteStoreTest, DamagedRecordsAreRefused) {
    { ASSERT_TRUE(open().value()->save(sample_change()).ok()); }
    sql("UPDATE volumes SET record = zeroblob(384)");
    expect_refused(Errc::kCorrupt, "the checksum of a volume is wrong");
    sql("DELETE FROM volumes");
    expect_refused(Errc::kCorrupt, "of a volume that does not exist");
    sql("DELETE FROM creating; UPDATE array SET term = 8");
    expect_refused(Errc::kCorrupt, "the checksum of its array record is wrong");
    sql("UPDATE array SET term = 7; UPDATE retired SET epoch = 11");
    expect_refused(Errc::kCorrupt, "the checksum of a retired VID is wrong");
    sql("UPDATE retired SET epoch = 12; UPDATE clients SET removed = 0");
    expect_refused(Errc::kCorrupt, "the checksum of a client is wrong");
    sql("UPDATE clients SET removed = 1 WHERE id = 2; UPDATE clients SET generation = 1 WHERE id = 1");
    expect_refused(Errc::kCorrupt, "the checksum of a client is wrong");
    sql("UPDATE clients SET generation = 4097 WHERE id = 1; DELETE FROM array");
    expect_refused(Errc::kCorrupt, "array record");
}

/// Of each byte of a closed file that is not zero, and of some that are, one bit is flipped.
TEST_F(SqliteStoreTest, AFlippedBitIsRefusedOrChangesNothing) {
    { ASSERT_TRUE(open().value()->save(sample_change()).ok()); }
    const Records good = open().value()->load().value();
    const std::string bytes = contents();
    std::mt19937_64 random(1);
    std::uint64_t refused = 0;
    std::uint64_t harmless = 0;
    for (std::size_t at = 0; at < bytes.size(); ++at) {
        if (bytes[at] == 0 && random() % 64 != 0) continue;
        std::string flipped = bytes;
        flipped[at] = static_cast<char>(flipped[at] ^ (1 << random() % 8));
        std::ofstream(file(), std::ios::binary | std::ios::trunc) << flipped;
        const auto opened = open();
        const auto loaded = opened.ok() ? opened.value()->load() : Result<Records>(opened.error());
        ++(loaded.ok() ? harmless : refused);
        if (!loaded.ok()) continue;
        const Records& now = loaded.value();
        EXPECT_TRUE(now.term == good.term && now.epoch_floor == good.epoch_floor && now.told == good.told &&
                    std::memcmp(&now.map, &good.map, sizeof good.map) == 0 && now.clients == good.clients &&
                    now.creating == good.creating && now.retired == good.retired &&
                    now.ssd_terms == good.ssd_terms && now.volumes.size() == good.volumes.size() &&
                    std::memcmp(&now.volumes.at(5), &good.volumes.at(5), sizeof good.volumes.at(5)) == 0)
            << "byte " << at;
    }
    std::printf("GN_COUNT records_flips_refused=%llu\n", static_cast<unsigned long long>(refused));
    std::printf("GN_COUNT records_flips_harmless=%llu\n", static_cast<unsigned long long>(harmless));
    EXPECT_GT(refused, harmless);
}

TEST_F(SqliteStoreTest, ForeignAndNewerFilesAreRefusedAndLeftAlone) {
    sql("CREATE TABLE songs(title TEXT)");
    expect_refused(Errc::kCorrupt, "another program");
    std::filesystem::remove(file());
    { ASSERT_TRUE(open().value()->save(sample_change()).ok()); }
    sql("PRAGMA user_version = 99");
    expect_refused(Errc::kUnsupported, "newer gnstord");
    ASSERT_FALSE(open(true).ok()) << "a newer file is not damaged: it is never set aside";
    EXPECT_TRUE(std::filesystem::exists(file()));
}

TEST_F(SqliteStoreTest, OnlyOneDaemonHasTheStoreOpen) {
    auto first = open();
    ASSERT_TRUE(first.ok());
    ASSERT_TRUE(first.value()->save(sample_change()).ok());
    expect_refused(Errc::kBusy, "another gnstord");
}

TEST_F(SqliteStoreTest, AFolderOrAMissingFolderAsStoreIsRefused) {
    std::filesystem::create_directory(file());
    EXPECT_FALSE(open().ok());
    std::filesystem::remove(file());
    auto nowhere = SqliteRecordStore::open({dir / "no" / "records.db", false});
    ASSERT_FALSE(nowhere.ok());
    EXPECT_NE(nowhere.error().message.find("no/records.db"), std::string::npos);
}

TEST_F(SqliteStoreTest, ADeletedFileIsRebuiltFromTheDrives) {
    ModelArray array(2);
    {
        auto store = open().value();
        auto manager = Manager::start(*store, array.ports(), {}, 0).value();
        const auto a = manager->register_client("alice").value().id;
        ASSERT_TRUE(manager->create_volume(a, {"v", 4096}).ok());
    }
    std::filesystem::remove(file());
    array.boot();
    auto store = open().value();
    auto manager = Manager::start(*store, array.ports(), {}, 0).value();
    EXPECT_TRUE(manager->start_report().rebuilt);
    ASSERT_EQ(manager->list_volumes().size(), 1u);
    EXPECT_STREQ(manager->list_volumes()[0].name, "v");
    EXPECT_EQ(store->load().value().volumes.size(), 1u) << "the volume must be in the new store";
}

}  // namespace
