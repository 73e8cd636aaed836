// sim_test.cpp: the daemon's decisions under seeded faults: refused commands, lost answers, crashes before
// and after every store and drive operation, restarts, lost stores, full and missing drives, time that jumps.
// GN_SEED=<n> replays one seed; GN_SIM_FIRST and GN_SIM_SEEDS say where to begin and how many to run.
//
// Invariants, checked after every step: drives' own (model_ssd.hpp: terms, epochs, versions, reborn VIDs); a
// confirmed opening for writing fences every earlier one on every drive; no second client is let in before a
// lease ends; what was acknowledged or listed (volumes, shares, lengths, deletions) is there after any
// restart, with or without the store; when faults cease, everything settles and all drives are equal. Of
// clients (docs/array.md, rule 19): no drive lets in a client under a key whose end was acknowledged or whose
// records were lost, and no client gets such a key back; a name has one id while the store lives. With grants, a drive
// at a time is silent for a while: none is taken out while it may hold a grant (rule 10), a drive without a grant need
// not be fenced, and when faults cease every drive is *in* again.
#include "daemon/chaos.hpp"
#include "daemon/decisions/manager.hpp"
#include "support/count.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

using namespace gnstor;
using namespace gnstor::daemon;
using namespace gnstor::daemon::test;

namespace {

/// What was acknowledged to somebody.
struct Known {
    nvme::VolumeId id = 0;
    nvme::ClientId owner = 0;
    std::set<nvme::ClientId> readers;
    nvme::Epoch epoch = 0;      ///< highest that a client was told
    nvme::ClientId writer = 0;  ///< of the lease that may still stand
    std::uint64_t lease_end = 0;
    std::uint64_t length = 0;
    bool length_known = true, deleting = false;
    bool reopened = false;                ///< its writer has asked for it again, and was not answered
    std::set<nvme::ClientId> excluded{};  ///< their sharing has ended, and nobody asked for another
};

class Simulation {
  public:
    explicit Simulation(std::uint64_t seed, std::uint32_t grant_ms = 0)
        : seed_(seed), chaos_(seed), array_(3) {
        array_.authenticate({0, 1});
        options_.grant_ms = grant_ms;
        for (auto& flash : array_.flash) flash->was_out = grant_ms != 0;
    }

    void run(int steps) {
        start();
        for (int i = 0; i < steps && !::testing::Test::HasFailure(); ++i) {
            now_ += chaos_.random.below(120);
            try {
                if (options_.grant_ms != 0) pass_with_grants();
                step();
            } catch (const Crash&) {
                manager_.reset();
                if (chaos_.random.below(4) == 0) lose_store();
                start();
            }
            check();
        }
        settle();
    }
    [[nodiscard]] const Chaos& chaos() const { return chaos_; }
    std::uint64_t acknowledged = 0, refused = 0, rebuilt = 0, starts = 0, second_writers = 0, looked = 0;
    std::uint64_t starts_without_a_drive = 0, keys_ended = 0, outs = 0, backs = 0, unshared = 0;

  private:
    /// A drive falls silent or is heard again; the ticking thread's work.
    void pass_with_grants() {
        if (chaos_.random.below(40) == 0)
            silent_ = chaos_.random.below(3) == 0 ? kNone : chaos_.random.below(array_.drives.size());
        if (chaos_.random.below(4) == 0) manager_->tick(now_);
        (void)manager_->copy_some(8);
        note_grants();
    }
    /// As far as the drive itself knows. Without grants that end, always.
    [[nodiscard]] bool may_serve(std::size_t drive) const {
        return options_.grant_ms == 0 || now_ < granted_[drive] + options_.grant_ms;
    }
    /// A slot that is rebuilding is not read.
    [[nodiscard]] bool is_filled(std::size_t drive) const {
        if (options_.grant_ms == 0) return false;
        return std::ranges::any_of(manager_->info(now_).ssds, [drive](const SsdInfo& ssd) {
            return ssd.slot == drive && ssd.state == "rebuilding";
        });
    }
    void note_grants() {
        for (std::size_t d = 0; d < array_.drives.size(); ++d) {
            if (array_.drives[d]->grants != grants_[d]) granted_[d] = now_;
            grants_[d] = array_.drives[d]->grants;
        }
    }
    void check_out() {
        note_grants();
        for (const SsdInfo& ssd : manager_->info(now_).ssds) {
            if (ssd.slot >= array_.drives.size()) continue;
            const bool out = ssd.state == "out";
            if (out) {
                EXPECT_FALSE(may_serve(ssd.slot))
                    << "SSD " << ssd.slot << " is out with a grant; GN_SEED=" << seed_;
            }
            outs += out && !out_[ssd.slot] ? 1 : 0;
            backs += ssd.state == "in" && out_[ssd.slot] ? 1 : 0;
            if (out || ssd.state == "in") out_[ssd.slot] = out;
        }
    }
    void settle_grants() {
        silent_ = kNone;
        const auto settled = [&] {
            return std::ranges::all_of(manager_->info(now_).ssds,
                                       [](const SsdInfo& s) { return s.state == "in"; });
        };
        for (int i = 0; i < 400 && !settled(); ++i) {
            manager_->tick(now_ += 500);
            (void)manager_->copy_some(64);
        }
        for (const SsdInfo& ssd : manager_->info(now_).ssds)
            EXPECT_EQ(ssd.state, "in") << "SSD " << ssd.slot << " is not back; GN_SEED=" << seed_;
        check_out();
    }
    void lose_store() {
        store_ = MemoryRecordStore{};
        ended_.insert(given_.begin(), given_.end());
        ids_.clear();
    }

