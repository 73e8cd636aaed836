#include "array/rebuild_sim.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace gnstor::test {

using daemon::CopyRange;
using deengine::Requester;
using nvme::IoOpcode;
using nvme::Status;
using placement::SlotState;

namespace {

constexpr Requester kAdmin{0, true};
constexpr std::uint64_t kTerm = 1;

nvme::Command admin_command(nvme::AdminOpcode opcode) {
    nvme::Command c{};
    c.opcode = static_cast<std::uint8_t>(opcode);
    c.cdw14 = kTerm;
    return c;
}

}  // namespace

void RebuildSimCounts::add(const RebuildSimCounts& o) {
    changes += o.changes;
    reads += o.reads;
    lost_drives += o.lost_drives;
    lost_in_rebuild += o.lost_in_rebuild;
    lost_writers += o.lost_writers;
    rebuilds += o.rebuilds;
    kills += o.kills;
    kills_in_rebuild += o.kills_in_rebuild;
    outs += o.outs;
    outs_in_rebuild += o.outs_in_rebuild;
    backs += o.backs;
    copied += o.copied;
    late_copies += o.late_copies;
    unreadable += o.unreadable;
    blocks_compared += o.blocks_compared;
    reconciled += o.reconciled;
    reconciled_in_rebuild += o.reconciled_in_rebuild;
    reconcile_put += o.reconcile_put;
    kills_in_reconcile += o.kills_in_reconcile;
    outs_in_reconcile += o.outs_in_reconcile;
    scrubbed += o.scrubbed;
    mended += o.mended;
    scrub_passes += o.scrub_passes;
}

RebuildSim::Drive::Drive(std::uint64_t number, const deengine::EngineOptions& o) : flash(24, 16), options(o) {
    std::memcpy(options.ssd_uuid, &number, sizeof(number));
    mount();
}

void RebuildSim::Drive::mount() {
    engine.reset();
    answers.clear();
    auto mounted = deengine::Engine::mount(flash, metadata, options, *this);
    if (!mounted.ok()) {
        trouble = mounted.error().message;
        return;
    }
    engine = std::move(mounted).value();
}

void RebuildSim::Drive::on_complete(std::uint64_t tag, Status status, std::uint64_t result) {
    answers[tag] = {status, result};
}

RebuildSim::RebuildSim(const RebuildSimOptions& options)
    : options_(options), random_(options.seed), acknowledged_(kBlocks, 0), losses_left_(3) {
    record_ = deengine::test::make_record(kVolume, kClient, 1, kCapacity);
    record_.geometry.replicas = static_cast<std::uint8_t>(one_in(3) ? 3 : 2);
    max_tombstones_ = options.max_tombstones != 0 ? options.max_tombstones : one_in(2) ? 8 : 24;
    if (options.replicas != 0) record_.geometry.replicas = static_cast<std::uint8_t>(options.replicas);
    stored_.version = 1;
    stored_.slot_count = kSlots;
    for (std::uint32_t s = 0; s < kSlots; ++s) {
        stored_.slots[s].state = SlotState::kIn;
        stored_.slots[s].domain = static_cast<std::uint16_t>(s);
        stored_.slots[s].weight = 1;
    }
    for (std::uint32_t s = 0; s < kSlots; ++s) fill_slot(s);
    while (active_.size() < kSlots && failure_.empty()) activate_one();
    known_ = told_;
}

RebuildSim::~RebuildSim() = default;

/// A new, empty drive fills the slot.
void RebuildSim::fill_slot(std::uint32_t slot) {
    deengine::EngineOptions o = deengine::test::default_options();
    o.mutation = options_.engine;
    o.max_tombstones = max_tombstones_;
    drives_[slot] = std::make_unique<Drive>(++drives_made_, o);
    ++lives_[slot];
    raised_.erase(slot);
    std::memcpy(stored_.slots[slot].ssd_uuid, drives_[slot]->options.ssd_uuid,
                sizeof(stored_.slots[slot].ssd_uuid));
    if (!drives_[slot]->trouble.empty()) fail(drives_[slot]->trouble);
}

