// record_store_test.cpp: what every record store promises: SQLite's, that of a real etcd, and that of the fake one of other
// tests, so that the fake is as the real one in this.
#include "daemon/etcd_server.hpp"
#include "daemon/fake_etcd.hpp"
#include "daemon/http/etcd_client.hpp"
#include "daemon/records/sqlite_store.hpp"
#include "daemon/sample_records.hpp"
#include "daemon/standby/election.hpp"
#include "support/count.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <mutex>

using namespace gnstor;
using namespace gnstor::daemon;
using namespace gnstor::daemon::test;

namespace {

enum class Kind { kSqlite, kFakeEtcd, kEtcd };

std::uint64_t clock_ms() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
}

void expect_equal(const Records& a, const Records& b) {
    EXPECT_EQ(a.term, b.term);
    EXPECT_EQ(a.epoch_floor, b.epoch_floor);
    EXPECT_EQ(std::memcmp(&a.map, &b.map, sizeof a.map), 0);
    EXPECT_EQ(a.told, b.told);
    EXPECT_EQ(a.clients, b.clients);
    EXPECT_EQ(a.creating, b.creating);
    EXPECT_EQ(a.retired, b.retired);
    EXPECT_EQ(a.ssd_terms, b.ssd_terms);
    ASSERT_EQ(a.volumes.size(), b.volumes.size());
    for (const auto& [id, record] : a.volumes)
        EXPECT_EQ(std::memcmp(&record, &b.volumes.at(id), sizeof record), 0) << id;
}

class RecordStoreTest : public ::testing::TestWithParam<Kind> {
  protected:
    void SetUp() override {
        if (GetParam() == Kind::kEtcd && !EtcdServer::url())
            GTEST_SKIP() << "etcd is not installed (Debian: etcd-server)";
        char folder[] = "/tmp/gnstor-store-XXXXXX";
        ASSERT_NE(::mkdtemp(folder), nullptr);
        dir = folder;
        prefix = "/gnstor" + dir.filename().string();
    }
    void TearDown() override {
        election.reset();
        if (!dir.empty()) std::filesystem::remove_all(dir);
    }
    /// As the next daemon opens it, after the one before has ended.
    std::unique_ptr<RecordStore> open() {
        if (GetParam() == Kind::kSqlite) return SqliteRecordStore::open({dir / "records.db", false}).value();
        if (GetParam() == Kind::kFakeEtcd)
            return std::make_unique<EtcdRecordStore>(std::make_unique<FakePort>(fake), prefix,
                                                     std::make_shared<TestLeadership>(fake, prefix));
        const EtcdServers servers = parse_etcd_servers(*EtcdServer::url()).value();
        election.reset();
        std::mutex mutex;
        std::condition_variable leads;
        bool changed = false;
        ElectionOptions options{.prefix = prefix,
                                .address = "unix:test",
                                .changed =
                                    [&] {
                                        const std::scoped_lock lock(mutex);
                                        changed = true;
                                        leads.notify_all();
                                    },
                                .now_ms = clock_ms};
        election = Election::start(connect_etcd(servers), std::move(options));
        std::unique_lock lock(mutex);
        EXPECT_TRUE(leads.wait_for(lock, std::chrono::seconds(60), [&] { return changed; }));
        return std::make_unique<EtcdRecordStore>(connect_etcd(servers), prefix, election->leadership());
    }
    std::filesystem::path dir;
    std::string prefix;
    FakeEtcd fake;
    std::unique_ptr<Election> election;
};

TEST_P(RecordStoreTest, AnEmptyStoreHasNoRecords) {
    const auto store = open();
    EXPECT_TRUE(store->lasting());
    expect_equal(store->load().value(), Records{});
}

TEST_P(RecordStoreTest, SavedRecordsAreReadByTheNextDaemon) {
    Records expected;
    {
        const auto store = open();
        ASSERT_TRUE(store->load().ok());
        ASSERT_TRUE(store->save(sample_change()).ok());
        apply(expected, sample_change());
        expect_equal(store->load().value(), expected);
    }
    Change next;
    next.term = 8;
    next.end_creations = {5};
    next.put_clients = {{2, {"bob", 1, false}}};
    next.retire_volumes = {{5, 9}};
    next.put_volumes = {sample_volume(8)};
    next.begin_creations = {8};
    apply(expected, next);
    {
        const auto store = open();
        ASSERT_TRUE(store->load().ok());
        ASSERT_TRUE(store->save(next).ok());
    }
    expect_equal(open()->load().value(), expected);
}

TEST_P(RecordStoreTest, AChangeOfManyRecordsIsStoredAsAWhole) {
    Change many = sample_change();
    for (nvme::VolumeId id = 100; id < 2'600; ++id) many.put_volumes.push_back(sample_volume(id));
    Records expected;
    apply(expected, many);
    {
        const auto store = open();
        ASSERT_TRUE(store->load().ok());
        const auto saved = store->save(many);
        ASSERT_TRUE(saved.ok()) << saved.error().message;
    }
    const auto store = open();
    expect_equal(store->load().value(), expected);
    EXPECT_LE(fake.ops_most, 40u);
    if (GetParam() != Kind::kEtcd) return;
    for (nvme::VolumeId id = 2'600; id < 6'000; ++id) many.put_volumes.push_back(sample_volume(id));
    const auto refused = store->save(many);
    ASSERT_FALSE(refused.ok()) << "1.5 MiB are the limit of a request to etcd";
    EXPECT_EQ(refused.error().code, Errc::kNoSpace) << refused.error().message;
    EXPECT_NE(refused.error().message.find("--max-request-bytes"), std::string::npos)
        << refused.error().message;
    expect_equal(store->load().value(), expected);
    EXPECT_TRUE(store->save(sample_change()).ok());
}

TEST_P(RecordStoreTest, ACopyOfAllRecordsIsTheRecords) {
    Records expected;
    apply(expected, sample_change());
    const auto store = open();
    ASSERT_TRUE(store->load().ok());
    ASSERT_TRUE(store->save(change_to(expected)).ok());
    expect_equal(store->load().value(), expected);
}

std::string name_of(const ::testing::TestParamInfo<Kind>& kind) {
    return kind.param == Kind::kSqlite ? "Sqlite" : kind.param == Kind::kEtcd ? "Etcd" : "FakeEtcd";
}
INSTANTIATE_TEST_SUITE_P(Stores, RecordStoreTest,
                         ::testing::Values(Kind::kSqlite, Kind::kFakeEtcd, Kind::kEtcd), name_of);

}  // namespace