    void start() {
        // The daemon that ended may have closed an epoch for a client that opened its volume again: the next one does not
        // know whom it was for.
        for (auto& [name, k] : known_)
            if (k.reopened) k.writer = 0;
        for (int tries = 0; tries < 1000; ++tries) {
            if (tries > 50) silent_ = kNone;  // without records a start waits for all drives
            try {
                if (!array_.drives.empty()) note_grants();
                array_.boot();
                grants_.assign(array_.drives.size(), 0);
                for (std::size_t d = 0; d < array_.drives.size(); ++d)
                    array_.drives[d]->fault = [this, d](bool after) {
                        return d == silent_ ? Fault::kRefuse : chaos_.at(after);
                    };
                manager_.reset();
                chaos_store_ = std::make_unique<ChaosStore>(store_, chaos_);
                ++starts;
                auto started = Manager::start(*chaos_store_, ports(), options_, now_);
                if (!started.ok()) continue;  // a refused LIST while the store is empty: tried again
                rebuilt += started.value()->start_report().rebuilt ? 1 : 0;
                manager_ = std::move(started).value();
                return;
            } catch (const Crash&) {
            }
        }
        FAIL() << "the daemon never started; GN_SEED=" << seed_;
    }

    /// All of them, or all but one: only while the records are there and hold volumes, as without them a
    /// start refuses or makes an array of what is left.
    std::vector<SsdPort*> ports() {
        std::vector<SsdPort*> all = array_.ports();
        missing_ = kNone;
        if (!chaos_.on || store_.load()->volumes.empty() || chaos_.random.below(8) != 0) return all;
        missing_ = chaos_.random.below(all.size());
        ++starts_without_a_drive;
        all.erase(all.begin() + static_cast<std::ptrdiff_t>(missing_));
        return all;
    }

    /// A drive runs full, or has room again.
    void fill() {
        const std::size_t d = chaos_.random.below(array_.drives.size());
        array_.drives[d]->full = chaos_.random.below(3) == 0;
        array_.flash[d]->max_volumes = chaos_.random.below(4) == 0 ? 1 : 1024;
    }

    nvme::ClientId pick_client() {
        const std::string name = fmt::format("c{}", chaos_.random.below(3));
        auto registered = manager_->register_client(name);
        if (registered.ok()) return has_id(name, registered->id);
        if (registered.error().code != Errc::kPermission || chaos_.random.below(2) == 0) return 0;
        const auto added = manager_->add_client(name);  // it was removed
        return added.ok() ? has_id(name, added->identity.id) : 0;
    }
    nvme::ClientId has_id(const std::string& name, nvme::ClientId id) {
        EXPECT_EQ(ids_.try_emplace(name, id).first->second, id) << name << "; GN_SEED=" << seed_;
        return id;
    }

