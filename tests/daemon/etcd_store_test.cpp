// etcd_store_test.cpp: records in etcd when requests are lost, delayed or refused, and when another daemon leads.
#include "daemon/records/etcd_store.hpp"
#include "daemon/fake_etcd.hpp"
#include "daemon/manager_rig.hpp"
#include "daemon/records/record_entries.hpp"
#include "support/count.hpp"

#include <random>

using namespace gnstor;
using namespace gnstor::daemon;
using namespace gnstor::daemon::test;

namespace {

const std::string kPrefix = "/gnstor/test";

/// A daemon's store, its port and its leadership.
struct Daemon {
    explicit Daemon(FakeEtcd& etcd) : leadership(std::make_shared<TestLeadership>(etcd, kPrefix)) {
        auto made = std::make_unique<FakePort>(etcd);
        port = made.get();
        store = std::make_unique<EtcdRecordStore>(std::move(made), kPrefix, leadership);
    }
    void lose(Loss loss, int requests = 1) {
        port->loss = [loss, left = requests]() mutable { return left-- > 0 ? loss : Loss::kNone; };
    }
    std::shared_ptr<TestLeadership> leadership;
    FakePort* port;
    std::unique_ptr<EtcdRecordStore> store;
};

Change term(std::uint64_t to) {
    Change change;
    change.term = to;
    return change;
}

class EtcdStoreTest : public ::testing::Test {
  protected:
    void SetUp() override {
        ASSERT_TRUE(a.store->load().ok());
        ASSERT_TRUE(a.store->save(term(1)).ok());
    }
    /// The daemon that takes over: the leader key of the one before has ended.
    Daemon next() {
        etcd.keys.erase(leader_key(kPrefix));
        ++etcd.revision;
        return Daemon(etcd);
    }
    FakeEtcd etcd;
    Daemon a{etcd};
};

TEST_F(EtcdStoreTest, ASupersededDaemonStoresNothingAndSaysSo) {
    Daemon b = next();
    ASSERT_TRUE(b.store->load().ok());
    ASSERT_TRUE(b.store->save(term(2)).ok());
    const auto refused = a.store->save(term(9));
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Errc::kState);
    EXPECT_NE(refused.error().message.find("another gnstord has taken over"), std::string::npos);
    EXPECT_TRUE(a.leadership->ended);
    EXPECT_EQ(b.store->load()->term, 2u);
    EXPECT_EQ(next().store->load()->term, 2u);
}

TEST_F(EtcdStoreTest, ADaemonIsSupersededFromTheElectionOfAnotherOneOnWhateverThatHasDoneSince) {
    Daemon b = next();
    const auto refused = a.store->save(term(9));
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Errc::kState);
    EXPECT_EQ(b.store->load()->term, 1u);
}

TEST_F(EtcdStoreTest, ALostAnswerIsInDoubtUntilItIsReadAgain) {
    a.lose(Loss::kAnswer);
    const auto saved = a.store->save(term(2));
    ASSERT_FALSE(saved.ok());
    EXPECT_NE(saved.error().message.find("not known whether"), std::string::npos) << saved.error().message;
    EXPECT_FALSE(a.store->save(term(3)).ok()) << "nothing may be based on records that are in doubt";
    EXPECT_EQ(a.store->load()->term, 2u);
    EXPECT_TRUE(a.store->save(term(3)).ok());
    EXPECT_EQ(next().store->load()->term, 3u);
}

TEST_F(EtcdStoreTest, ADelayedChangeIsNeverStoredAfterItWasReadAsNotStored) {
    a.lose(Loss::kDelayed);
    ASSERT_FALSE(a.store->save(term(2)).ok());
    EXPECT_EQ(a.store->load()->term, 1u);
    a.port->deliver_late();
    EXPECT_EQ(next().store->load()->term, 1u);
}

TEST_F(EtcdStoreTest, ADelayedChangeOfADaemonIsNeverStoredUnderItsSuccessor) {
    a.lose(Loss::kDelayed);
    ASSERT_FALSE(a.store->save(term(2)).ok());
    Daemon b = next();
    ASSERT_EQ(b.store->load()->term, 1u);
    a.port->deliver_late();
    ASSERT_TRUE(b.store->save(term(5)).ok());
    EXPECT_EQ(next().store->load()->term, 5u);
}

TEST_F(EtcdStoreTest, AChangeThatTwoServersWereAskedForIsStoredOnce) {
    const auto revision = etcd.revision;
    a.lose(Loss::kTwice);
    const auto saved = a.store->save(term(2));
    ASSERT_TRUE(saved.ok()) << saved.error().message;
    EXPECT_EQ(etcd.revision, revision + 1);
    EXPECT_TRUE(a.store->save(term(3)).ok());
}

