// world.cpp: the steps of a history, and what the answers may be.
#include "deengine/sim/world.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace gnstor::deengine::sim {

using nvme::IoOpcode;
using nvme::Status;

namespace {

constexpr std::size_t kTraceMax = 20000;
constexpr std::uint32_t kBusyMax = 2000;

const char* opcode_name(IoOpcode o) {
    switch (o) {
        case IoOpcode::kFlush:
            return "flush";
        case IoOpcode::kWrite:
            return "write";
        case IoOpcode::kRead:
            return "read";
        case IoOpcode::kWriteZeroes:
            return "zero";
        case IoOpcode::kDatasetManagement:
            return "trim";
    }
    return "?";
}

/// An extent is the least that lies in one shard; ranges of a trim are done one by one.
bool goes_in_parts(const Sent& s) {
    constexpr std::uint32_t kExtentShift = 8;
    const auto extent = [](const Sent::Target& t) { return t.vba >> kExtentShift; };
    return s.ranges.size() > 1 ||
           std::ranges::any_of(s.targets, [&](const auto& t) { return extent(t) != extent(s.targets[0]); });
}

}  // namespace

void SimCounters::add(const SimCounters& o) {
    const auto sum = [&](auto... members) { ((this->*members += o.*members), ...); };
    sum(&SimCounters::operations, &SimCounters::commands, &SimCounters::reads, &SimCounters::blocks_compared,
        &SimCounters::refusals, &SimCounters::full, &SimCounters::busy, &SimCounters::cuts,
        &SimCounters::recoveries, &SimCounters::cuts_in_recovery, &SimCounters::crashes, &SimCounters::closes,
        &SimCounters::torn, &SimCounters::lost, &SimCounters::programs, &SimCounters::erases,
        &SimCounters::programs_failed, &SimCounters::erases_failed, &SimCounters::rotten,
        &SimCounters::rotten_young, &SimCounters::deletions, &SimCounters::media_errors, &SimCounters::doubts,
        &SimCounters::suspensions, &SimCounters::mounts_refused, &SimCounters::forgiven,
        &SimCounters::superseded, &SimCounters::audits, &SimCounters::syncs_failed, &SimCounters::collected,
        &SimCounters::checkpoints, &SimCounters::displaced, &SimCounters::displaced_in_slices,
        &SimCounters::tombstones_full, &SimCounters::groups_aged, &SimCounters::long_idles,
        &SimCounters::kills_first, &SimCounters::strangers, &SimCounters::grants_ended,
        &SimCounters::states_rotten, &SimCounters::rot_as_zeroes, &SimCounters::losses_accepted,
        &SimCounters::blocks_lost, &SimCounters::records_lost, &SimCounters::disks_full,
        &SimCounters::mounts_waiting, &SimCounters::settled);
}

World::World(const SimConfig& config) : config_(config) {
    nvme::MapSet& set = oracle_.map;
    set.map.version = 1;
    set.map.slot_count = 1;
    set.map.slots[0].state = placement::SlotState::kIn;
    set.map.slots[0].weight = 1;
    // What a kill leaves is what the process programmed, where the flash does not forget.
    config_.engine.same_boot = config_.cut_mode() == CutMode::kKill && config_.medium.survives_kill;
    set.grant_ms = config_.grant_ms;
    for (std::uint32_t i = 1; i < config_.slots; ++i) {
        set.map.slots[i].state = placement::SlotState::kIn;
        set.map.slots[i].weight = static_cast<decltype(set.map.slots[i].weight)>(1 + config_.seed % 2 * i);
        set.map.slots[i].domain = static_cast<decltype(set.map.slots[i].domain)>(i);
        set.map.slots[i].ssd_uuid[0] = static_cast<std::uint8_t>(i);
    }
    set.map.slot_count = config_.slots;
    std::memcpy(set.map.slots[0].ssd_uuid, config_.engine.ssd_uuid, sizeof(config_.engine.ssd_uuid));
    medium_ = std::make_unique<Medium>(config_.medium);
    metadata_ = std::make_unique<Metadata>();
}

void World::fail(std::string what) {
    if (!failure_.empty()) return;
    failure_ = fmt::format("step {}: {}", step_, what);
    note("VIOLATION " + failure_);
    for (std::string& line : mounted_from_) note(std::move(line));
}