    /// Rotates or removes a client.
    void end_keys(const std::string& name) {
        const auto known = ids_.find(name);
        if (known == ids_.end()) return;
        const nvme::ClientId id = known->second;
        if (chaos_.random.below(2) == 0) {
            const auto rotated = manager_->rotate_client(name, now_);
            return rotated.ok() ? acknowledge_end(id, rotated->generation) : void(++refused);
        }
        for (auto& [volume, k] : known_)
            if (k.writer == id) k.writer = 0;  // ended, whether that is acknowledged or not
        const auto removed = manager_->remove_client(name, now_);
        removed.ok() ? acknowledge_end(id, 0) : void(++refused);
    }
    void acknowledge_end(nvme::ClientId id, std::uint32_t keep) {
        ++acknowledged;
        ++keys_ended;
        for (const auto& [client, generation] : given_)
            if (client == id && generation != keep) ended_.emplace(client, generation);
    }
    /// Also notes which generations are given out.
    void check_clients() {
        for (const nvme::ClientId id : {1, 2, 3, 4, 5, 6}) {
            const auto client = manager_->client_of(id);
            if (!client) continue;
            EXPECT_FALSE(ended_.contains({id, client->generation}))
                << "client " << id << "; GN_SEED=" << seed_;
            given_.emplace(id, client->generation);
        }
        for (const auto& drive : array_.drives)
            for (const auto& host : may_serve(drive->slot()) ? drive->hosts.value_or(Hosts{}) : Hosts{})
                EXPECT_FALSE(ended_.contains(host))
                    << "SSD " << drive->slot() << " lets client " << host.first << " in; GN_SEED=" << seed_;
    }

    void step() {
        const nvme::ClientId who = pick_client();
        if (who == 0) return;
        const std::string name = fmt::format("v{}", chaos_.random.below(3));
        const auto found = known_.find(name);
        switch (chaos_.random.below(16)) {
            case 0:
            case 1:
                return create(who, name);
            case 2:
                return remove(who, name);
            case 3:
                return share(who, name);
            case 4:
                return release(name);
            case 5:
                return renew(name);
            case 6:
                manager_->tick(now_);
                return;
            case 7:
                if (chaos_.random.below(4) != 0) return;
                manager_.reset();
                return start();
            case 8:
                now_ += chaos_.random.below(900);
                return;
            case 9:
                return fill();
            case 10:
                return look(who, name);
            case 11:
                return end_keys(fmt::format("c{}", chaos_.random.below(3)));
            case 12:
                return unshare(who, name);
            default:
                if (found != known_.end()) return open(who, name, found->second);
                // Not acknowledged, and perhaps half created: whatever comes of it, check() hears of it.
                (void)manager_->open_volume(who, name, client::OpenMode::kWrite, now_).ok();
        }
    }

    void create(nvme::ClientId who, const std::string& name) {
        client::CreateVolume request{name, 1 << 20};
        request.any_writer = name != "v2";
        auto made = manager_->create_volume(who, request);
        if (!made.ok()) return void(++refused);
        ++acknowledged;
        EXPECT_FALSE(known_.contains(name) && !known_[name].deleting)
            << "two volumes have the same name; GN_SEED=" << seed_;
        deleting_unheard_.erase(name);
        known_[name] = Known{made->geometry.volume, who, {}, made->epoch, 0, 0, made->byte_length};
    }

    void open(nvme::ClientId who, const std::string& name, Known& k) {
        const bool held = k.writer != 0 && k.writer != who && now_ < k.lease_end;
        second_writers += held ? 1 : 0;
        if (k.writer == who) k.reopened = true;
        const std::uint64_t asked = now_;
        Result<client::OpenedVolume> opened =
            manager_->open_volume(who, name, client::OpenMode::kWrite, now_);
        if (!opened.ok()) return void(++refused);
        ++acknowledged;
        k.reopened = false;
        const nvme::VolumeRecord& r = opened->record;
        if (k.deleting && (r.geometry.volume != k.id || r.birth_epoch > k.epoch)) {
            // The deletion nobody confirmed was done, and so was a creation that nobody confirmed: a new
            // life.
            k = Known{r.geometry.volume, r.owner, {}, r.birth_epoch, 0, 0, 0, false, false};
        } else {
            EXPECT_FALSE(held) << "two writers of " << name << "; GN_SEED=" << seed_;
        }
        EXPECT_GT(opened->record.epoch, k.epoch)
            << "the same epoch was given to two openings; GN_SEED=" << seed_;
        note_grants();
        for (std::size_t d = 0; d < array_.flash.size(); ++d) {
            if (!may_serve(d)) continue;
            const auto& flash = array_.flash[d];
            const auto there = flash->volumes.find(k.id);
            ASSERT_NE(there, flash->volumes.end()) << "GN_SEED=" << seed_;
            EXPECT_EQ(there->second.epoch, opened->record.epoch)
                << "an earlier writer is not fenced; GN_SEED=" << seed_;
            EXPECT_EQ(there->second.writer, who) << "GN_SEED=" << seed_;
        }
        k.epoch = opened->record.epoch;
        k.writer = who;
        k.lease_end = asked + opened->lease_ms;
    }