TEST_F(EtcdStoreTest, WhatWasNotSentOrRefusedIsNotStoredAndTheRecordsStayKnown) {
    for (const Loss loss : {Loss::kNotSent, Loss::kRefused}) {
        a.lose(loss, 100);
        const auto saved = a.store->save(term(2));
        ASSERT_FALSE(saved.ok());
        EXPECT_EQ(saved.error().code, loss == Loss::kNotSent ? Errc::kIo : Errc::kNoSpace);
        const auto requests = etcd.requests;
        ASSERT_TRUE(a.store->load().ok()) << "the records are known while etcd is away";
        EXPECT_EQ(a.store->load()->term, 1u);
        EXPECT_EQ(etcd.requests, requests);
    }
    a.port->loss = nullptr;
    EXPECT_TRUE(a.store->save(term(2)).ok());
}

TEST_F(EtcdStoreTest, ARestoredSnapshotEndsTheLeadershipInsteadOfBeingAdopted) {
    for (const bool in_doubt : {false, true}) {
        FakeEtcd now;
        Daemon one(now);
        ASSERT_TRUE(one.store->load().ok());
        ASSERT_TRUE(one.store->save(term(1)).ok());
        const auto keys = now.keys;
        const auto revision = now.revision;
        for (std::uint64_t next = 2; next < 9; ++next) ASSERT_TRUE(one.store->save(term(next)).ok());
        if (in_doubt) {
            one.lose(Loss::kAnswer);
            ASSERT_FALSE(one.store->save(term(9)).ok());
        }
        now.keys = keys;  // the leader key as well
        now.revision = revision;
        const Errc code = in_doubt ? one.store->load().error().code : one.store->save(term(9)).error().code;
        EXPECT_EQ(code, Errc::kState) << "only a start merges older records with those of the SSDs";
        EXPECT_TRUE(one.leadership->ended);
        EXPECT_FALSE(one.store->load().ok()) << "nothing may be read from what was restored";
    }
}

TEST_F(EtcdStoreTest, NothingIsSentWhileItIsNotKnownWhoLeads) {
    a.leadership->known = error(Errc::kIo, "etcd is late");
    const auto requests = etcd.requests;
    EXPECT_EQ(a.store->save(term(2)).error().message, "etcd is late");
    EXPECT_EQ(etcd.requests, requests);
    a.leadership->known = {};
    EXPECT_TRUE(a.store->save(term(2)).ok());
}

TEST_F(EtcdStoreTest, ADamagedEntryIsRefusedByName) {
    for (auto& [key, kv] : etcd.keys) {
        if (!key.starts_with(kPrefix + "/records/")) continue;
        for (std::size_t i = 0; i < kv.value.size(); ++i) {
            kv.value[i] = static_cast<char>(kv.value[i] ^ 0x10);
            const auto loaded = next().store->load();
            ASSERT_FALSE(loaded.ok()) << key << " byte " << i;
            EXPECT_NE(loaded.error().message.find("the entry term"), std::string::npos)
                << loaded.error().message;
            kv.value[i] = static_cast<char>(kv.value[i] ^ 0x10);
        }
    }
    EXPECT_TRUE(next().store->load().ok());
}

