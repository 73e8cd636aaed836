// events_test.cpp: what happens to an array becomes events, once each; nothing else does; the newest are kept.
#include "daemon/decisions/events.hpp"
#include "daemon/decisions/in_process.hpp"
#include "daemon/manager_rig.hpp"

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace gnstor::daemon::test::events_test {

using Codes = std::vector<std::string>;

TEST(EventRing, KeepsTheNewestThousandAndNumbersThemWithoutGaps) {
    EventRing ring;
    EXPECT_EQ(ring.since(0).first, 0u);
    EXPECT_EQ(ring.since(0).last, 0u);
    for (std::uint64_t i = 1; i <= 2'500; ++i) ring.add({.text = std::to_string(i)});
    const EventPage all = ring.since(0);
    ASSERT_EQ(all.events.size(), kEventsMax);
    EXPECT_EQ(all.first, 1'501u);
    EXPECT_EQ(all.last, 2'500u);
    for (std::size_t i = 0; i < all.events.size(); ++i) {
        EXPECT_EQ(all.events[i].number, 1'501 + i);
        EXPECT_EQ(all.events[i].text, std::to_string(1'501 + i));
    }
}

TEST(EventRing, GivesWhatIsNewerAndAllAfterARestart) {
    EventRing ring;
    for (int i = 0; i < 5; ++i) ring.add({});
    EXPECT_EQ(ring.since(3).events.size(), 2u);
    EXPECT_EQ(ring.since(3).events.front().number, 4u);
    EXPECT_EQ(ring.since(5).events.size(), 0u);
    EXPECT_EQ(ring.since(6).events.size(), 5u) << "number 6 was given out before a restart";
    EXPECT_EQ(ring.since(~0ull).events.size(), 5u);
}

class EventsTest : public ManagerTest {
  protected:
    void SetUp() override {
        options.grant_ms = kGrantMs;
        options.lease_ms = 100'000;
        start();
        alice = client("alice");
        (void)look();
    }
    /// What is new since the last look: one event, or none.
    std::vector<Event> look(Observed after = Observed::kCall) {
        recorder.observe(manager->info(now), after, false, now + 7);
        std::vector<Event> fresh = recorder.since(seen).events;
        seen = recorder.since(0).last;
        return fresh;
    }
    static Codes codes(const std::vector<Event>& events) {
        Codes all;
        for (const Event& event : events)
            if (event.health.empty()) all.emplace_back(event.code);
        return all;
    }
    Codes looked(Observed after = Observed::kCall) { return codes(look(after)); }
    /// As gnstord does: a tick each second, and a look after each.
    Codes pass(std::uint64_t ms) {
        Codes all;
        for (; ms > 0; ms -= 1'000) {
            manager->tick(now += 1'000);
            for (std::string& code : looked(Observed::kTick)) all.push_back(std::move(code));
        }
        return all;
    }
    /// Until the slot is in the state.
    Codes pass_until(std::uint32_t slot, const std::string& wanted) {
        Codes all;
        for (int i = 0; i < 1'000 && state(slot) != wanted; ++i) {
            for (std::string& code : pass(1'000)) all.push_back(std::move(code));
            while (manager->copy_some(16)) {
            }
        }
        for (std::string& code : looked()) all.push_back(std::move(code));
        EXPECT_EQ(state(slot), wanted);
        return all;
    }

    EventRecorder recorder;
    std::uint64_t seen = 0;
    nvme::ClientId alice = 0;
};

TEST_F(EventsTest, TheFirstSaysThatGnstordStartedAndTellsNoneOfWhatWasThere) {
    ASSERT_TRUE(create(alice, "v").ok());
    EventRecorder fresh;
    fresh.observe(manager->info(now), Observed::kTick, false, 77);
    const EventPage page = fresh.since(0);
    EXPECT_EQ(codes(page.events), Codes{"DAEMON_STARTED"});
    EXPECT_EQ(page.started_ms, 77u);
    EXPECT_EQ(page.events.at(0).time_ms, 77u);
    EXPECT_EQ(page.events.at(0).text, "gnstord started: term 1, map 1, 4 slots, 1 volumes");
}

TEST_F(EventsTest, NothingHappensWhileNothingChanges) {
    ASSERT_TRUE(create(alice, "v").ok());
    ASSERT_TRUE(open(alice, "v").ok());
    (void)look();
    EXPECT_EQ(pass(60'000), Codes{});
    const auto record = manager->list_volumes().at(0);
    ASSERT_TRUE(manager->renew_lease(alice, record.geometry.volume, record.epoch, now).ok());
    EXPECT_EQ(pass(60'000), Codes{});
    EXPECT_TRUE(look().empty()) << "no finding came or went either";
}

TEST_F(EventsTest, VolumesAreCreatedAndDeletedAlsoUnderOneVid) {
    ASSERT_TRUE(create(alice, "v").ok());
    const std::vector<Event> made = look();
    ASSERT_EQ(codes(made), Codes{"VOLUME_CREATED"});
    EXPECT_EQ(made[0].volume, "v");
    EXPECT_EQ(made[0].client, "alice");
    EXPECT_EQ(made[0].time_ms, now + 7);
    EXPECT_EQ(made[0].text, "volume 'v' of 'alice' (VID 1) was created");
    ASSERT_TRUE(manager->delete_volume(alice, "v", now).ok());
    ASSERT_TRUE(create(alice, "w").ok());
    EXPECT_EQ(looked(), (Codes{"VOLUME_DELETED", "VOLUME_CREATED"}));
}

TEST_F(EventsTest, ALeaseThatExpiresIsToldAndOneThatIsReleasedIsNot) {
    const nvme::ClientId bob = client("bob");
    ASSERT_TRUE(create(alice, "v", true).ok());
    const auto opened = open(alice, "v");
    ASSERT_TRUE(opened.ok());
    (void)look();
    const nvme::VolumeId id = opened->record.geometry.volume;
    ASSERT_TRUE(manager->release_volume(alice, id, opened->record.epoch, ~0ull).ok());
    EXPECT_EQ(looked(), Codes{});
    ASSERT_TRUE(open(alice, "v").ok());
    ASSERT_TRUE(open(alice, "v").ok()) << "again, by the same client";
    EXPECT_EQ(looked(), Codes{});
    EXPECT_EQ(pass(101'000), Codes{"LEASE_EXPIRED"});
    ASSERT_TRUE(open(alice, "v").ok());
    (void)look();
    now += 100'001;
    ASSERT_TRUE(open(bob, "v").ok()) << "before a tick has ended alice's lease";
    const std::vector<Event> taken = look();
    ASSERT_FALSE(taken.empty());
    EXPECT_EQ(taken[0].code, "LEASE_EXPIRED");  // the SSDs, without a grant for so long, are silent
    EXPECT_EQ(taken[0].client, "alice");
    ASSERT_TRUE(manager->remove_client("bob", now).ok());
    EXPECT_EQ(looked(Observed::kTick), Codes{"CLIENT_REMOVED"}) << "which ends the lease, too";
}

TEST_F(EventsTest, ClientsAreAddedRemovedAndRotated) {
    ASSERT_TRUE(manager->add_client("bob").ok());
    EXPECT_EQ(looked(), Codes{"CLIENT_ADDED"});
    ASSERT_TRUE(manager->rotate_client("bob", now).ok());
    EXPECT_EQ(looked(), Codes{"CLIENT_ROTATED"});
    ASSERT_TRUE(manager->remove_client("bob", now).ok());
    EXPECT_EQ(looked(), Codes{"CLIENT_REMOVED"});
    EXPECT_EQ(looked(), Codes{});
    ASSERT_TRUE(manager->add_client("bob").ok());
    EXPECT_EQ(looked(), Codes{"CLIENT_ADDED"}) << "again, with other keys";
}

TEST_F(EventsTest, AnSsdFallsSilentIsOutComesBackAndIsFilled) {
    ASSERT_TRUE(create(alice, "v").ok());
    (void)look();
    refuse(2);
    array.flash[2]->was_out = true;
    EXPECT_EQ(pass_until(2, "out"), (Codes{"SSD_SILENT", "SSD_OUT"}));
    heal();
    EXPECT_EQ(pass_until(2, "in"), (Codes{"SSD_BACK", "SSD_FILLED"}));
    for (const Event& event : recorder.since(0).events)
        if (event.code.starts_with("SSD_")) {
            EXPECT_EQ(event.slot, 2u) << event.text;
        }
    EXPECT_EQ(pass(60'000), Codes{});
}

TEST_F(EventsTest, AnSsdThatIsSilentForAMomentServesAgain) {
    refuse(1);
    EXPECT_EQ(pass(4'000), Codes{"SSD_SILENT"});
    heal();
    EXPECT_EQ(pass(4'000), Codes{"SSD_BACK"});
}

TEST_F(EventsTest, AnSsdThatIsMissingAtTheStartIsSilentAndIsReplaced) {
    options.takes_out = false;
    ASSERT_TRUE(create(alice, "v").ok());
    manager.reset();
    const auto lost = std::move(array.flash[2]);
    array.flash[2] = std::make_unique<ModelFlash>();
    array.flash[2]->uuid[0] = 0xB0;
    start();
    recorder = EventRecorder();
    seen = 0;
    EXPECT_EQ(looked(Observed::kTick), (Codes{"DAEMON_STARTED", "SSD_SILENT"}));
    EXPECT_EQ(pass(12'000), Codes{});
    ASSERT_TRUE(manager->replace_ssd(2, now).ok());
    EXPECT_EQ(looked(), Codes{"SSD_REPLACED"});
    EXPECT_EQ(pass_until(2, "in"), Codes{"SSD_FILLED"});
}

TEST_F(EventsTest, FindingsOfReadingsStayUntilSsdsAreAskedAgain) {
    ArrayInfo info = manager->info(now);
    const auto health = [&](bool readings) {
        recorder.observe(info, Observed::kCall, readings, now);
        Codes all;
        for (const Event& event : recorder.since(seen).events)
            all.push_back(std::string(event.code) + " " + event.health);
        seen = recorder.since(0).last;
        return all;
    };
    info.ssds[1].used_blocks = info.ssds[1].capacity_blocks * 9 / 10;
    EXPECT_EQ(health(true), Codes{"HEALTH_FOUND GNS_NEARFULL"});
    EXPECT_EQ(health(true), Codes{});
    const std::uint64_t used = *info.ssds[1].used_blocks;
    info.ssds[1].used_blocks.reset();
    info.read_only = "no room";
    EXPECT_EQ(health(false), Codes{"HEALTH_FOUND GNS_READ_ONLY"});
    info.read_only.clear();
    info.ssds[1].used_blocks = used;
    EXPECT_EQ(health(true), Codes{"HEALTH_GONE GNS_READ_ONLY"});
    info.ssds[1].used_blocks = 0;
    EXPECT_EQ(health(true), Codes{"HEALTH_GONE GNS_NEARFULL"});
}

/// Who follows the events knows the volumes and clients.
TEST_F(EventsTest, VolumesAndClientsAreThoseThatTheEventsTell) {
    std::mt19937_64 random(3);
    std::set<std::string> volumes, clients{"alice"};
    for (int step = 0; step < 3'000; ++step) {
        const std::string name(1, static_cast<char>('a' + random() % 8));
        switch (random() % 5) {
            case 0:
                (void)create(alice, name).ok();
                break;
            case 1:
                (void)manager->delete_volume(alice, name, now).ok();
                break;
            case 2:
                (void)manager->add_client(name).ok();
                break;
            case 3:
                (void)manager->remove_client(name, now).ok();
                break;
            case 4:
                manager->tick(now += 1'000);
                break;
        }
        if (random() % 3 == 0) random() % 2 == 0 ? refuse(random() % 4) : heal();
        for (const Event& event : look()) {
            if (event.code == event::kVolumeCreated) {
                EXPECT_TRUE(volumes.insert(event.volume).second);
            }
            if (event.code == event::kVolumeDeleted) {
                EXPECT_EQ(volumes.erase(event.volume), 1u);
            }
            if (event.code == event::kClientAdded) {
                EXPECT_TRUE(clients.insert(event.client).second);
            }
            if (event.code == event::kClientRemoved) {
                EXPECT_EQ(clients.erase(event.client), 1u);
            }
        }
        std::set<std::string> there, in;
        for (const nvme::VolumeRecord& record : manager->list_volumes()) there.insert(record.name);
        for (const ClientInfo& client : manager->info(now).clients)
            if (!client.removed) in.insert(client.name);
        ASSERT_EQ(volumes, there) << step;
        ASSERT_EQ(clients, in) << step;
    }
    EXPECT_GT(seen, 500u);
}

TEST(EventsOfTheDaemon, FollowRequestsAndTicksAndAskSsdsOnceAMinute) {
    ModelArray array{4};
    std::uint64_t now = 1'000;
    int asked = 0;
    InProcessOptions options;
    options.tick = std::chrono::milliseconds(0);
    options.manager.grant_ms = kGrantMs;
    options.now_ms = [&] { return now; };
    options.wall_ms = [&] { return now + 1'000'000; };
    options.ssd_readings = [&](const SsdInfo& ssd) {
        ++asked;
        return SsdReadings{{}, ssd.capacity_blocks * 9 / 10, 80};
    };
    auto daemon =
        InProcessControlPlane::start(std::make_unique<MemoryRecordStore>(), array.ports(), options).value();
    const nvme::ClientId alice = daemon->register_client("alice")->id;
    ASSERT_TRUE(daemon->create_volume(alice, {"v", 4096}).ok());
    EventPage page = daemon->events_since(0);
    ASSERT_EQ(page.events.size(), 3u);
    EXPECT_EQ(page.events[0].code, event::kDaemonStarted);
    EXPECT_EQ(page.events[1].code, event::kClientAdded);
    EXPECT_EQ(page.events[2].code, event::kVolumeCreated);
    EXPECT_EQ(page.events[2].time_ms, 1'001'000u);
    EXPECT_EQ(page.started_ms, 1'001'000u);
    for (int s = 0; s < 59; ++s) {
        now += 1'000;
        daemon->tick();
    }
    EXPECT_EQ(asked, 0);
    EXPECT_EQ(daemon->events_since(3).events.size(), 0u);
    now += 1'000;
    daemon->tick();
    EXPECT_EQ(asked, 4);
    page = daemon->events_since(3);
    ASSERT_EQ(page.events.size(), 1u);
    EXPECT_EQ(page.events[0].health, "GNS_NEARFULL");
    (void)daemon->inspect();
    EXPECT_EQ(daemon->events_since(4).events.size(), 0u);
}

}  // namespace gnstor::daemon::test::events_test