    void look(nvme::ClientId who, const std::string& name) {
        auto opened = manager_->open_volume(who, name, client::OpenMode::kRead, now_);
        if (!opened.ok()) return void(++refused);
        ++looked;
        for (std::size_t d = 0; d < array_.flash.size(); ++d) {
            if (d == missing_ || !may_serve(d) || is_filled(d)) continue;
            const auto there = array_.flash[d]->volumes.find(opened->record.geometry.volume);
            ASSERT_NE(there, array_.flash[d]->volumes.end()) << "GN_SEED=" << seed_;
            // Reading waits for no drive: one may lag, in the same life of the volume; none is ahead.
            const nvme::VolumeRecord& has = there->second;
            if (std::memcmp(&has, &opened->record, sizeof has) == 0) continue;
            EXPECT_LT(has.revision, opened->record.revision) << "GN_SEED=" << seed_;
            EXPECT_EQ(has.birth_epoch, opened->record.birth_epoch)
                << "opened before its creation was in force; GN_SEED=" << seed_;
        }
    }

    void renew(const std::string& name) {
        const auto k = known_.find(name);
        if (k == known_.end() || k->second.writer == 0) return;
        auto renewed = manager_->renew_lease(k->second.writer, k->second.id, k->second.epoch, now_);
        if (renewed.ok()) k->second.lease_end = now_ + *renewed;
    }

    void release(const std::string& name) {
        const auto k = known_.find(name);
        if (k == known_.end() || k->second.writer == 0) return;
        const std::uint64_t length = chaos_.random.below(1 << 20);
        k->second.length_known = false;
        const nvme::ClientId writer = k->second.writer;
        k->second.writer = 0;  // asked for: whether it happened or not, the lease is not relied on any more
        auto released = manager_->release_volume(writer, k->second.id, k->second.epoch, length);
        if (!released.ok()) return void(++refused);
        ++acknowledged;
        k->second.length = length;
        k->second.length_known = true;
    }

    void share(nvme::ClientId who, const std::string& name) {
        const auto k = known_.find(name);
        const nvme::ClientId reader = pick_client();
        if (k == known_.end() || reader == 0) return;
        k->second.excluded.erase(reader);  // asked for: it may come into force by itself
        auto shared = manager_->share_volume(who, name, reader);
        if (!shared.ok()) return void(++refused);
        ++acknowledged;
        if (k->second.deleting) return;
        EXPECT_EQ(who, k->second.owner) << "GN_SEED=" << seed_;
        k->second.readers.insert(reader);
    }

    void unshare(nvme::ClientId who, const std::string& name) {
        const auto k = known_.find(name);
        const nvme::ClientId reader = pick_client();
        if (k == known_.end() || reader == 0) return;
        if (who == k->second.owner) k->second.readers.erase(reader);  // likewise
        auto ended = manager_->unshare_volume(who, name, reader);
        if (!ended.ok()) return void(++refused);
        ++acknowledged;
        if (k->second.deleting) return;
        EXPECT_EQ(who, k->second.owner) << "GN_SEED=" << seed_;
        k->second.excluded.insert(reader);
        ++unshared;
        note_grants();
        for (std::size_t d = 0; d < array_.flash.size(); ++d) {
            const auto there = array_.flash[d]->volumes.find(k->second.id);
            if (!may_serve(d) || there == array_.flash[d]->volumes.end()) continue;
            EXPECT_FALSE(may_read(there->second, reader))
                << "a drive still lets a reader read; GN_SEED=" << seed_;
        }
    }

    void remove(nvme::ClientId who, const std::string& name) {
        const auto k = known_.find(name);
        if (k != known_.end() && who == k->second.owner)
            k->second.deleting = true;  // from here on it may be gone
        if (k == known_.end()) deleting_unheard_.insert(name);
        auto gone = manager_->delete_volume(who, name, now_);
        if (!gone.ok()) {
            ++refused;
            return;
        }
        ++acknowledged;
        if (k == known_.end()) return;
        note_grants();
        for (std::size_t d = 0; d < array_.flash.size(); ++d)
            for (const auto& [id, record] :
                 may_serve(d) ? array_.flash[d]->volumes : std::map<nvme::VolumeId, nvme::VolumeRecord>{})
                EXPECT_STRNE(record.name, name.c_str())
                    << "a drive still has a deleted volume; GN_SEED=" << seed_;
        known_.erase(k);
    }

