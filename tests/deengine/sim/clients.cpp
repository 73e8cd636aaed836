// clients.cpp: what the simulated clients and the daemon send: late, twice, changed, overlapping, and wrong.
#include "deengine/sim/world.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>

namespace gnstor::deengine::sim {

using nvme::IoOpcode;
using nvme::Status;

namespace {

constexpr nvme::ClientId kClients = 4;
constexpr std::uint32_t kRangeBlocks = 12;
/// Where the hot blocks lie: beside and across the borders of extents (256 blocks).
constexpr nvme::BlockAddress kRangeStart[] = {250, 0, 506, 762, 1018, 1274};

nvme::BlockAddress hot_block(std::uint32_t index) {
    const std::uint32_t range = index / kRangeBlocks;
    constexpr std::uint32_t kRanges = std::size(kRangeStart);
    return kRangeStart[range % kRanges] + (range / kRanges) * kRangeBlocks + index % kRangeBlocks;
}

}  // namespace

nvme::VolumeId World::pick_volume() {
    if (oracle_.volumes.empty()) return 0;
    auto it = oracle_.volumes.begin();
    std::advance(it, static_cast<long>(random_.below(oracle_.volumes.size())));
    return it->first;
}

nvme::BlockAddress World::pick_block(std::uint32_t& blocks) {
    const auto index = static_cast<std::uint32_t>(random_.below(config_.hot_blocks));
    const std::uint32_t room =
        std::min(config_.hot_blocks - index, kRangeBlocks - index % kRangeBlocks);  // a range is contiguous
    blocks = std::min(room, static_cast<std::uint32_t>(1 + random_.below(config_.max_blocks)));
    return hot_block(index);
}

Sent World::base(nvme::VolumeId vid, IoOpcode opcode) {
    const VolumeState& v = oracle_.volumes[vid];
    Sent s;
    s.vid = vid;
    s.life = v.life;
    s.opcode = opcode;
    s.fields.volume = vid;
    s.fields.client = v.record.writer;
    s.fields.epoch = v.record.epoch;
    s.fields.map_version = oracle_.map.map.version;
    return s;
}

/// New contents for every target.
void World::refill(Sent& s) {
    for (std::size_t i = 0; i < s.targets.size(); ++i) {
        Sent::Target& t = s.targets[i];
        t.content = next_content_++;
        Pattern(t.content).fill(s.data.data() + i * nvme::kBlockBytes);
        t.order.crc = order_crc(t.content);
    }
}

void World::target(Sent& s, bool data) {
    static const std::uint32_t kZeroCrc = order_crc(0);
    for (std::uint32_t i = 0; i < s.fields.blocks; ++i)
        s.targets.push_back({s.fields.block + i, {s.fields.epoch, s.fields.sequence, kZeroCrc}, 0});
    if (!data) return;
    s.data.resize(std::size_t{s.fields.blocks} * nvme::kBlockBytes);
    refill(s);
}

Sent World::make_write(nvme::VolumeId vid, nvme::BlockAddress first, std::uint32_t blocks,
                       std::uint64_t sequence) {
    Sent s = base(vid, IoOpcode::kWrite);
    s.fields.block = first;
    s.fields.blocks = blocks;
    s.fields.sequence = sequence;
    target(s, true);
    return s;
}

Sent World::make_zero(nvme::VolumeId vid, nvme::BlockAddress first, std::uint32_t blocks,
                      std::uint64_t sequence) {
    Sent s = base(vid, IoOpcode::kWriteZeroes);
    s.fields.block = first;
    s.fields.blocks = blocks;
    s.fields.sequence = sequence;
    target(s, false);
    return s;
}

Sent World::make_trim(nvme::VolumeId vid, std::vector<nvme::DsmRange> ranges, std::uint64_t sequence) {
    Sent s = base(vid, IoOpcode::kDatasetManagement);
    s.fields.sequence = sequence;
    const std::uint32_t crc = order_crc(0);
    for (const nvme::DsmRange& r : ranges)
        for (std::uint32_t i = 0; i < r.blocks; ++i)
            s.targets.push_back(
                {static_cast<nvme::BlockAddress>(r.start + i), {s.fields.epoch, sequence, crc}, 0});
    s.ranges = std::move(ranges);
    return s;
}

Sent World::make_flush(nvme::VolumeId vid) {
    Sent s = base(vid, IoOpcode::kFlush);
    s.fields.client = oracle_.volumes[vid].record.owner;
    return s;
}

void World::client_step(std::uint64_t dice) {
    const nvme::VolumeId vid = pick_volume();
    if (vid == 0) return admin_step();
    if (config_.strangers != 0 && random_.below(1000) < config_.strangers) return stranger_step(vid);
    if (config_.long_idles != 0 && random_.below(1000) < config_.long_idles) return idle_long();
    const bool polls = (dice >= 660 && dice < 700) || (dice >= 750 && dice < 770) || dice >= 795;
    const bool writes = polls && config_.polls < 1000 && random_.below(1000) >= config_.polls;
    if (dice < 520 || writes) {
        while (ready_[vid].size() < config_.late) make_ready(vid);
        return send_ready(vid);
    }
    if (dice < 660) return send_read(vid);
    if (dice < 700) return deliver(make_flush(vid));
    if (dice < 750) return send_again(vid);
    if (dice < 770) return send_floor(vid);
    if (dice < 795) return send_refused(vid);
    idle(static_cast<std::uint32_t>(1 + random_.below(3)));
}

void World::make_ready(nvme::VolumeId vid) {
    VolumeState& v = oracle_.volumes[vid];
    v.next_sequence += 1 + random_.below(3);
    const std::uint64_t sequence = v.next_sequence;
    v.unresolved.insert(sequence);
    std::uint32_t blocks = 1;
    const nvme::BlockAddress first = pick_block(blocks);
    const std::uint64_t dice = random_.below(100);
    Sent s;
    if (dice < 78) {
        s = make_write(vid, first, blocks, sequence);
        s.fields.fua = random_.below(8) == 0;
    } else if (dice < 86) {
        s = make_zero(vid, first, blocks, sequence);
    } else {
        std::vector<nvme::DsmRange> ranges{{0, blocks, first}};
        while (ranges.size() < 4 && random_.below(3) == 0) {
            const nvme::BlockAddress next = pick_block(blocks);
            ranges.push_back({0, blocks, next});
        }
        s = make_trim(vid, std::move(ranges), sequence);
    }
    ready_[vid].push_back(std::move(s));
}

void World::send_ready(nvme::VolumeId vid) {
    std::vector<Sent>& ready = ready_[vid];
    const auto at = ready.begin() + static_cast<std::ptrdiff_t>(random_.below(ready.size()));
    Sent s = std::move(*at);
    ready.erase(at);
    s.fields.map_version = oracle_.map.map.version;
    deliver(std::move(s));
}

/// A retry, or a copy that the network kept: the same bytes, or a buffer that changed meanwhile.
void World::send_again(nvme::VolumeId vid) {
    if (recent_.empty()) return send_read(vid);
    Sent s = recent_[random_.below(recent_.size())];
    const VolumeState* v = oracle_.find(s.vid, s.life);
    if (v == nullptr) return;
    s.fields.map_version = oracle_.map.map.version;
    s.refusal.reset();
    if (s.fields.epoch < v->record.epoch) s.refusal = Status::kStaleEpoch;
    if (s.opcode == IoOpcode::kWrite && s.fields.sequence > v->floor && random_.below(3) == 0) refill(s);
    deliver(std::move(s));
}

void World::send_read(nvme::VolumeId vid) {
    Sent s = base(vid, IoOpcode::kRead);
    s.fields.client = oracle_.volumes[vid].record.owner;
    s.fields.block = pick_block(s.fields.blocks);
    // Of a block that rotted it would be a version that only another replica can replace.
    bool whole = true;
    for (std::uint32_t i = 0; i < s.fields.blocks; ++i) {
        const BlockState* known = oracle_.find_block(vid, s.fields.block + i);
        whole = whole && (known == nullptr || known->damaged == 0);
    }
    s.fields.accept_older = whole && s.fields.blocks == 1 && random_.below(2) == 0;
    if (s.fields.blocks == 1 && random_.below(2) == 0) {
        s.fields.first_sector = static_cast<std::uint8_t>(random_.below(8));
        s.fields.sectors = static_cast<std::uint8_t>(1 + random_.below(8u - s.fields.first_sector));
        s.data.resize(std::size_t{s.fields.sectors} * nvme::kSectorBytes);
    } else {
        s.data.resize(std::size_t{s.fields.blocks} * nvme::kBlockBytes);
    }
    deliver(std::move(s));
}

/// A right write with one thing wrong: it must leave no trace.
void World::send_refused(nvme::VolumeId vid) {
    VolumeState& v = oracle_.volumes[vid];
    std::uint32_t blocks = 1;
    const nvme::BlockAddress first = pick_block(blocks);
    Sent s = make_write(vid, first, blocks, v.next_sequence + 500'000);
    switch (random_.below(6)) {
        case 0:
            s.fields.map_version += 1;
            s.refusal = Status::kStaleMap;
            break;
        case 1:
            s.fields.epoch += 1;
            s.refusal = Status::kNotGranted;
            break;
        case 2:
            s.fields.epoch -= 1;
            s.refusal = Status::kStaleEpoch;
            break;
        case 3:
            s.fields.volume = 99;
            s.refusal = Status::kAccessDenied;
            break;
        case 4:
            s.fields.sequence = 0;
            s.refusal = Status::kInvalidField;
            break;
        default:
            s.fields.block = static_cast<nvme::BlockAddress>(kCapacity);
            s.refusal = Status::kLbaOutOfRange;
            break;
    }
    deliver(std::move(s));
}

/// All sequences up to F are resolved: nothing that is in flight or will be retried lies there.
void World::send_floor(nvme::VolumeId vid) {
    VolumeState& v = oracle_.volumes[vid];
    const std::uint64_t floor = v.unresolved.empty() ? v.next_sequence : *v.unresolved.begin() - 1;
    if (floor <= v.floor) return;
    nvme::Command c{};
    c.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::kFloor);
    c.cdw10 = vid;
    c.cdw11 = v.record.epoch;
    c.cdw12 = static_cast<std::uint32_t>(floor);
    c.cdw13 = static_cast<std::uint32_t>(floor >> 32);
    const Answer a = drive_->call_admin(c, {});
    if (crash_medium_) return;
    note(fmt::format("floor of volume {} is {}", vid, floor));
    if (!ok(a.status) && syncs_fail_) return;
    if (!ok(a.status)) return fail(fmt::format("FLOOR was answered {}", nvme::status_name(a.status)));
    v.floor = floor;
}

nvme::VolumeRecord World::new_record(nvme::VolumeId vid) {
    const auto writer = static_cast<nvme::ClientId>(1 + random_.below(kClients));
    nvme::VolumeRecord r{};
    r.record_version = nvme::kVolumeRecordVersion;
    r.epoch = r.birth_epoch = oracle_.deleted.contains(vid) ? oracle_.deleted[vid] + 1 : 1;
    r.geometry = {0x1234u + vid, kCapacity, vid, 2, 1, 0};
    r.owner = writer;
    r.writer = writer;
    r.flags = nvme::kVolumeWorldReadable;
    if (config_.strangers != 0 && random_.below(2) == 0) {
        r.flags = 0;
        r.reader_count = 1;
        r.readers[0] = kReader;
    }
    if (config_.slots > 1) r.geometry.replicas = static_cast<std::uint8_t>(1 + random_.below(2));
    std::snprintf(r.name, sizeof(r.name), "volume-%u", vid);
    std::snprintf(r.owner_name, sizeof(r.owner_name), "client-%u", writer);
    return r;
}

void World::admin_step() {
    const std::uint64_t dice = random_.below(100);
    const auto vid = static_cast<nvme::VolumeId>(1 + random_.below(config_.volumes));
    if (!oracle_.volumes.contains(vid)) return add_volume(vid);
    if (dice < 45) return reopen(vid);
    if (dice < 70) return delete_volume(vid);
    if (dice < 85) return new_map();
    close_and_boot();
}

void World::add_volume(nvme::VolumeId vid) {
    change_admin({PendingAdmin::Kind::kAdd, new_record(vid)});
}

void World::delete_volume(nvme::VolumeId vid) {
    change_admin({PendingAdmin::Kind::kDelete, oracle_.volumes[vid].record});
}

/// The next opening for writing. What the one before still has on the way must be refused.
void World::reopen(nvme::VolumeId vid) {
    nvme::VolumeRecord r = oracle_.volumes[vid].record;
    ++r.epoch;
    r.writer = static_cast<nvme::ClientId>(1 + random_.below(kClients));
    change_admin({PendingAdmin::Kind::kChmod, r});
    if (crash_medium_ || oracle_.volumes[vid].record.epoch != r.epoch) return;
    for (Sent& s : ready_[vid]) {
        s.refusal = Status::kStaleEpoch;
        s.fields.map_version = oracle_.map.map.version;
        if (random_.below(2) == 0 && !crash_medium_) deliver(std::move(s));
    }
    ready_[vid].clear();
}

void World::change_admin(PendingAdmin change) {
    using Kind = PendingAdmin::Kind;
    const nvme::VolumeId vid = change.record.geometry.volume;
    Answer a;
    metadata_->fail = config_.operations != 0 && random_.below(24) == 0;
    if (!metadata_->fail) oracle_.admin = change;
    if (change.kind == Kind::kDelete) {
        nvme::Command c{};
        c.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::kVolumeDelete);
        c.cdw10 = vid;
        a = drive_->call_admin(c, {});
    } else {
        a = drive_->call_admin_with(
            change.kind == Kind::kAdd ? nvme::AdminOpcode::kVolumeAdd : nvme::AdminOpcode::kVolumeChmod,
            change.record);
    }
    const bool refused = metadata_->fail;
    metadata_->fail = false;
    if (crash_medium_ || failed()) return;  // the reboot finds out
    note(fmt::format("{} of volume {} epoch {} -> {}",
                     change.kind == Kind::kAdd      ? "ADD"
                     : change.kind == Kind::kDelete ? "DELETE"
                                                    : "CHMOD",
                     vid, change.record.epoch, nvme::status_name(a.status)));
    if (refused) {  // not stored, so not done
        ++counters_.refusals;
        if (ok(a.status)) fail(fmt::format("a change of volume {} was not stored and acknowledged", vid));
        return;
    }
    if (change.kind == Kind::kAdd && a.status == Status::kCapacityExceeded && !room_below_) {
        oracle_.admin.reset();
        return;
    }
    if (!ok(a.status) && syncs_fail_) {
        crash_armed_ = true;  // done or not: the next boot tells
        return;
    }
    if (!ok(a.status))
        return fail(fmt::format("a change of volume {} was answered {}", vid, nvme::status_name(a.status)));
    took_admin();
}

void World::took_admin() {
    const PendingAdmin done = *oracle_.admin;
    const nvme::VolumeId vid = done.record.geometry.volume;
    oracle_.admin.reset();
    oracle_.apply(done);
    if (done.kind == PendingAdmin::Kind::kChmod) return;
    ready_[vid].clear();
    if (done.kind == PendingAdmin::Kind::kAdd) {
        oracle_.volumes[vid].life = next_life_++;
    } else {
        ++counters_.deletions;
    }
}

void World::new_map() {
    ++oracle_.map.map.version;
    const std::uint64_t now = drive_->now_ns;
    const Answer a = drive_->call_admin_with(nvme::AdminOpcode::kMapSet, oracle_.map);
    if (crash_medium_ || failed()) return;
    note(fmt::format("MAP SET {} -> {}", oracle_.map.map.version, nvme::status_name(a.status)));
    if (!ok(a.status) && syncs_fail_)
        crash_armed_ = true;
    else if (!ok(a.status))
        fail(fmt::format("MAP SET was answered {}", nvme::status_name(a.status)));
    else
        took_map(now);
}

}  // namespace gnstor::deengine::sim