/// Carries out one command on a drive and waits for its answer.
RebuildSim::Answer RebuildSim::command(std::uint32_t slot, const nvme::Command& c, Requester from,
                                       std::span<std::byte> data) {
    Drive& drive = *drives_[slot];
    const std::uint64_t tag = ++tag_;
    if (from.privileged || c.opcode == static_cast<std::uint8_t>(nvme::AdminOpcode::kFloor))
        drive.engine->submit_admin(c, from, data, tag, now_ns_);
    else
        drive.engine->submit(c, from, data, tag, now_ns_);
    for (int polls = 0; polls < 100 && !drive.answers.contains(tag); ++polls)
        drive.engine->poll(now_ns_ += 1000);
    const auto answer = drive.answers.find(tag);
    if (answer == drive.answers.end()) {
        fail(fmt::format("the drive in slot {} does not answer opcode {:#x}", slot, c.opcode));
        return {Status::kInternalError, 0};
    }
    const Answer out = answer->second;
    drive.answers.erase(answer);
    return out;
}

bool RebuildSim::send_record(std::uint32_t slot) {
    nvme::VolumeRecord copy = record_;
    const auto send = [&](nvme::AdminOpcode opcode) {
        return command(slot, admin_command(opcode), kAdmin, std::as_writable_bytes(std::span(&copy, 1)))
            .status;
    };
    Status s = send(nvme::AdminOpcode::kVolumeChmod);
    if (s == Status::kNoSuchVolume) s = send(nvme::AdminOpcode::kVolumeAdd);
    if (!ok(s)) return false;
    raised_.insert(slot);
    return true;
}

placement::Replicas RebuildSim::replicas_of(const placement::ArrayMap& map, nvme::BlockAddress block) const {
    return placement::place(map, record_.geometry, block >> record_.geometry.chunk_shift);
}

// The daemon ------------------------------------------------------------------------------------------------------

void RebuildSim::change_map(SlotState state, std::uint32_t slot) {
    stored_.version += 1;
    stored_.slots[slot].state = state;
    active_.clear();
}

/// Sends the newest map to one drive that has not activated it since its boot. In force: all have.
void RebuildSim::activate_one() {
    std::vector<std::uint32_t> missing;
    for (std::uint32_t s = 0; s < kSlots; ++s)
        if (s != out_slot() && !active_.contains(s)) missing.push_back(s);
    if (missing.empty()) return;
    const std::uint32_t slot = missing[below(static_cast<std::uint32_t>(missing.size()))];
    if (!send_record(slot)) return fail(fmt::format("slot {} refuses the volume's record", slot));
    nvme::MapSet set{};
    set.slot = slot;
    set.map = stored_;
    const Status s = command(slot, admin_command(nvme::AdminOpcode::kMapSet), kAdmin,
                             std::as_writable_bytes(std::span(&set, 1)))
                         .status;
    if (!ok(s)) return fail(fmt::format("slot {} refuses map {}: {}", slot, stored_.version, status_name(s)));
    active_.insert(slot);
    trace("slot {} activates map {}", slot, stored_.version);
    if (active_.size() == slots_here()) told_ = stored_;
}

/// The writer is removed while it still has changes under way: drives that have the newest record refuse them.
void RebuildSim::lose_writer() {
    if (closing_ != Close::kNo) return;
    ++counts_.lost_writers;
    trace("the writer of epoch {} is removed", epoch_);
    closing_ = Close::kRemoving;
    record_.writer = 0;
    record_.revision += 1;
    raised_.clear();
}

/// Sends the newest record to one drive that does not have it. In force: all have it.
void RebuildSim::raise_one() {
    if (closing_ != Close::kRemoving && closing_ != Close::kOpening) return;
    for (std::uint32_t i = below(kSlots), tried = 0; tried < kSlots; ++tried, i = (i + 1) % kSlots) {
        if (raised_.contains(i) || i == out_slot()) continue;
        if (!send_record(i)) fail(fmt::format("slot {} refuses epoch {}", i, record_.epoch));
        trace("slot {} is in epoch {}, writer {}", i, record_.epoch, record_.writer);
        break;
    }
    if (raised_.size() == slots_here() || (closing_ == Close::kRemoving && options_.compare_while_written))
        record_in_force();
}

void RebuildSim::record_in_force() {
    for (auto& [number, change] : changes_) change.abandoned = change.abandoned || !change.done;
    if (closing_ == Close::kRemoving) {
        trace("epoch {} is closed", epoch_);
        closing_ = Close::kComparing;
        return;
    }
    closing_ = Close::kNo;
    epoch_ = record_.epoch;
    next_sequence_ = 1;
    resolved_ = 0;
    trace("epoch {} is in force", epoch_);
}