void World::note(std::string what) {
    if (!config_.trace) return;
    trace_.push_back(fmt::format("{:6} {}", step_, std::move(what)));
    if (trace_.size() > kTraceMax) trace_.pop_front();
}

void World::begin() {
    random_ = SplitMix64(mix64(config_.seed));
    boot(true);
    for (std::uint32_t v = 1; v <= config_.volumes && !failed(); ++v)
        add_volume(static_cast<nvme::VolumeId>(v));
}

void World::run() {
    begin();
    while (!failed() && !refused_ && step_ < config_.operations) {
        ++step_;
        if (config_.left_out.contains(step_)) continue;
        step();
    }
    end();
}

/// Everything is answered; what stands is compared once more.
void World::end() {
    if (failed() || refused_) return;
    if (medium_->disk_is_full()) fill_or_empty_disk();
    if (failed()) return;
    idle(kPollsMax);
    if (grant_ended() && !failed() && !crash_medium_) renew_grant();
    if (!failed() && !crash_medium_ && compare(*drive_, false, false, nullptr)) audit(*drive_, "at the end");
    note_drive();
    const MediumCounters& m = medium_->counters();
    counters_.programs += m.programs;
    counters_.erases += m.erases;
    counters_.programs_failed += m.programs_failed;
    counters_.erases_failed += m.erases_failed;
}

void World::step() {
    const std::uint64_t here = mix64(config_.seed * 0x10001 + step_);
    random_ = SplitMix64(here);
    cuts_ = SplitMix64(here ^ 0xC075);
    medium_->reseed(here ^ 0xF1A5);
    ++counters_.operations;
    crash_armed_ = random_.below(1000) < config_.crashes;
    if (grant_ended() && cuts_.below(4) == 0) renew_grant();
    const std::uint64_t dice = random_.below(1000);
    if (dice < config_.admin) {
        admin_step();
    } else if (dice < config_.admin + config_.rot) {
        rot();
    } else if (dice < config_.admin + config_.rot + config_.sync_failures) {
        break_syncs();
    } else if (dice < config_.admin + config_.rot + config_.sync_failures + config_.full_disk) {
        fill_or_empty_disk();
    } else {
        client_step(random_.below(1000));
    }
    if (in_flight_.size() >= config_.in_flight && !crash_medium_) {
        idle(kPollsMax);
        idle(config_.rest);
    }
    if (syncs_fail_ && random_.below(8) == 0) crash_armed_ = true;
    if (crash_medium_ || crash_armed_) reboot();
    constexpr std::uint64_t kStepsBetweenAudits = 256;
    if (step_ % kStepsBetweenAudits == 0 && !failed() && !refused_) audit(*drive_, "between two commands");
    if (!medium_->violation().empty()) fail("the flash refused: " + medium_->violation());
}

/// Polls until nothing is in flight, or so many times.
void World::idle(std::uint32_t polls) {
    for (std::uint32_t i = 0; i < polls && !crash_medium_ && !failed(); ++i) {
        drive_->poll();
        if (polls == kPollsMax && in_flight_.empty()) return;
    }
    if (polls == kPollsMax && !in_flight_.empty() && !crash_medium_)
        fail(fmt::format("{} commands are not answered after {} polls (the first: {}, sequence {})",
                         in_flight_.size(), polls, opcode_name(in_flight_.begin()->second.opcode),
                         in_flight_.begin()->second.fields.sequence));
}