    void check() {
        for (const auto& flash : array_.flash)
            for (const std::string& v : flash->violations) ADD_FAILURE() << v << "; GN_SEED=" << seed_;
        if (!manager_) return;
        check_out();
        check_clients();
        std::map<std::string, nvme::VolumeRecord> listed;
        for (const nvme::VolumeRecord& r : manager_->list_volumes()) {
            listed[r.name] = r;
            // Listed is told: from here on it may not vanish either. Its epoch may belong to a change that
            // waits.
            known_.try_emplace(r.name, Known{r.geometry.volume,
                                             r.owner,
                                             {},
                                             r.birth_epoch,
                                             0,
                                             0,
                                             0,
                                             false,
                                             deleting_unheard_.contains(r.name)});
        }
        for (auto& [name, k] : known_) {
            const auto there = listed.find(name);
            if (k.deleting) {
                // The deletion nobody confirmed was done, and so was a creation that nobody confirmed: a new
                // life.
                if (there == listed.end()) continue;
                const nvme::VolumeRecord& r = there->second;
                if (r.geometry.volume != k.id || r.birth_epoch > k.epoch)
                    k = Known{r.geometry.volume, r.owner, {}, r.birth_epoch, 0, 0, 0, false, false};
                continue;
            }
            ASSERT_NE(there, listed.end())
                << "the acknowledged volume " << name << " is lost; GN_SEED=" << seed_;
            EXPECT_EQ(there->second.geometry.volume, k.id) << "GN_SEED=" << seed_;
            EXPECT_EQ(there->second.owner, k.owner) << "GN_SEED=" << seed_;
            EXPECT_GE(there->second.epoch, k.epoch) << "GN_SEED=" << seed_;
            if (k.length_known) {
                EXPECT_EQ(there->second.byte_length, k.length) << "GN_SEED=" << seed_;
            }
            for (const nvme::ClientId reader : k.readers)
                EXPECT_TRUE(may_read(there->second, reader)) << "GN_SEED=" << seed_;
            for (const nvme::ClientId reader : k.excluded)
                EXPECT_FALSE(may_read(there->second, reader)) << "GN_SEED=" << seed_;
        }
    }

    void settle() {
        chaos_.on = false;
        for (auto& flash : array_.flash) flash->max_volumes = 1024;
        manager_.reset();
        start();
        now_ += 10'000;
        manager_->tick(now_);
        if (options_.grant_ms != 0) settle_grants();
        EXPECT_EQ(manager_->tick(now_).pending, 0u) << "GN_SEED=" << seed_;
        EXPECT_TRUE(manager_->array().ok());
        check();
        for (const auto& drive : array_.drives) {
            if (drive->node_key() == nullptr) continue;
            ASSERT_TRUE(drive->hosts) << "GN_SEED=" << seed_;
            for (const auto& [name, id] : ids_) {
                const auto host = drive->hosts->find(id);
                const auto client = manager_->client_of(id);
                EXPECT_EQ(host == drive->hosts->end() ? 0 : host->second, client ? client->generation : 0)
                    << "GN_SEED=" << seed_;
            }
        }
        const auto listed = manager_->list_volumes();
        for (const auto& flash : array_.flash) {
            EXPECT_EQ(flash->volumes.size(), listed.size()) << "GN_SEED=" << seed_;
            for (const nvme::VolumeRecord& record : listed) {
                const auto there = flash->volumes.find(record.geometry.volume);
                ASSERT_NE(there, flash->volumes.end()) << "GN_SEED=" << seed_;
                EXPECT_EQ(std::memcmp(&there->second, &record, sizeof(record)), 0) << "GN_SEED=" << seed_;
                EXPECT_EQ(record.writer, 0) << "every lease has ended; GN_SEED=" << seed_;
            }
        }
    }