/// Makes the replicas equal that the writer of the closed epoch may have left different (rule 11).
void RebuildSim::reconcile_step() {
    if (closing_ != Close::kComparing || told_.version != stored_.version) return;
    if (!reconcile_ || reconcile_->version() != stored_.version)
        reconcile_.emplace(stored_, record_, false, options_.reconcile);
    copy_version_ = reconcile_->version();
    for (std::uint32_t i = below(6); i != ~0u && reconcile_; --i) {
        const daemon::Reconcile::Step step = reconcile_->step(*this);
        if (reconcile_->take_compared() && rebuild_ && !options_.keeps_copied) rebuild_->again(kVolume);
        if (step == daemon::Reconcile::Step::kEqual) end_reconcile();
    }
}

void RebuildSim::end_reconcile() {
    ++counts_.reconciled;
    counts_.reconciled_in_rebuild += rebuild_ ? 1 : 0;
    counts_.reconcile_put += reconcile_->blocks_put();
    trace("epoch {} is clean: {} blocks were put, {} ranges are left", epoch_, reconcile_->blocks_put(),
          reconcile_->left());
    reconcile_.reset();
    compare_replicas("after the end of an epoch", stored_);
    closing_ = Close::kEqual;
    if (quiet_ || one_in(2)) begin_next_epoch();
}

/// The daemon remembers that the replicas are equal, also if drives were out, restarted or replaced since then.
void RebuildSim::begin_next_epoch() {
    if (told_.version == stored_.version) compare_replicas("before the next epoch", stored_);
    closing_ = Close::kOpening;
    record_.epoch += 1;
    record_.writer = kClient;
    record_.revision += 1;
    raised_.clear();
}

void RebuildSim::learn_map() {
    if (known_.version == told_.version) return;
    known_ = told_;
    trace("the writer learns map {}", known_.version);
    // The writer gives up rounds that wait for a drive which is not there any more.
    for (auto& [number, change] : changes_)
        if (!change.done && !change.abandoned && change.version != known_.version) send(change);
}

std::uint32_t RebuildSim::out_slot() const {
    for (std::uint32_t s = 0; s < kSlots; ++s)
        if (stored_.slots[s].state == SlotState::kOut) return s;
    return kSlots;
}

/// One drive is out at a time, and only while every block has a sound replica that is in.
void RebuildSim::out_or_back() {
    if (told_.version != stored_.version) return;
    if (const std::uint32_t slot = out_slot(); slot != kSlots) return take_back(slot);
    const std::uint32_t slot = below(kSlots);
    std::uint32_t without = 0;
    for (std::uint32_t s = 0; s < kSlots; ++s) {
        if (s == slot) continue;
        if (stored_.slots[s].state != SlotState::kIn) return;
        without += drives_[s]->spoilt ? 1 : 0;
    }
    if (without + 1 < record_.geometry.replicas) take_out(slot);
}

/// It is silent, and its grant has ended: nothing reaches it, and it answers nothing.
void RebuildSim::take_out(std::uint32_t slot) {
    ++counts_.outs;
    counts_.outs_in_rebuild += stored_.slots[slot].state == SlotState::kRebuilding ? 1 : 0;
    counts_.outs_in_reconcile += reconcile_ ? 1 : 0;
    trace("slot {} is out", slot);
    rebuild_.reset();
    ++lives_[slot];
    raised_.erase(slot);
    change_map(SlotState::kOut, slot);
}

/// The same drive, restarted or not, or an empty one in its place.
void RebuildSim::take_back(std::uint32_t slot) {
    ++counts_.backs;
    trace("slot {} is back", slot);
    if (one_in(6)) {
        fill_slot(slot);
    } else if (one_in(2)) {
        kill(slot);
    }
    ++lives_[slot];
    change_map(options_.back_as_in ? SlotState::kIn : SlotState::kRebuilding, slot);
}

/// Takes a drive away for good and gives its slot to an empty one.
void RebuildSim::lose_drive() {
    if (losses_left_ == 0 || told_.version != stored_.version || active_.size() != kSlots) return;
    std::uint32_t without = 0;  // slots that lack blocks, or may
    for (std::uint32_t s = 0; s < kSlots; ++s)
        without += stored_.slots[s].state == SlotState::kRebuilding || drives_[s]->spoilt ? 1 : 0;
    const std::uint32_t slot = below(kSlots);
    if (without + 1 >= record_.geometry.replicas || stored_.slots[slot].state == SlotState::kRebuilding)
        return;
    --losses_left_;
    ++counts_.lost_drives;
    // One that was under way begins again under the new map.
    counts_.lost_in_rebuild += rebuild_ ? 1 : 0;
    rebuild_.reset();
    trace("slot {} is lost", slot);
    fill_slot(slot);
    change_map(SlotState::kRebuilding, slot);
}