TEST_F(EtcdStoreTest, WhateverIsLostNoAcknowledgedChangeIsAndNoUnknownOneComesLater) {
    std::mt19937_64 random(20261128);
    std::uint64_t acknowledged = 0, lost = 0;
    std::unique_ptr<Daemon> one = std::make_unique<Daemon>(next());
    std::uint64_t known = one->store->load()->term;
    for (int step = 0; step < 20'000; ++step) {
        one->port->loss = [&] {
            const std::uint64_t dice = random() % 10;
            lost += dice < 5 ? 1 : 0;
            return dice < 5 ? static_cast<Loss>(1 + dice) : Loss::kNone;
        };
        if (random() % 50 == 0) {
            auto before = std::move(one);
            one = std::make_unique<Daemon>(next());
            const auto loaded = one->store->load();
            ASSERT_TRUE(loaded.ok());
            ASSERT_GE(loaded->term, known);
            before->port->deliver_late();
            known = loaded->term;
            continue;
        }
        if (random() % 4 == 0) one->port->deliver_late();
        const auto loaded = one->store->load();
        if (!loaded.ok()) continue;
        ASSERT_TRUE(loaded->term == known || loaded->term == known + 1);
        known = loaded->term;
        if (!one->store->save(term(known + 1)).ok()) continue;
        ++known;
        ++acknowledged;
    }
    one->port->deliver_late();
    EXPECT_EQ(next().store->load()->term, known);
    EXPECT_GT(lost, 5'000u);
    gnstor::test::count("etcd_store_acknowledged", acknowledged);
}

/// The Manager over a store in etcd.
class EtcdManagerTest : public ManagerTest {
  protected:
    void SetUp() override { lead(); }
    void lead() {
        etcd.keys.erase(leader_key(kPrefix));
        ++etcd.revision;
        one = std::make_unique<Daemon>(etcd);
        store = std::move(one->store);
        options.grant_ms = kGrantMs;
        start();
    }
    FakeEtcd etcd;
    std::unique_ptr<Daemon> one;
};

TEST_F(EtcdManagerTest, ASupersededManagerChangesNothingAndGrantsNothing) {
    const auto alice = client("alice");
    ASSERT_TRUE(create(alice, "v").ok());
    one->leadership->ended = true;
    const auto sent = array.flash[0]->commands;
    manager->tick(now += 5'000);
    EXPECT_EQ(array.flash[0]->commands, sent) << "no grant is renewed";
    expect_error(create(alice, "w"), Errc::kState, "was superseded");
    EXPECT_NE(manager->info(now).superseded, "");
}

TEST_F(EtcdManagerTest, WhileEtcdIsAwayReadingGoesOnAndChangesAreRefusedUntilItIsBack) {
    const auto alice = client("alice");
    ASSERT_TRUE(create(alice, "v").ok());
    one->leadership->known = error(Errc::kIo, "etcd has not renewed the lease");
    manager->tick(now += 1'000);
    EXPECT_NE(manager->read_only(), "");
    EXPECT_TRUE(open(alice, "v", client::OpenMode::kRead).ok());
    expect_error(create(alice, "w"), Errc::kIo, "etcd has not renewed the lease");
    one->leadership->known = {};
    manager->tick(now += 1'000);
    EXPECT_EQ(manager->read_only(), "");
    EXPECT_TRUE(create(alice, "w").ok());
}

TEST_F(EtcdManagerTest, WhileEtcdIsAwayGrantsGoOnAsLongAsEverySsdTakesThisDaemonForTheNewest) {
    ASSERT_TRUE(create(client("alice"), "v").ok());
    one->leadership->known = error(Errc::kIo, "etcd has not renewed the lease");
    const auto all_serve = [this] {
        const ArrayInfo info = manager->info(now);
        return std::ranges::all_of(info.ssds, [](const SsdInfo& ssd) { return ssd.serves; });
    };
    for (int i = 0; i < 10; ++i) {
        let_pass(kBoundMs);
        EXPECT_TRUE(all_serve());
    }
    // One that is silent may have seen another daemon.
    refuse(2);
    let_pass(2 * kBoundMs);
    for (const SsdInfo& ssd : manager->info(now).ssds) EXPECT_FALSE(ssd.serves) << ssd.slot;
    heal();
    let_pass(2'000);
    EXPECT_TRUE(all_serve());
    // One that has seen a newer term ends it for all.
    array.flash[3]->term += 1;
    const auto before = array.drives[0]->grants;
    let_pass(2 * kBoundMs);
    EXPECT_EQ(array.drives[0]->grants, before);
    EXPECT_NE(manager->info(now).superseded, "");
}

TEST_F(EtcdManagerTest, WhileEtcdIsAwayAnSsdIsGrantedOnlyIfEveryOtherOneWasAskedAfterIt) {
    ASSERT_TRUE(create(client("alice"), "v").ok());
    one->leadership->known = error(Errc::kIo, "etcd has not renewed the lease");
    std::vector<std::uint32_t> before;
    for (const auto& drive : array.drives) before.push_back(drive->grants);
    // A successor reaches SSD 0 right after that was granted.
    bool reached = false;
    array.drives[0]->fault = [&](bool after) {
        if (after && !reached && array.drives[0]->grants > before[0]) {
            reached = true;
            array.flash[0]->term += 1;
        }
        return Fault::kNone;
    };
    let_pass(kGrantMs);
    EXPECT_TRUE(reached);
    for (std::uint32_t s = 1; s < 4; ++s) EXPECT_EQ(array.drives[s]->grants, before[s]) << s;
    EXPECT_NE(manager->info(now).superseded, "");
}

TEST_F(EtcdManagerTest, ASuccessorTakesEveryGrantForOpenUntilAnSsdHasItsTerm) {
    ASSERT_TRUE(create(client("alice"), "v").ok());
    manager->tick(now);
    manager.reset();
    array.boot();
    for (std::uint32_t s = 0; s < 4; ++s) refuse(s);
    etcd.keys.erase(leader_key(kPrefix));
    ++etcd.revision;
    one = std::make_unique<Daemon>(etcd);
    store = std::move(one->store);
    auto started = Manager::start(*store, array.ports(), options, now);
    ASSERT_TRUE(started.ok()) << started.error().message;
    manager = std::move(started).value();
    let_pass(3 * kBoundMs);
    // The predecessor may have granted all the time, as no SSD has refused it.
    for (std::uint32_t s = 0; s < 3; ++s) array.drives[s]->fault = nullptr;
    let_pass(4'000);
    EXPECT_EQ(state(3), "in");
    let_pass(kBoundMs + 3'000);
    EXPECT_EQ(state(3), "out");
}

TEST_F(EtcdManagerTest, ADaemonThatCannotStoreItsTermDoesNotStart) {
    manager.reset();
    array.boot();
    etcd.keys.erase(leader_key(kPrefix));
    ++etcd.revision;
    Daemon other(etcd);
    int sent = 0;
    other.port->loss = [&sent] { return sent++ < 2 ? Loss::kNone : Loss::kRefused; };
    expect_error(Manager::start(*other.store, array.ports(), options, now), Errc::kNoSpace, "etcd is full");
}

}  // namespace
