// manager_close.cpp: makes the replicas of a volume equal after its writer has ended. docs/array.md, rule 11.
//
// The end of an epoch has three changes of the volume: its record names no writer, in the same epoch (close_epoch()); its
// replicas are made equal (reconcile.hpp); the next opening raises the epoch. So the drives refuse every write in between,
// and keep the orders of the epoch's versions and tombstones until they are compared.
//
// That replicas are equal is known in memory only. A daemon that starts compares again: if nothing is unresolved, that is
// one command a drive. Model: tests/model/close_compare.pml.
#include "daemon/decisions/manager.hpp"

#include <gnstor/base/log.hpp>

#include <algorithm>
#include <utility>

namespace gnstor::daemon {
namespace {

/// Of an opening that waits for its volume; what is left is compared in the background.
constexpr std::uint32_t kCommandsOfOpening = 256;

}  // namespace

SsdCopyPort Manager::copy_port() const {
    std::vector<SsdPort*> ports(records_.map.slot_count, nullptr);
    for (const Drive& drive : drives_)
        if (drive.slot != kNoSlot) ports[drive.slot] = drive.port;
    return {std::move(ports), records_.term, records_.map.version};
}

bool Manager::is_equal(const nvme::VolumeRecord& record) const {
    if (record.geometry.replicas < 2) return true;
    const auto live = live_.find(record.geometry.volume);
    return record.writer == 0 && live != live_.end() && live->second.equal_epoch == record.epoch;
}

/// An SSD that has not taken the newest record of the volume, which is in force without it.
const Manager::Drive* Manager::behind_in(nvme::VolumeId volume) const {
    for (const Drive& drive : drives_)
        if (drive.slot != kNoSlot && drive.behind.contains(volume)) return &drive;
    return nullptr;
}

bool Manager::is_comparing(const std::string& name) const {
    return std::ranges::any_of(comparing_, [&](const auto& one) {
        const auto record = records_.volumes.find(one.first);
        return record != records_.volumes.end() && name == record->second.name &&
               nvme::ok(one.second.refusal());
    });
}

/// The removal of the writer, and the map, are in force, and every SSD has taken both.
bool Manager::may_compare(const nvme::VolumeRecord& record) const {
    const auto live = live_.find(record.geometry.volume);
    return record.writer == 0 && (record.flags & nvme::kVolumeDeleting) == 0 &&
           !records_.creating.contains(record.geometry.volume) && live != live_.end() &&
           live->second.in_force && behind_in(record.geometry.volume) == nullptr &&
           told_ == records_.map.version && superseded_.empty() && read_only_.empty() && !unsure_;
}

/// Sends up to so many commands of the comparison of one volume. kWaits also while the end of its writer, or the map, is not
/// in force on every SSD.
Reconcile::Step Manager::compare(nvme::VolumeId volume, std::uint32_t commands) {
    const nvme::VolumeRecord& record = records_.volumes.at(volume);
    if (!may_compare(record)) return Reconcile::Step::kWaits;
    auto at = comparing_.find(volume);
    if (at != comparing_.end() &&
        (at->second.epoch() != record.epoch || at->second.version() != records_.map.version)) {
        comparing_.erase(at);
        at = comparing_.end();
    }
    if (at == comparing_.end())
        at = comparing_.try_emplace(volume, records_.map, record, live_[volume].ranges_left != 0).first;
    SsdCopyPort port = copy_port();
    for (std::uint32_t i = 0; i < commands; ++i) {
        const Reconcile::Step step = at->second.step(port);
        if (at->second.take_compared() && rebuild_) {
            rebuild_->again(volume);
            filled_term_ = 0;
        }
        if (step == Reconcile::Step::kEqual) end_comparison(volume);
        if (step != Reconcile::Step::kWorked) return step;
    }
    return Reconcile::Step::kWorked;
}

void Manager::end_comparison(nvme::VolumeId volume) {
    const Reconcile& done = comparing_.at(volume);
    const std::string name = records_.volumes.at(volume).name;
    if (done.is_unsupported())
        log_warn(
            "volume '{}': the replicas were not compared after its last writer ended, because the firmware "
            "of an SSD does not know COPY SURVEY; update the nodes",
            name);
    if (done.blocks_put() != 0)
        log_warn(
            "volume '{}': its last writer ended within writes; {} blocks were copied to replicas that lacked "
            "them",
            name, done.blocks_put());
    if (done.left() != 0)
        log_error(
            "volume '{}': {} ranges of {} blocks could not be made equal on all replicas: {}; write them "
            "again",
            name, done.left(), Reconcile::kRangeBlocks, nvme::status_name(done.left_refusal()));
    live_[volume].equal_epoch = done.epoch();
    live_[volume].ranges_left = done.left();
    to_compare_.erase(volume);
    comparing_.erase(volume);
}

/// True: there is more to do at once.
bool Manager::compare_some(std::uint32_t commands) {
    for (std::size_t tries = to_compare_.size(); tries != 0; --tries) {
        auto next = to_compare_.upper_bound(compared_last_);
        if (next == to_compare_.end()) next = to_compare_.begin();
        const nvme::VolumeId volume = *next;
        const auto record = records_.volumes.find(volume);
        if (record == records_.volumes.end() || record->second.writer != 0 || is_equal(record->second)) {
            to_compare_.erase(next);
            comparing_.erase(volume);
            compared_last_ = volume;
            if (to_compare_.empty()) break;
            continue;
        }
        // The same one next time, unless it waits: then others have their turn.
        if (compare(volume, commands) != Reconcile::Step::kWaits) return true;
        compared_last_ = volume;
    }
    return false;
}

bool Manager::copy_some(std::uint32_t commands) {
    if (!store_.check_leads().ok()) return false;
    return compare_some(commands) || rebuild_some(commands) || scrub_some(commands);
}

/// Ends the last opening before the next one. A client that opens its volume again keeps it: until its lease ends no other
/// one gets it, however long the comparison takes.
Result<void> Manager::close_for(nvme::VolumeId volume, nvme::ClientId client, std::uint64_t now_ms) {
    const bool own = records_.volumes.at(volume).writer == client;
    Result<void> closed = close_epoch(volume, ~0ull);
    // Also if it is not known yet whether the change was stored.
    if (own && records_.volumes.contains(volume)) {
        live_[volume].next_writer = client;
        live_[volume].lease_end_ms = now_ms + options_.lease_ms;
    }
    return closed;
}

/// Before an opening for writing.
Result<void> Manager::make_equal(nvme::VolumeId volume) {
    if (is_equal(records_.volumes.at(volume))) return {};
    if (!superseded_.empty()) return error(Errc::kState, "{}", superseded_);
    if (!read_only_.empty()) return error(read_only_code_, "{}", read_only_);
    to_compare_.insert(volume);
    if (!live_[volume].in_force) {
        Result<void> active = activate(volume);
        if (!active.ok())
            return pending_error(
                fmt::format("the last change of volume '{}'", records_.volumes.at(volume).name),
                active.error());
    }
    bool asked = false;
    for (std::uint32_t sent = 0; sent < kCommandsOfOpening; ++sent) {
        const Reconcile::Step step = compare(volume, 1);
        if (step == Reconcile::Step::kEqual) return {};
        if (step == Reconcile::Step::kWorked) continue;
        // An SSD whose process was started again has neither map nor grant before it is asked.
        if (std::exchange(asked, true)) break;
        (void)activate_map().ok();
    }
    return unequal_error(records_.volumes.at(volume));
}

Error Manager::unequal_error(const nvme::VolumeRecord& record) const {
    const std::string what = fmt::format(
        "volume '{}' cannot be opened for writing yet: its last writer ended, and its replicas are compared "
        "first",
        record.name);
    if (const Drive* behind = behind_in(record.geometry.volume); behind != nullptr)
        return error(Errc::kBusy,
                     "{}; the SSD of slot {} does not take part: {}; it is waited for until it answers or is "
                     "out of the map; 'gnstor health' shows its state",
                     what, behind->slot, behind->trouble.empty() ? "it does not answer" : behind->trouble);
    const auto at = comparing_.find(record.geometry.volume);
    if (at == comparing_.end())
        return error(Errc::kBusy, "{}, once the array map is in force; ask again later", what);
    if (nvme::ok(at->second.refusal())) return error(Errc::kBusy, "{}; ask again later", what);
    return error(
        Errc::kBusy,
        "{}; the SSD of slot {} does not take part ({}): it is waited for until it answers or is out of the "
        "map; 'gnstor health' shows its state{}{}",
        what, at->second.waits_for(), nvme::status_name(at->second.refusal()),
        out_trouble_.empty() ? "" : "; ", out_trouble_);
}

}  // namespace gnstor::daemon
