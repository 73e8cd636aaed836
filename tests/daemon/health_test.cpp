// health_test.cpp: every code is reported for its condition and for nothing else; what is said about volumes
// agrees with placement.
#include "daemon/decisions/health.hpp"
#include "daemon/decisions/nvmf_ssd_port.hpp"
#include "daemon/manager_rig.hpp"

#include <gnstor/placement/placement.hpp>

#include <algorithm>
#include <random>
#include <set>

using namespace gnstor;
using namespace gnstor::daemon;
using namespace gnstor::daemon::test;

namespace {

using Codes = std::vector<std::string>;

Codes codes_of(const ArrayInfo& info) {
    Codes codes;
    for (const HealthFinding& finding : health_of(info)) codes.emplace_back(finding.code->name);
    return codes;
}

/// Four SSDs that serve, each a failure domain, with a volume of each number of replicas.
ArrayInfo healthy() {
    ArrayInfo info;
    info.map_in_force = true;
    for (std::uint32_t s = 0; s < 4; ++s) {
        SsdInfo ssd;
        ssd.slot = ssd.domain = s;
        ssd.state = "in";
        ssd.serves = true;
        ssd.serial = "GN" + std::to_string(s);
        ssd.capacity_blocks = 1000;
        ssd.used_blocks = 0;
        ssd.spare_percent = 100;
        ssd.counters = {{"reads", 5}, {"media_errors", 0}, {"lost_blocks", 0}};
        info.ssds.push_back(ssd);
    }
    info.ssds.emplace_back().state = "spare";  // serves nothing, and need not
    for (const char* name : {"one", "two", "three"})
        info.listed_volumes.push_back({name, static_cast<std::uint32_t>(info.listed_volumes.size() + 1)});
    info.volumes = 3;
    return info;
}

const HealthFinding& found(const std::vector<HealthFinding>& findings, std::string_view code) {
    const auto it =
        std::ranges::find(findings, code, [](const HealthFinding& finding) { return finding.code->name; });
    EXPECT_NE(it, findings.end()) << code;
    return *it;
}

TEST(Health, AHealthyArrayHasNoFindingAlsoWithASpare) {
    EXPECT_EQ(codes_of(healthy()), Codes{});
    EXPECT_EQ(worst_of({}), Severity::kOk);
}

TEST(Health, EveryCodeHasItsOwnNameAndSaysWhatItMeansAndWhatToDo) {
    std::set<std::string_view> names;
    for (const HealthCode& code : health_codes()) {
        EXPECT_TRUE(code.name.starts_with("GNS_"));
        EXPECT_TRUE(names.insert(code.name).second) << code.name;
        EXPECT_TRUE(code.meaning.ends_with('.') && code.action.ends_with('.')) << code.name;
        EXPECT_NE(code.severity, Severity::kOk) << code.name;
    }
    EXPECT_TRUE(std::ranges::is_sorted(health_codes(), std::greater{}, &HealthCode::severity))
        << "errors come first";
}

TEST(Health, AnSsdThatDoesNotServeIsDownWithTheReasonAndItsVolumesAreNamed) {
    ArrayInfo info = healthy();
    info.ssds[1].serves = false;
    info.ssds[1].trouble = "its node does not answer";
    EXPECT_EQ(codes_of(info), (Codes{"GNS_UNREADABLE", "GNS_SLOT_DOWN", "GNS_DEGRADED"}));
    const auto findings = health_of(info);
    EXPECT_EQ(found(findings, "GNS_SLOT_DOWN").details, Codes{"slot 1 (GN1): its node does not answer"});
    EXPECT_EQ(found(findings, "GNS_UNREADABLE").details, Codes{"volume 'one', 1 replica"});
    EXPECT_EQ(found(findings, "GNS_DEGRADED").details,
              (Codes{"volume 'two', 2 replicas", "volume 'three', 3 replicas"}));
    EXPECT_EQ(worst_of(findings), Severity::kError);
    info.listed_volumes.clear();
    EXPECT_EQ(codes_of(info), Codes{"GNS_SLOT_DOWN"}) << "without volumes nothing is degraded";
}

TEST(Health, AnOlderCopyOfAStoreIsNamedAsSuchAndNotAsAnSsdThatIsDown) {
    ArrayInfo info = healthy();
    info.listed_volumes = {{"two", 2}};
    info.ssds[2].serves = false;
    info.ssds[2].state = "stale";
    info.ssds[2].trouble = "the store is an older copy";
    EXPECT_EQ(codes_of(info), (Codes{"GNS_STALE_STORE", "GNS_DEGRADED"}));
}

TEST(Health, NearlyFullAndFullBeginAtTheirPercents) {
    ArrayInfo info = healthy();
    const auto with = [&](std::uint64_t used) {
        info.ssds[3].used_blocks = used;
        return codes_of(info);
    };
    EXPECT_EQ(with(849), Codes{});
    EXPECT_EQ(with(850), Codes{"GNS_NEARFULL"});
    EXPECT_EQ(with(949), Codes{"GNS_NEARFULL"});
    EXPECT_EQ(with(950), Codes{"GNS_FULL"});
    EXPECT_EQ(with(1000), Codes{"GNS_FULL"});
    info.ssds[3].used_blocks.reset();
    EXPECT_EQ(codes_of(info), Codes{}) << "an SSD that cannot be asked is not called full";
    info.ssds[3].capacity_blocks = 0;
    EXPECT_EQ(with(5), Codes{}) << "an unknown capacity is no reason to divide by it";
}

TEST(Health, MediaErrorsAndLittleSpareAreWarnings) {
    ArrayInfo info = healthy();
    info.ssds[0].spare_percent = kSpareLowPercent;
    EXPECT_EQ(codes_of(info), Codes{});
    info.ssds[0].spare_percent = kSpareLowPercent - 1;
    EXPECT_EQ(codes_of(info), Codes{"GNS_SPARE_LOW"});
    info = healthy();
    info.ssds[2].counters = {{"bad_units", 3}};
    EXPECT_EQ(codes_of(info), Codes{}) << "retired erase units lose no data; the spare that is left counts";
    for (const char* counter :
         {"media_errors", "lost_blocks", "doubtful_blocks", "doubtful_volumes", "scrub_bad_pages"}) {
        info.ssds[2].counters = {{"reads", 9}, {counter, 7}};
        EXPECT_EQ(codes_of(info), Codes{"GNS_MEDIA_ERRORS"}) << counter;
        EXPECT_EQ(worst_of(health_of(info)), Severity::kWarning);
        EXPECT_NE(health_of(info)[0].details.at(0).find("slot 2 (GN2): 7 "), std::string::npos);
    }
}

TEST(Health, OfAnSsdOfAnOlderVersionUseAndSpareAreUnknownAndNotZero) {
    nvme::SsdCountersLog log{};
    log.version = 1;
    log.reads = 5;
    EXPECT_EQ(readings_from(log).counters.at(0), (std::pair<std::string, std::uint64_t>("reads", 5)));
    EXPECT_FALSE(readings_from(log).used_blocks || readings_from(log).spare_percent);
    log.version = nvme::kCountersLogVersion;
    log.mapped_blocks = 7;
    log.available_spare_percent = 90;
    EXPECT_EQ(readings_from(log).used_blocks, 7u);
    EXPECT_EQ(readings_from(log).spare_percent, 90u);
}

TEST(Health, TheDaemonsOwnTroublesComeFirst) {
    ArrayInfo info = healthy();
    info.map_in_force = false;
    info.pending_changes = 2;
    info.read_only = "the disk is full";
    EXPECT_EQ(codes_of(info), (Codes{"GNS_READ_ONLY", "GNS_MAP_PENDING", "GNS_CHANGES_PENDING"}));
    EXPECT_EQ(health_of(info)[0].summary, "the disk is full");
    EXPECT_EQ(health_of(info)[2].summary, "2 changes are not in force on every SSD");
}

TEST(Health, AGnstordThatWasSupersededSaysNothingOfAnArrayThatItDoesNotServe) {
    ArrayInfo info = healthy();
    info.map_in_force = false;
    for (SsdInfo& ssd : info.ssds) ssd.serves = false;
    info.superseded = "another one has taken over";
    EXPECT_EQ(codes_of(info), Codes{"GNS_SUPERSEDED"});
}

TEST(Health, AnSsdThatServesAndRefusedACommandIsNamedWithTheReason) {
    ArrayInfo info = healthy();
    info.ssds[0].trouble = "its table is full";
    EXPECT_EQ(codes_of(info), Codes{"GNS_SSD_TROUBLE"});
    EXPECT_EQ(health_of(info)[0].details, Codes{"slot 0 (GN0): its table is full"});
}

TEST(Health, AFindingOfVeryManyVolumesIsCutAndSaysHowManyAreLeftOut) {
    ArrayInfo info = healthy();
    info.ssds[1].serves = false;
    info.listed_volumes.assign(70'000, {"v", 2});
    const HealthFinding finding = found(health_of(info), "GNS_DEGRADED");
    EXPECT_EQ(finding.summary,
              "volumes that may have data with fewer replicas served than asked for: 70000 of 70000");
    ASSERT_EQ(finding.details.size(), kDetailsMax + 1);
    EXPECT_EQ(finding.details.back(), "and 69900 more");
}

/// The oracle is placement itself: with so many chunks every set of replicas that can occur does.
TEST(Health, AVolumeMayLackAllReplicasExactlyWherePlacementPutsAllOfAChunkOnSilentSsds) {
    std::mt19937_64 random(20);
    int lacking = 0, trials = 0;
    for (int trial = 0; trial < 300; ++trial) {
        placement::ArrayMap map{};
        map.version = 1;
        map.slot_count = 2 + random() % 5;
        std::vector<SsdInfo> ssds;
        for (std::uint32_t s = 0; s < map.slot_count; ++s) {
            map.slots[s] = {placement::SlotState::kIn, 0, static_cast<std::uint16_t>(random() % 4), 1000, {}};
            SsdInfo ssd;
            ssd.slot = s;
            ssd.domain = map.slots[s].domain;
            ssd.serves = random() % 2 == 0;
            ssds.push_back(ssd);
        }
        for (std::uint8_t replicas = 1; replicas <= std::min(4u, map.slot_count); ++replicas) {
            const placement::VolumeGeometry volume{random(), std::uint64_t{1} << 32, 7, 4, replicas, 0};
            bool lacks = false;
            for (std::uint32_t chunk = 0; chunk < 2'000 && !lacks; ++chunk) {
                const placement::Replicas at = placement::place(map, volume, chunk);
                lacks =
                    std::none_of(at.slot, at.slot + at.count, [&](std::uint8_t s) { return ssds[s].serves; });
            }
            EXPECT_EQ(may_lack_all_replicas(ssds, replicas), lacks)
                << "trial " << trial << ", " << int{replicas} << " replicas";
            ++trials;
            lacking += lacks ? 1 : 0;
        }
    }
    EXPECT_GT(lacking, trials / 10);
    EXPECT_LT(lacking, trials * 9 / 10);
}

class HealthOfArrayTest : public ManagerTest {
  protected:
    void SetUp() override {
        options.grant_ms = kGrantMs;
        start();
        ASSERT_TRUE(create(client("alice"), "v").ok());
        let_pass(1'000);
    }
    [[nodiscard]] Codes codes() const { return codes_of(manager->info(now)); }
};

TEST_F(HealthOfArrayTest, AnSsdIsDownFromItsFirstMissedGrantToTheNextOneThatItTakes) {
    EXPECT_EQ(codes(), Codes{});
    refuse(2);
    let_pass(kGrantMs / 3 + 1'000);
    EXPECT_EQ(codes(), (Codes{"GNS_SLOT_DOWN", "GNS_DEGRADED", "GNS_MAP_PENDING"}));
    heal();
    let_pass(kGrantMs / 3 + 1'000);
    EXPECT_EQ(codes(), Codes{}) << "the SSD takes grants again, so its trouble is over";
    for (const SsdInfo& ssd : manager->info(now).ssds) EXPECT_EQ(ssd.trouble, "");
}

TEST_F(HealthOfArrayTest, SsdsWhoseGrantsRunOutBecauseTheRecordsCannotBeReadAreDown) {
    manager.reset();
    auto flaky = std::make_unique<FlakyStore>();
    FlakyStore& records = *flaky;
    store = std::move(flaky);
    array = ModelArray(4);
    start();
    ASSERT_TRUE(create(client("alice"), "v").ok());
    let_pass(1'000);
    EXPECT_EQ(codes(), Codes{});
    records.broken = true;
    EXPECT_FALSE(manager->register_client("bob").ok());
    let_pass(kBoundMs + 1'000);
    EXPECT_EQ(codes(), (Codes{"GNS_READ_ONLY", "GNS_UNREADABLE", "GNS_SLOT_DOWN"}));
    records.broken = false;
    let_pass(kGrantMs);
    EXPECT_EQ(codes(), Codes{});
}

TEST_F(HealthOfArrayTest, AnSsdWhoseConnectionHasEndedDoesNotPassForOneThatServes) {
    let_pass(kGrantMs);
    ASSERT_EQ(codes(), Codes{});
    array.drives[1]->disconnected = true;
    EXPECT_EQ(codes(), (Codes{"GNS_SLOT_DOWN", "GNS_DEGRADED"}));
    const std::uint32_t grants = array.drives[1]->grants;
    manager->tick(now += 1);
    EXPECT_EQ(codes(), Codes{});
    EXPECT_GT(array.drives[1]->grants, grants) << "it is asked at once";
}

TEST_F(HealthOfArrayTest, AMissingSsdIsOutWhenItsGrantHasEnded) {
    manager.reset();
    array.boot();
    auto ports = array.ports();
    ports.erase(ports.begin() + 1);
    manager = Manager::start(*store, ports, options, now).value();
    let_pass(kBoundMs + 1'000);  // changes wait until grants from before the start have ended
    EXPECT_EQ(codes(), (Codes{"GNS_SLOT_OUT", "GNS_DEGRADED"}));
}

}  // namespace