void RebuildSim::rebuild_step() {
    const auto rebuilding = [&](const placement::ArrayMap& map) {
        for (std::uint32_t s = 0; s < kSlots; ++s)
            if (map.slots[s].state == SlotState::kRebuilding) return s;
        return kSlots;
    };
    if (!rebuild_) {
        const std::uint32_t slot = rebuilding(stored_);
        if (told_.version != stored_.version) return;
        if (slot == kSlots) return scrub_step();
        rebuild_.emplace(stored_, slot, std::span(&record_, 1), options_.rebuild);
    }
    copy_version_ = rebuild_->version();
    if (rebuild_->step(*this) != daemon::Rebuild::Step::kDone) return;
    counts_.copied += rebuild_->progress().blocks_copied;
    ++counts_.rebuilds;
    trace("slot {} is rebuilt", rebuild_->slot());
    change_map(SlotState::kIn, rebuild_->slot());
    rebuild_.reset();
}

Status RebuildSim::copy_open(std::uint32_t slot, const CopyRange& range, std::uint32_t& window) {
    if (!quiet_ && below(100) < options_.silences_of_hundred) return Status::kTimedOut;
    const auto c = nvme::encode_copy(nvme::CopyOpcode::kCopyOpen, kTerm, range.volume, range.first,
                                     range.blocks, copy_version_);
    const Answer a = command(slot, c, kAdmin, {});
    trace("open {}+{} at slot {}: {} {}", range.first, range.blocks, slot, status_name(a.status), a.result);
    window = static_cast<std::uint32_t>(a.result);
    return a.status;
}

Status RebuildSim::copy_survey(std::uint32_t slot, const CopyRange& range, nvme::SurveyKind kind,
                               std::span<nvme::SurveyExtent> extents, nvme::Epoch& epoch) {
    if (!quiet_ && below(100) < options_.silences_of_hundred) return Status::kTimedOut;
    const auto c = nvme::encode_copy(nvme::CopyOpcode::kCopySurvey, kTerm, range.volume, range.first,
                                     range.blocks, copy_version_, static_cast<std::uint32_t>(kind));
    const Answer a = command(slot, c, kAdmin, std::as_writable_bytes(extents));
    const Status s = a.status;
    epoch = static_cast<nvme::Epoch>(a.result);
    trace("survey slot {}: {}, groups {:x}, floor {}, highest {}", slot, status_name(s), extents[0].groups,
          extents[0].floor, extents[0].highest);
    return s;
}

Status RebuildSim::set_floor(std::uint32_t slot, nvme::VolumeId volume, nvme::Epoch epoch,
                             std::uint64_t floor) {
    if (!quiet_ && below(100) < options_.silences_of_hundred) return Status::kTimedOut;
    nvme::Command c = nvme::encode_floor(volume, epoch, floor);
    c.cdw14 = kTerm;
    const Status s = command(slot, c, kAdmin, {}).status;
    trace("floor {} of closed epoch {} to slot {}: {}", floor, epoch, slot, status_name(s));
    return s;
}

Status RebuildSim::copy_read(std::uint32_t slot, const CopyRange& range, const daemon::CopySource& source,
                             std::span<std::byte> data, nvme::Epoch& epoch) {
    if (!quiet_ && below(100) < options_.silences_of_hundred) return Status::kTimedOut;
    const auto c = nvme::encode_copy(nvme::CopyOpcode::kCopyRead, kTerm, range.volume, range.first,
                                     range.blocks, copy_version_, source.window, source.epoch);
    const Answer a = command(slot, c, kAdmin, data);
    const Status s = a.status;
    epoch = static_cast<nvme::Epoch>(a.result);
    for (std::uint32_t i = 0; i < range.blocks && options_.trace; ++i) {
        nvme::CopyRecord r;
        std::memcpy(&r, data.data() + i * sizeof(r), sizeof(r));
        trace("read block {} at slot {}: {}, kind {} sequence {}", range.first + i, slot, status_name(s),
              static_cast<int>(r.kind), r.sequence);
    }
    return s;
}

Status RebuildSim::copy_write(std::uint32_t slot, const CopyRange& range, const daemon::CopySource& source,
                              std::span<std::byte> data) {
    const auto c = nvme::encode_copy(nvme::CopyOpcode::kCopyWrite, kTerm, range.volume, range.first,
                                     range.blocks, copy_version_, source.window, source.epoch);
    if (!quiet_ && one_in(12)) {  // it arrives, but later than the copier waits
        messages_.push_back(
            {Message::Kind::kLateCopy, slot, lives_[slot], 0, 0, c, {data.begin(), data.end()}});
        return Status::kTimedOut;
    }
    const Status s = command(slot, c, kAdmin, data).status;
    trace("copy {}+{} to slot {}: {}", range.first, range.blocks, slot, status_name(s));
    if (ok(s) && !quiet_ && one_in(20)) return Status::kTimedOut;  // its answer is lost
    return s;
}

