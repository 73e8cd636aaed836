// strangers.cpp: what must be refused for who sends it, or when: readers that write, blocks of other drives,
// maps, terms and volumes that are over, grants that have ended. And time: long idle periods.
//
// Which command must be refused is known when it is sent (expect_by_rights()): the drive's time is the
// simulation's. A grant ends by either of two clocks, and either may be suspended.
#include "deengine/sim/world.hpp"

#include <fmt/core.h>

namespace gnstor::deengine::sim {

using nvme::IoOpcode;
using nvme::Status;

namespace {

constexpr std::uint32_t kPollsASecond = 8;

/// The simulator's own word on it: the volumes here have one reader at most.
bool may_read(const nvme::VolumeRecord& r, nvme::ClientId client) {
    const bool everybody = (r.flags & nvme::kVolumeWorldReadable) != 0;
    return client != 0 && (everybody || client == r.owner || client == r.writer ||
                           (r.reader_count != 0 && client == r.readers[0]));
}

}  // namespace

bool World::owns(const nvme::VolumeRecord& record, nvme::BlockAddress block) const {
    if (config_.slots == 1) return true;
    const auto chunk = static_cast<std::uint32_t>(block >> record.geometry.chunk_shift);
    return placement::holds(placement::place(oracle_.map.map, record.geometry, chunk), 0);
}

bool World::grant_ended() const {
    return drive_ != nullptr && (drive_->now_ns >= grant_ends_ns_ || drive_->wall_ns >= grant_ends_wall_ns_);
}

void World::took_map(std::uint64_t asked_ns) {
    const std::uint64_t ms = oracle_.map.grant_ms;
    grant_ends_ns_ = ms == 0 ? ~0ull : asked_ns + ms * 1'000'000;
    // Both clocks run alike between the asking and this moment.
    grant_ends_wall_ns_ = ms == 0 ? ~0ull : drive_->wall_ns - (drive_->now_ns - asked_ns) + ms * 1'000'000;
}

/// The same map once more.
void World::renew_grant() {
    const std::uint64_t now = drive_->now_ns;
    const Answer a = drive_->call_admin_with(nvme::AdminOpcode::kMapSet, oracle_.map);
    if (crash_medium_ || failed()) return;
    note(fmt::format("the grant is renewed -> {}", nvme::status_name(a.status)));
    if (ok(a.status)) return took_map(now);
    if (!syncs_fail_)
        fail(fmt::format("MAP SET of the map in force was answered {}", nvme::status_name(a.status)));
}

/// In the order of the drive's checks (command_check.hpp).
void World::expect_by_rights(Sent& s) {
    if (s.refusal == Status::kAccessDenied) return;
    const VolumeState* v = oracle_.find(s.vid, s.life);
    if (v != nullptr && !may_read(v->record, s.fields.client)) {
        s.refusal = Status::kAccessDenied;  // a writer whose opening is over may be nobody by now
        return;
    }
    if (grant_ended()) {
        ++counters_.grants_ended;
        s.refusal = Status::kNotGranted;
        return;
    }
    if (s.refusal || config_.slots == 1 || v == nullptr) return;
    bool own = true;
    for (const Sent::Target& t : s.targets) own = own && owns(v->record, t.vba);
    for (std::uint32_t i = 0; s.opcode == IoOpcode::kRead && i < s.fields.blocks; ++i)
        own = own && owns(v->record, s.fields.block + i);
    if (!own) s.refusal = Status::kWrongSsd;
}

/// The host sleeps, or the virtual machine stands still: nobody polls, and one clock or both go on.
void World::suspend() {
    ++counters_.suspensions;
    const std::uint64_t for_ns = kSecondNs / 4 * (1 + random_.below(30));
    const bool paused = random_.below(2) == 0;
    note(fmt::format("suspended for {} ms{}", for_ns / 1'000'000, paused ? ", as the wall clock says" : ""));
    drive_->pass(paused ? 0 : for_ns, for_ns);
}

void World::idle_long() {
    if (random_.below(3) == 0) return suspend();
    ++counters_.long_idles;
    const auto polls = static_cast<std::uint32_t>(kPollsASecond * (2 + random_.below(5)));
    note(fmt::format("nobody asks for {} polls, {} a second", polls, kPollsASecond));
    for (std::uint32_t i = 0; i < polls && !crash_medium_ && !failed(); ++i)
        drive_->poll(kSecondNs / kPollsASecond);
}

void World::stranger_step(nvme::VolumeId vid) {
    ++counters_.strangers;
    const std::uint64_t which = random_.below(12);
    if (which < 5) return send_stranger(vid, which);
    if (which < 7) return send_trim_of_same_order(vid);
    if (which == 7) return raise_term();
    if (which == 8) return rot_state();
    refused_admin(which);
}

/// A right write with one thing wrong.
void World::send_stranger(nvme::VolumeId vid, std::uint64_t which) {
    const VolumeState& v = oracle_.volumes[vid];
    const bool everybody = (v.record.flags & nvme::kVolumeWorldReadable) != 0;
    std::uint32_t blocks = 1;
    const nvme::BlockAddress first = pick_block(blocks);
    Sent s = random_.below(3) == 0 ? make_trim(vid, {{0, blocks, first}}, v.next_sequence + 500'000)
                                   : make_write(vid, first, blocks, v.next_sequence + 500'000);
    switch (which) {
        case 0:
        case 1:
            s.fields.client = everybody ? kStranger : kReader;
            s.refusal = Status::kNamespaceWriteProtected;
            break;
        case 2:
            s.fields.client = everybody ? 0 : kStranger;
            s.refusal = Status::kAccessDenied;
            break;
        case 3:
            s.from = kStranger;
            s.refusal = Status::kAccessDenied;
            break;
        default:
            s.fields.map_version -= 1;
            s.refusal = Status::kStaleMap;
            break;
    }
    s.late = true;  // its sequence is no volume's
    deliver(std::move(s));
}

/// Of one sequence, contents and their absence: which counts, the CRC says, in whatever order they come.
void World::send_trim_of_same_order(nvme::VolumeId vid) {
    for (const Sent& r : recent_) {
        const VolumeState* v = oracle_.find(r.vid, r.life);
        if (v == nullptr || r.vid != vid || r.opcode != IoOpcode::kWrite) continue;
        if (r.fields.epoch != v->record.epoch || r.fields.sequence <= v->floor) continue;
        Sent s = make_zero(vid, r.fields.block, r.fields.blocks, r.fields.sequence);
        s.late = true;
        return deliver(std::move(s));
    }
}

void World::raise_term() {
    drive_->term = ++term_;  // an answer that a cut swallows leaves the drive at either
    renew_grant();
    if (!crash_medium_ && !failed() && !syncs_fail_) known_term_ = term_;
}

void World::expect_refusal(const Answer& answer, Status status, const char* what) {
    if (crash_medium_ || failed()) return;
    ++counters_.refusals;
    note(fmt::format("{} -> {}", what, nvme::status_name(answer.status)));
    if (answer.status != status)
        fail(fmt::format("{} must be refused with {} and was answered {}", what, nvme::status_name(status),
                         nvme::status_name(answer.status)));
}

void World::refused_admin(std::uint64_t which) {
    const auto vid = static_cast<nvme::VolumeId>(1 + random_.below(config_.volumes));
    nvme::Command remove{};
    remove.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::kVolumeDelete);
    remove.cdw10 = vid;
    if (which == 9) {
        nvme::MapSet older = oracle_.map;
        if (--older.map.version == 0) return;
        return expect_refusal(drive_->call_admin_with(nvme::AdminOpcode::kMapSet, older), Status::kStaleMap,
                              "MAP SET of an older version");
    }
    if (which == 10) {
        drive_->term = known_term_ - 1;
        const Answer a = drive_->call_admin(remove, {});
        drive_->term = term_;
        return expect_refusal(a, Status::kStaleTerm, "DELETE of an older term");
    }
    const auto dead = oracle_.deleted.find(vid);
    if (dead == oracle_.deleted.end() || oracle_.volumes.contains(vid)) {
        drive_->privileged = false;
        const Answer a = drive_->call_admin(remove, {});
        drive_->privileged = true;
        return expect_refusal(a, Status::kAccessDenied, "DELETE by a client");
    }
    nvme::VolumeRecord again = new_record(vid);
    again.epoch = again.birth_epoch = dead->second;
    expect_refusal(drive_->call_admin_with(nvme::AdminOpcode::kVolumeAdd, again), Status::kStaleEpoch,
                   "ADD at the last epoch of the VID's former life");
}

/// A bit of the firmware's state flips: no drive mounts from that.
void World::rot_state() {
    if (metadata_->blob.empty()) return;
    ++counters_.states_rotten;
    Metadata metadata;
    metadata.blob = metadata_->blob;
    const std::size_t at = random_.below(metadata.blob.size());
    metadata.blob[at] ^= static_cast<std::byte>(1u << random_.below(8));
    const auto image = medium_->image(
        config_.cut_mode(), [](std::size_t, std::size_t, const Operation&, bool) { return Fate::whole(); });
    Drive drive(*image, metadata, config_.engine);
    if (drive.mount().empty())
        fail(fmt::format("a drive mounts though byte {} of {} of its state has a wrong bit", at,
                         metadata.blob.size()));
}

}  // namespace gnstor::deengine::sim