    static constexpr std::size_t kNone = ~std::size_t{0};
    const std::uint64_t seed_;
    std::size_t silent_ = kNone;  ///< the drive that answers nothing
    std::vector<std::uint32_t> grants_ =
        std::vector<std::uint32_t>(3);  ///< that each drive has taken since it booted
    std::vector<std::uint64_t> granted_ = std::vector<std::uint64_t>(3);  ///< when each drive took its last
    std::vector<bool> out_ = std::vector<bool>(3);
    std::size_t missing_ = kNone;  ///< the drive that this start was without
    Chaos chaos_;
    ModelArray array_;
    MemoryRecordStore store_;
    std::unique_ptr<ChaosStore> chaos_store_;
    std::unique_ptr<Manager> manager_;
    ManagerOptions options_{1000, 0, 1};
    std::uint64_t now_ = 1;
    std::map<std::string, Known> known_;
    /// Volumes whose creation was never acknowledged and whose deletion was asked for: they may be listed for a moment.
    std::set<std::string> deleting_unheard_;
    using Hosts = std::map<nvme::ClientId, std::uint32_t>;
    std::map<std::string, nvme::ClientId> ids_;  ///< while the store lives
    /// Clients and generations of their keys: all that ever were, and those that must open no drive any more.
    std::set<std::pair<nvme::ClientId, std::uint32_t>> given_, ended_;
};

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
    const char* text = std::getenv(name);
    return text == nullptr ? otherwise : std::strtoull(text, nullptr, 0);
}

/// Under a sanitizer a seed takes ten times as long.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kSeeds = 1000;
#else
constexpr std::uint64_t kSeeds = 4000;
#endif

TEST(DaemonSimulation, NoAcknowledgedChangeIsLostAndAVolumeHasOneWriterUnderAnyFaults) {
    const std::uint64_t only = from_environment("GN_SEED", 0);
    const std::uint64_t seeds = only != 0 ? 1 : from_environment("GN_SIM_SEEDS", kSeeds);
    std::uint64_t operations = 0, crashes = 0, refused = 0, lost = 0, acknowledged = 0, rebuilt = 0,
                  starts = 0, held = 0, looked = 0, without = 0, ended = 0, unshared = 0;
    const std::uint64_t first = only != 0 ? only : from_environment("GN_SIM_FIRST", 1);
    for (std::uint64_t s = first; s < first + seeds && !HasFailure(); ++s) {
        Simulation simulation(s);
        simulation.run(300);
        operations += simulation.chaos().operations;
        crashes += simulation.chaos().crashes;
        refused += simulation.chaos().refused;
        lost += simulation.chaos().lost;
        acknowledged += simulation.acknowledged;
        rebuilt += simulation.rebuilt;
        starts += simulation.starts;
        held += simulation.second_writers;
        looked += simulation.looked;
        without += simulation.starts_without_a_drive;
        ended += simulation.keys_ended;
        unshared += simulation.unshared;
    }
    fmt::print(
        "daemon simulation: {} seeds, {} store and drive operations, {} acknowledged changes, {} openings "
        "for reading, "
        "{} crashes, {} refused, {} answers lost, {} starts, {} of them without a drive, {} rebuilds without "
        "the store, "
        "{} attempts against a held lease, {} times the keys of a client ended\n",
        seeds, operations, acknowledged, looked, crashes, refused, lost, starts, without, rebuilt, held,
        ended);
    if (only != 0) return;
    gnstor::test::count("daemon_sim_seeds", seeds);
    gnstor::test::count("daemon_sim_operations", operations);
    gnstor::test::count("daemon_sim_acknowledged", acknowledged);
    gnstor::test::count("daemon_sim_crashes", crashes);
    gnstor::test::count("daemon_sim_starts_without_a_drive", without);
    gnstor::test::count("daemon_sim_rebuilds", rebuilt);
    gnstor::test::count("daemon_sim_held_leases", held);
    gnstor::test::count("daemon_sim_keys_ended", ended);
    gnstor::test::count("daemon_sim_unshared", unshared);
}

TEST(DaemonSimulation, DrivesAreTakenOutWithoutAGrantAndComeBackUnderAnyFaults) {
    const std::uint64_t only = from_environment("GN_SEED", 0);
    const std::uint64_t seeds = only != 0 ? 1 : from_environment("GN_SIM_SEEDS", kSeeds / 4);
    const std::uint64_t first = only != 0 ? only : from_environment("GN_SIM_FIRST", 100'001);
    std::uint64_t outs = 0, backs = 0, acknowledged = 0, rebuilt = 0;
    for (std::uint64_t s = first; s < first + seeds && !HasFailure(); ++s) {
        Simulation simulation(s, 2'000);
        simulation.run(300);
        outs += simulation.outs;
        backs += simulation.backs;
        acknowledged += simulation.acknowledged;
        rebuilt += simulation.rebuilt;
    }
    if (only != 0) return;
    gnstor::test::count("daemon_sim_outs", outs);
    gnstor::test::count("daemon_sim_backs", backs);
    gnstor::test::count("daemon_sim_out_acknowledged", acknowledged);
    gnstor::test::count("daemon_sim_out_rebuilds", rebuilt);
}

}  // namespace