// The writer ------------------------------------------------------------------------------------------------------

void RebuildSim::new_change() {
    if (closing_ != Close::kNo && (closing_ != Close::kRemoving || one_in(2))) return;
    std::uint32_t open = 0;
    for (const auto& [number, change] : changes_) open += change.done || change.abandoned ? 0 : 1;
    if (open >= 6) return;
    Change change{(std::uint64_t{epoch_} << 32) | next_sequence_++, below(10) < options_.trims_of_ten,
                  address_of(below(kBlocks)), 1};
    const std::uint32_t chunk_end = (change.first | ((1u << record_.geometry.chunk_shift) - 1)) + 1;
    change.blocks += below(chunk_end - change.first);
    ++counts_.changes;
    Change& kept = changes_.emplace(change.number, change).first->second;
    send(kept);
}

/// Begins a round: the change goes to every replica of the writer's map.
void RebuildSim::send(Change& change) {
    change.version = known_.version;
    ++change.round;
    change.waiting.clear();
    const auto replicas = replicas_of(known_, change.first);
    for (std::uint32_t i = 0; i < replicas.count; ++i)
        if (known_.slots[replicas.slot[i]].state != SlotState::kOut) change.waiting.insert(replicas.slot[i]);
    for (const std::uint32_t slot : change.waiting) resend(change, slot);
}

void RebuildSim::resend(Change& change, std::uint32_t slot) {
    nvme::IoFields f;
    f.volume = kVolume;
    f.client = kClient;
    f.block = change.first;
    f.blocks = change.blocks;
    f.epoch = static_cast<nvme::Epoch>(change.number >> 32);
    f.map_version = change.version;
    f.sequence = change.number & 0xFFFFFFFFu;
    Message m{Message::Kind::kChange, slot, lives_[slot], change.number, change.round};
    m.command = nvme::encode_io(change.trim ? IoOpcode::kWriteZeroes : IoOpcode::kWrite, f);
    for (std::uint32_t i = 0; i < change.blocks && !change.trim; ++i) {
        const auto one = deengine::test::pattern(change.number);
        m.data.insert(m.data.end(), one.begin(), one.end());
    }
    messages_.push_back(std::move(m));
}

void RebuildSim::deliver(std::size_t index) {
    Message m = std::move(messages_[index]);
    messages_[index] = std::move(messages_.back());
    messages_.pop_back();
    const bool arrives = m.life == lives_[m.slot] && m.slot != out_slot();
    // The writer connects to the drives that its map names: another one in the slot is not there for it.
    const auto& named = known_.slots[m.slot].ssd_uuid;
    const bool stranger = std::memcmp(named, drives_[m.slot]->options.ssd_uuid, sizeof(named)) != 0;
    if (m.kind == Message::Kind::kChange) {
        Change& change = changes_.at(m.number);
        const bool waits = !change.done && !change.abandoned && change.round == m.round;
        if (stranger && waits) return messages_.push_back(std::move(m));
        if (!arrives) {  // the connection broke: the writer sends it again, if it still waits for this drive
            if (waits && change.waiting.contains(m.slot)) resend(change, m.slot);
            return;
        }
        const Answer a = command(m.slot, m.command, {kClient, false}, m.data);
        trace("change {:x} ({} {}+{}) at slot {} under map {}: {}", change.number,
              change.trim ? "trim" : "write", change.first, change.blocks, m.slot, m.command.cdw3,
              status_name(a.status));
        if (waits) take_answer(change, m.slot, a);
        return;
    }
    if (!arrives) return;
    const bool copy = m.kind == Message::Kind::kLateCopy;
    if (!copy && stranger) return;
    const Answer a = command(m.slot, m.command, copy ? kAdmin : Requester{kClient, false}, m.data);
    if (copy) ++counts_.late_copies;
    trace("{} {}at slot {}: {}", copy ? "late copy" : "floor",
          copy ? "" : fmt::format("{} ", m.command.cdw12), m.slot, status_name(a.status));
    // A drive that is back has not heard of the epoch yet; the next floor comes soon.
    const bool behind = a.status == Status::kNotGranted && counts_.backs != 0;
    // Only where the drive's record names no writer: it has the newest one and that has none, or it has an older one.
    const bool has_writer = raised_.contains(m.slot) && record_.writer != 0;
    const bool removed = a.status == Status::kAccessDenied && !has_writer;
    if (!copy && !ok(a.status) && a.status != Status::kStaleEpoch && !behind && !removed)
        fail(fmt::format("FLOOR to slot {}: {}", m.slot, status_name(a.status)));
}