void World::deliver(Sent sent) {
    const std::uint64_t tag = next_tag_++;
    sent.tag = tag;
    ++counters_.commands;
    VolumeState* volume = oracle_.find(sent.vid, sent.life);
    expect_by_rights(sent);
    if (!sent.refusal && volume != nullptr)
        for (const Sent::Target& t : sent.targets) volume->blocks[t.vba].send(t.order, t.content);
    if (sent.opcode == IoOpcode::kFlush && volume != nullptr)
        for (const auto& [vba, b] : volume->blocks) sent.flushes[vba] = b.live;
    if (config_.trace)
        note(fmt::format("{} {} of volume {} block {} + {} epoch {} sequence {}{}{} content {}", tag,
                         opcode_name(sent.opcode), sent.vid, sent.fields.block, sent.fields.blocks,
                         sent.fields.epoch, sent.fields.sequence, sent.fields.fua ? " FUA" : "",
                         sent.late ? " (again)" : "",
                         sent.targets.empty() ? 0 : sent.targets.front().content));
    Sent& s = in_flight_.emplace(tag, std::move(sent)).first->second;
    const bool trim = s.opcode == IoOpcode::kDatasetManagement;
    const nvme::Command c = trim ? nvme::encode_trim(s.fields, static_cast<std::uint32_t>(s.ranges.size()))
                                 : nvme::encode_io(s.opcode, s.fields);
    drive_->submit(c, s.from.value_or(s.fields.client),
                   trim ? std::as_writable_bytes(std::span(s.ranges)) : std::span<std::byte>(s.data), tag);
}

void World::complete(std::uint64_t tag, Status status, std::uint32_t /*dw0*/) {
    if (crash_medium_ || failed()) return;  // nobody is there to hear it
    const auto it = in_flight_.find(tag);
    if (it == in_flight_.end()) return fail(fmt::format("command {} was answered twice", tag));
    Sent s = std::move(it->second);
    in_flight_.erase(it);
    if (config_.trace) note(fmt::format("  {} -> {}", tag, nvme::status_name(status)));
    if (s.refusal) {
        ++counters_.refusals;
        // Its sequence is given up, not sent again.
        VolumeState* v = oracle_.find(s.vid, s.life);
        if (v != nullptr && !s.late && status == *s.refusal) v->unresolved.erase(s.fields.sequence);
        if (status != *s.refusal)
            fail(fmt::format("a command that must be refused with {} was answered {}",
                             nvme::status_name(*s.refusal), nvme::status_name(status)));
        return;
    }
    if (s.opcode == IoOpcode::kRead) return completed_read(s, status);
    if (s.opcode != IoOpcode::kFlush) return completed_change(s, status);
    if (status == Status::kWriteFault && syncs_fail_) return;
    if (status == Status::kCapacityExceeded && !room_below_) return;
    if (status != Status::kSuccess)
        return fail(fmt::format("a flush was answered {}", nvme::status_name(status)));
    if (VolumeState* v = oracle_.find(s.vid, s.life))
        for (const auto& [vba, order] : s.flushes)
            v->blocks[static_cast<nvme::BlockAddress>(vba)].make_durable(order);
}

void World::completed_change(Sent& s, Status status) {
    VolumeState* v = oracle_.find(s.vid, s.life);
    if (v == nullptr) return;
    if (ok(status)) {
        busy_in_a_row_ = 0;
        const bool durable =
            config_.answers_are_durable() || (s.fields.fua && s.opcode != IoOpcode::kDatasetManagement);
        for (const Sent::Target& t : s.targets) {
            BlockState& b = v->blocks[t.vba];
            if (t.order < b.live) ++counters_.superseded;
            // A newer version that is not answered yet may be the one that rotted.
            const bool newest =
                std::ranges::none_of(b.versions, [&](const Version& other) { return other.order > t.order; });
            if (newest && durable && s.tag >= b.damaged) {
                b.end_damage(s.tag);
                b.gone.reset();
            }
            b.acknowledge(t.order, durable);
        }
        v->unresolved.erase(s.fields.sequence);
        s.late = true;
        recent_.push_back(std::move(s));
        if (recent_.size() > 16) recent_.pop_front();
        return;
    }
    if (!may_be_refused(s, status)) {
        fail(fmt::format("{} of volume {}, block {} + {}, sequence {}: answered {}", opcode_name(s.opcode),
                         s.vid, s.targets.empty() ? 0 : s.targets.front().vba, s.targets.size(),
                         s.fields.sequence, nvme::status_name(status)));
        return;
    }
    ++counters_.refusals;
    // What is refused as a whole leaves no trace. What went in parts may have been done in some of them, as
    // may what the flash failed under, or had no page for: its writer sends it again.
    const bool flash_failed = status == Status::kWriteFault || config_.medium.program_fails != 0;
    const bool no_room = status == Status::kBusy || status == Status::kCapacityExceeded;
    if ((no_room && !room_below_) || ((flash_failed || no_room) && s.targets.size() > 1) ||
        status == Status::kWriteFault || goes_in_parts(s)) {
        s.late = true;
        recent_.push_back(std::move(s));
        return;
    }
    for (const Sent::Target& t : s.targets) v->blocks[t.vba].refuse(t.order, t.content);
    if (!s.late) v->unresolved.erase(s.fields.sequence);
}