void RebuildSim::take_answer(Change& change, std::uint32_t slot, Answer a) {
    if (a.status == Status::kStaleMap) {
        // Older than the drive's: again when the writer has learnt the map. Newer: the drive has not activated it yet.
        if (change.version != known_.version) return send(change);
        return resend(change, slot);
    }
    if (a.status == Status::kStaleEpoch) {
        change.abandoned = true;
        return;
    }
    if (nvme::may_retry(a.status)) return resend(change, slot);
    if (!ok(a.status))
        return fail(fmt::format("change {:x} of block {} at slot {}: {}", change.number, change.first, slot,
                                status_name(a.status)));
    change.waiting.erase(slot);
    if (!change.waiting.empty()) return;
    change.done = true;
    trace("change {:x} is acknowledged", change.number);
    for (std::uint32_t i = 0; i < change.blocks; ++i) {
        std::uint64_t& newest = acknowledged_[used_of(change.first + i)];
        newest = std::max(newest, change.number);
    }
    const std::uint64_t epoch = change.number & ~0xFFFFFFFFull;
    for (auto next = changes_.find(epoch | (resolved_ + 1)); next != changes_.end() && next->second.done;
         next = changes_.find(epoch | (resolved_ + 1)))
        ++resolved_;
}

void RebuildSim::publish_floor() {
    for (std::uint32_t s = 0; s < kSlots; ++s)
        messages_.push_back(
            {Message::Kind::kFloor, s, lives_[s], 0, 0, nvme::encode_floor(kVolume, epoch_, resolved_), {}});
}

// Reads -----------------------------------------------------------------------------------------------------------

Status RebuildSim::read_replica(std::uint32_t slot, nvme::BlockAddress block, nvme::Epoch epoch,
                                nvme::MapVersion version, std::vector<std::byte>& data) {
    nvme::IoFields f;
    f.volume = kVolume;
    f.client = kClient;
    f.block = block;
    f.epoch = epoch;
    f.map_version = version;
    data.resize(nvme::kBlockBytes);
    return command(slot, nvme::encode_io(IoOpcode::kRead, f), {kClient, false}, data).status;
}

void RebuildSim::read() {
    const nvme::BlockAddress block = address_of(below(kBlocks));
    const auto replicas = replicas_of(known_, block);
    const std::uint32_t slot = replicas.slot[below(replicas.count)];
    if (known_.slots[slot].state != SlotState::kIn || slot == out_slot()) return;
    std::vector<std::byte> data;
    const Status s = read_replica(slot, block, epoch_, known_.version, data);
    if (ok(s)) check_read(block, slot, acknowledged_[used_of(block)], data.data());
}

void RebuildSim::check_read(nvme::BlockAddress block, std::uint32_t slot, std::uint64_t at_least,
                            const std::byte* data) {
    ++counts_.reads;
    for (auto it = changes_.rbegin(); it != changes_.rend() && it->first >= at_least; ++it) {
        const Change& c = it->second;
        if (block < c.first || block - c.first >= c.blocks) continue;
        const auto expected = deengine::test::pattern(c.trim ? 0 : c.number);
        if (std::memcmp(expected.data(), data, expected.size()) == 0) return;
    }
    const auto zeroes = deengine::test::pattern(0);
    if (at_least == 0 && std::memcmp(zeroes.data(), data, zeroes.size()) == 0) return;
    const bool zero = std::memcmp(zeroes.data(), data, zeroes.size()) == 0;
    fail(fmt::format("block {} in slot {} (map {}) reads {}, though change {:x} of it was acknowledged",
                     block, slot, known_.version, zero ? "as zeroes" : "an older version", at_least));
}

/// Compares and mends while the writer goes on.
void RebuildSim::scrub_step() {
    if (closing_ != Close::kNo && closing_ != Close::kEqual) return;
    if (!scrub_ || scrub_->version() != stored_.version || scrub_->revision() != record_.revision) {
        scrub_.emplace(stored_, record_, 0, options_.scrub);
        spoilt_in_pass_ = false;
    }
    copy_version_ = scrub_->version();
    for (std::uint32_t i = 1 + below(8); i != 0; --i) {
        const daemon::Scrub::Step step = scrub_->step(*this);
        if (!scrub_->differences().empty()) {
            const daemon::ScrubDifference& d = scrub_->differences().front();
            return fail(fmt::format("the scrub finds that block {} differs in slots {} and {}", d.block,
                                    d.newer_slot, d.older_slot));
        }
        if (step == daemon::Scrub::Step::kWaits) return;
        if (step == daemon::Scrub::Step::kDone) return end_scrub();
    }
}