bool World::may_be_refused(const Sent& s, Status status) {
    switch (status) {
        case Status::kCapacityExceeded:
            ++counters_.full;
            return is_full(s);
        case Status::kBusy:
            ++counters_.busy;
            return !room_below_ ||
                   ++busy_in_a_row_ < kBusyMax;  // until a checkpoint is complete, not for ever
        case Status::kCommandSequenceError:
        case Status::kStaleEpoch:
            return s.late;
        case Status::kWriteFault:
            return config_.medium.program_fails != 0 || syncs_fail_;
        case Status::kUnrecoveredReadError: {
            ++counters_.media_errors;
            VolumeState* v = oracle_.find(s.vid, s.life);
            return std::ranges::any_of(
                s.targets, [&](const Sent::Target& t) { return v->blocks[t.vba].was_damaged(s.tag); });
        }
        default:
            return false;
    }
}

/// Whether a drive of one shard may say that it has no room: not below what it promises, while its units are
/// good.
bool World::is_full(const Sent& s) const {
    if (!room_below_) return true;
    const MediumOptions& m = config_.medium;
    if (config_.engine.map_keys_percent != 100) return true;  // its map holds less than it promises
    if (!kCapabilities.collects || m.views != 1 || m.program_fails != 0 || m.erase_fails != 0) return true;
    return oracle_.blocks_held() + s.targets.size() > drive_->engine().capacity_blocks();
}

/// What the drive counted since its boot.
void World::note_drive() {
    const auto add = [this](const auto& c) {
        if constexpr (requires { c.gc_pages_copied; }) {
            counters_.collected += c.gc_pages_copied;
            counters_.checkpoints += c.checkpoints;
            counters_.displaced += c.displaced;
            counters_.displaced_in_slices += c.displaced_in_slices;
            counters_.tombstones_full += c.tombstones_full;
            counters_.groups_aged += c.groups_aged;
        }
    };
    add(drive_->engine().counters());
}

void World::completed_read(const Sent& s, Status status) {
    VolumeState* v = oracle_.find(s.vid, s.life);
    if (v == nullptr) return;
    ++counters_.reads;
    if (status == Status::kUnrecoveredReadError) {
        ++counters_.media_errors;
        for (std::uint32_t i = 0; i < s.fields.blocks; ++i)
            if (v->blocks[s.fields.block + i].damaged != 0) return;
    }
    if (status == Status::kDoubtful) {
        ++counters_.doubts;
        for (std::uint32_t i = 0; i < s.fields.blocks; ++i) {
            const BlockState& b = v->blocks[s.fields.block + i];
            if (records_lost_ || b.doubtful ||
                (b.damaged != 0 && (record_rot_ || b.damage_may_be_doubtful())))
                return;
        }
    }
    if (!ok(status)) return fail(fmt::format("a read was answered {}", nvme::status_name(status)));
    const std::uint32_t sectors = s.fields.sectors != 0 ? s.fields.sectors : nvme::kSectorsPerBlock;
    for (std::uint32_t i = 0; i < s.fields.blocks; ++i) {
        BlockState& b = v->blocks[s.fields.block + i];
        const std::byte* bytes = s.data.data() + std::size_t{i} * nvme::kBlockBytes;
        const Version* seen = b.find(bytes, s.fields.first_sector, sectors, false);
        ++counters_.blocks_compared;
        if (seen == nullptr)
            return fail(fmt::format(
                "a read of volume {} block {} gave what it must not: {}", s.vid, s.fields.block + i,
                sectors == nvme::kSectorsPerBlock ? describe(b, bytes, next_content_) : "(part of a block)"));
        b.see(seen->order);
    }
}

}  // namespace gnstor::deengine::sim