void RebuildSim::end_scrub() {
    const daemon::ScrubCounts& found = scrub_->counts();
    ++counts_.scrub_passes;
    counts_.scrubbed += found.blocks;
    counts_.mended += found.mended;
    trace("a scrub has compared {} blocks and mended {}", found.blocks, found.mended);
    if (!spoilt_in_pass_ && found.unreadable + found.refused + found.unresolved == 0)
        for (auto& drive : drives_) drive->spoilt = false;
    scrub_.reset();
}

/// Faults have ceased, and everything is resolved: one pass mends every block.
void RebuildSim::scrub_all() {
    scrub_.reset();
    publish_floor();
    while (!messages_.empty()) deliver(0);
    for (int steps = 0; steps < 20'000 && failure_.empty(); ++steps) {
        now_ns_ += 1'000'000;
        scrub_step();
        if (!scrub_) break;
        if (one_in(20)) publish_floor();
        while (!messages_.empty()) deliver(0);
    }
    if (scrub_) fail("a scrub does not end");
    if (failure_.empty())
        for (auto& drive : drives_)
            if (drive->spoilt) fail("after a scrub a drive still has blocks that it cannot read");
}

// Faults ----------------------------------------------------------------------------------------------------------

void RebuildSim::kill(std::uint32_t slot) {
    ++counts_.kills;
    trace("slot {} is killed", slot);
    counts_.kills_in_rebuild += rebuild_ ? 1 : 0;
    counts_.kills_in_reconcile += reconcile_ ? 1 : 0;
    ++lives_[slot];
    drives_[slot]->mount();
    if (!drives_[slot]->trouble.empty()) return fail(drives_[slot]->trouble);
    active_.erase(slot);
}

/// On one drive at a time, and with three replicas: another donor then has the block.
void RebuildSim::spoil_page() {
    if (record_.geometry.replicas < 3 || told_.version != stored_.version) return;
    std::uint32_t without = 0;
    for (std::uint32_t s = 0; s < kSlots; ++s)
        without += stored_.slots[s].state != SlotState::kIn || drives_[s]->spoilt ? 1 : 0;
    if (without + 1 >= record_.geometry.replicas) return;
    const std::uint32_t slot = below(kSlots);
    auto& flash = drives_[slot]->flash;
    deengine::PageNumber page = 0;
    bool data = false;
    for (int tries = 0; tries < 16 && !data; ++tries) {
        page = below(flash.geometry().pages());
        deengine::PageOob oob{};
        data = has_data(flash.read_oob(page, oob)) && oob.kind == deengine::PageKind::kData &&
               oob.vid == kVolume;
    }
    if (!data) return;
    flash.unreadable.insert(page);
    drives_[slot]->spoilt = true;
    spoilt_in_pass_ = true;
    ++counts_.unreadable;
}

// The history -----------------------------------------------------------------------------------------------------

void RebuildSim::event() {
    now_ns_ += 1'000'000;
    if (below(100) < options_.spoils_of_hundred) return spoil_page();
    if (options_.outs_of_hundred != 0 && below(100) < options_.outs_of_hundred) return out_or_back();
    if (options_.writers_of_hundred != 0 && below(100) < options_.writers_of_hundred) return lose_writer();
    const std::uint32_t dice = below(100);
    if (dice < 14) return new_change();
    if (dice < 58) {
        if (!messages_.empty()) deliver(below(static_cast<std::uint32_t>(messages_.size())));
        return;
    }
    if (dice < 66) return publish_floor();
    if (dice < 76) return read();
    if (dice < 80) return activate_one();
    if (dice < 82) return raise_one();
    if (dice < 86) return learn_map();
    if (dice < 93) return rebuild_step();
    if (dice < 98 && closing_ == Close::kEqual && one_in(6)) return begin_next_epoch();
    if (dice < 98) return closing_ == Close::kComparing ? reconcile_step() : rebuild_step();
    if (dice == 98) return one_in(4) ? kill(below(kSlots)) : one_in(2) ? spoil_page() : void();
    if (one_in(3)) return lose_drive();
    if (one_in(4)) lose_writer();
}

std::string RebuildSim::run() {
    for (std::uint32_t i = 0; i < options_.steps && failure_.empty(); ++i) event();
    settle();
    if (failure_.empty()) scrub_all();
    if (failure_.empty()) compare_all();
    if (failure_.empty()) {
        lose_writer();
        settle();
        if (failure_.empty()) compare_replicas("at the end", stored_);
    }
    return failure_;
}

/// Faults cease: everything must end within a bounded number of events.
void RebuildSim::settle() {
    quiet_ = true;
    losses_left_ = 0;
    const auto settled = [&] {
        return messages_.empty() && !rebuild_ && told_.version == stored_.version &&
               known_.version == told_.version && active_.size() == kSlots && closing_ == Close::kNo &&
               resolved_ + 1 == next_sequence_ && std::ranges::none_of(stored_.slots, [](const auto& s) {
                   return s.state == SlotState::kRebuilding || s.state == SlotState::kOut;
               });
    };
    for (int i = 0; i < 20'000 && failure_.empty() && !settled(); ++i) {
        now_ns_ += 1'000'000;
        if (out_slot() != kSlots) out_or_back();
        activate_one();
        raise_one();
        learn_map();
        rebuild_step();
        reconcile_step();
        if (closing_ == Close::kEqual && !rebuild_) begin_next_epoch();
        if (!messages_.empty()) deliver(below(static_cast<std::uint32_t>(messages_.size())));
        if (one_in(20) && messages_.size() < 20) publish_floor();
    }
    if (failure_.empty() && !settled())
        fail(fmt::format(
            "20,000 events after the last fault: {} messages, {} of {} changes resolved, map {} stored, {} "
            "in force, {} known{}",
            messages_.size(), resolved_, next_sequence_ - 1, stored_.version, told_.version, known_.version,
            rebuild_ ? fmt::format(", rebuild at {} of {} blocks, {} ranges stuck",
                                   rebuild_->progress().blocks_done, rebuild_->progress().blocks_total,
                                   rebuild_->stuck().size())
                     : ""));
}

/// Invariant 5: after CLEAN(e) replicas are equal until the next epoch's first write. Not compared are blocks that a drive
/// cannot read, and drives that have just begun again.
void RebuildSim::compare_replicas(const char* when, const placement::ArrayMap& map) {
    for (std::uint32_t used = 0; used < kBlocks; ++used) {
        const nvme::BlockAddress block = address_of(used);
        const auto replicas = replicas_of(map, block);
        std::vector<std::byte> first;
        for (std::uint32_t i = 0; i < replicas.count; ++i) {
            const std::uint32_t slot = replicas.slot[i];
            if (map.slots[slot].state != SlotState::kIn || !active_.contains(slot)) continue;
            std::vector<std::byte> data;
            const Status s = read_replica(slot, block, record_.epoch, map.version, data);
            if ((s == Status::kUnrecoveredReadError || s == Status::kDoubtful) && drives_[slot]->spoilt)
                continue;
            if (!ok(s)) return fail(fmt::format("block {} in slot {}: {}", block, slot, status_name(s)));
            if (first.empty()) first = data;
            if (first != data)
                return fail(fmt::format(
                    "{}, the replicas of block {} differ: {} in slot {} (map {})", when, block,
                    data == deengine::test::pattern(0) ? "zeroes" : "other contents", slot, map.version));
        }
    }
}

void RebuildSim::compare_all() {
    for (std::uint32_t used = 0; used < kBlocks; ++used) {
        const nvme::BlockAddress block = address_of(used);
        const auto replicas = replicas_of(known_, block);
        for (std::uint32_t i = 0; i < replicas.count; ++i) {
            const std::uint32_t slot = replicas.slot[i];
            std::vector<std::byte> data;
            const Status s = read_replica(slot, block, epoch_, known_.version, data);
            ++counts_.blocks_compared;
            // Not healed yet: a bad page, or a young one that a kill made doubtful.
            const bool bad = s == Status::kUnrecoveredReadError || s == Status::kDoubtful;
            if (bad && drives_[slot]->spoilt) continue;
            if (!ok(s)) return fail(fmt::format("block {} in slot {}: {}", block, slot, status_name(s)));
            check_read(block, slot, acknowledged_[used_of(block)], data.data());
        }
    }
    for (std::uint32_t s = 0; s < kSlots; ++s)
        for (const std::string& finding : drives_[s]->engine->audit())
            fail(fmt::format("slot {}: {}", s, finding));
}

}  // namespace gnstor::test
