// cuts.cpp: images as a cut leaves them, boots from them, and the comparison of a drive with the oracle.
#include "deengine/sim/world.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>

namespace gnstor::deengine::sim {

using nvme::IoOpcode;
using nvme::Status;

namespace {

constexpr std::uint32_t kTriesMax = 100;  ///< of a write that is answered Busy
constexpr std::uint32_t kBootsMax = 6;    ///< cuts of one recovery after the other
using Block = std::array<std::byte, nvme::kBlockBytes>;
constexpr ContentId kProbeContent = ContentId{1} << 48;

/// Anything that an interrupted write of data and record may leave.
Fate draw_torn(SplitMix64& random, bool in_order) {
    const std::uint64_t noise = random.below(2) == 0 && !in_order ? random.next() | 1 : 0;
    const auto prefix = [&](std::uint32_t whole, std::uint32_t step) {
        switch (random.below(4)) {
            case 0:
                return 0u;
            case 1:
                return whole;
            case 2:
                return static_cast<std::uint32_t>(random.below(whole / step)) * step;
            default:
                return static_cast<std::uint32_t>(random.below(whole));
        }
    };
    const std::uint32_t data = prefix(nvme::kBlockBytes, nvme::kSectorBytes);
    const std::uint32_t record = prefix(sizeof(PageOob), 4);
    if (in_order && record != 0) return Fate::torn(nvme::kBlockBytes, record, noise);
    return Fate::torn(data, record, noise);
}

Fate draw_fate(SplitMix64& random, bool in_order) {
    const std::uint64_t dice = random.below(3);
    if (dice == 0) return Fate::absent();
    return dice == 1 ? Fate::whole() : draw_torn(random, in_order);
}

/// The block that a finding of a mount says is lost.
std::optional<std::pair<nvme::VolumeId, nvme::BlockAddress>> block_lost(const std::string& finding) {
    unsigned shard = 0, block = 0, volume = 0;
    int end = 0;
    if (std::sscanf(finding.c_str(),
                    "shard %u: block %u of volume %u was acknowledged and its page is gone%n", &shard, &block,
                    &volume, &end) != 3 ||
        end == 0)
        return std::nullopt;
    return std::pair(static_cast<nvme::VolumeId>(volume), static_cast<nvme::BlockAddress>(block));
}

/// A finding of an audit about the record of a mapped page that the medium has lost.
bool names_lost_page(const Medium& medium, const std::string& finding) {
    const bool erased =
        finding.find("(kind 255)") != finding.npos || finding.find("unit serial 4294967295") != finding.npos;
    const std::size_t at = finding.find("page ");
    unsigned page = 0;
    return erased && at != finding.npos && std::sscanf(finding.c_str() + at, "page %u", &page) == 1 &&
           page < medium.options().geometry.pages() && medium.page(page).lost;
}

}  // namespace

bool World::mount(Medium& medium, Drive& drive, const char* when) {
    ++counters_.recoveries;
    const std::vector<std::string> before = config_.trace ? medium.dump() : std::vector<std::string>{};
    const bool may_lose = may_lose_records(medium);
    const bool lost_before = records_lost_;
    records_lost_ = lost_before || may_lose;  // by the end of a mount that is cut it may have said so
    const std::string why = drive.mount();
    const bool says_so = why.empty() && drive.report().records_lost != 0;
    records_lost_ = lost_before || says_so;  // the call went on to its end, whatever was cut in it
    if (config_.trace && failure_.empty()) {
        mounted_from_ = before;
        for (const std::string& finding : drive.report().findings)
            mounted_from_.push_back("  found: " + finding);
    }
    if (says_so && !may_lose) {
        fail(fmt::format("{}: the drive calls records lost, and none is", when));
        return false;
    }
    if (why.empty()) return true;
    if (record_rot_ || records_gone_) {
        ++counters_.mounts_refused;
        refused_ = &drive == drive_.get();
        go_on_with_loss(medium, drive.metadata());
    } else {
        fail(fmt::format("{}: the drive does not mount: {}", when, why));
    }
    return false;
}

/// A mount that was refused for cause is asked to go on without what is lost. Which blocks that are the drive
/// itself must know: of those that it names the reads fail, now and after the next boot. Of the others a
/// rotten record, or a page of the log, takes the newest version, and an older one may show.
void World::go_on_with_loss(const Medium& medium, const Metadata& metadata) {
    const auto whole = [](std::size_t, std::size_t, const Operation&, bool) { return Fate::whole(); };
    std::unique_ptr<Medium> flash = medium.image(config_.cut_mode(), whole);
    Metadata state;
    state.blob = metadata.blob;
    std::set<std::pair<nvme::VolumeId, nvme::BlockAddress>> lost;
    for (const bool again : {false, true}) {
        Drive drive(*flash, state, config_.engine);
        drive.term = term_;
        if (!again) drive.accept_loss();
        if (!drive.mount().empty()) return;
        const Answer a = drive.call_admin_with(nvme::AdminOpcode::kMapSet, oracle_.map);
        if (!ok(a.status)) return fail("a drive that accepted a loss does not take its map");
        if (!audit(drive, "after a loss was accepted")) return;
        counters_.losses_accepted += again ? 0 : 1;
        for (const std::string& finding : drive.report().findings)
            if (const auto block = block_lost(finding)) lost.insert(*block);
        if (!are_lost(drive, lost) || !others_are_there(drive)) return;
        flash = flash->image(config_.cut_mode(), whole);
    }
}

/// Where nothing but records of blocks has rotted: a loss that was accepted is no other block's.
bool World::others_are_there(Drive& drive) {
    for (const nvme::VolumeRecord& r : drive.list()) {
        const auto known = oracle_.volumes.find(r.geometry.volume);
        if (!config_.rot_lonely || known == oracle_.volumes.end()) continue;
        for (const auto& [vba, block] : known->second.blocks) {
            const Version* version = nullptr;
            if (block.damaged == 0 && !compare_block(drive, r.geometry.volume, r, vba, block, true, &version))
                return false;
        }
    }
    return true;
}

/// Reads of these blocks fail.
bool World::are_lost(Drive& drive, const std::set<std::pair<nvme::VolumeId, nvme::BlockAddress>>& lost) {
    for (const nvme::VolumeRecord& r : drive.list())
        for (const auto& [vid, vba] : lost) {
            if (vid != r.geometry.volume || !owns(r, vba)) continue;
            ++counters_.blocks_lost;
            Block bytes;
            const Answer a =
                drive.call(nvme::encode_io(IoOpcode::kRead, read_fields(r, vba)), r.owner, bytes);
            if (a.status == Status::kUnrecoveredReadError) continue;
            fail(fmt::format("volume {} block {} was lost, as the drive said, and its read was answered {}",
                             vid, vba, nvme::status_name(a.status)));
            return false;
        }
    return true;
}

bool World::audit(Drive& drive, const char* when) {
    ++counters_.audits;
    std::vector<std::string> findings = drive.audit();
    // What the medium has lost, no table can know.
    std::erase_if(findings, [&](const std::string& f) { return names_lost_page(drive.medium(), f); });
    if (findings.empty()) return true;
    std::string text = fmt::format("{} the drive's tables disagree:", when);
    for (const std::string& f : findings) text += "\n    " + f;
    fail(text);
    return false;
}

void World::hook(Medium& medium, Metadata& metadata, std::uint32_t depth) {
    medium.on_operation = [this, &metadata, depth](Medium& m) { at_operation(m, metadata, depth, {}); };
    metadata.on_store = [this, &medium, &metadata, depth](std::span<const std::byte> blob) {
        at_operation(medium, metadata, depth, blob);
    };
}

void World::boot(bool first) {
    if (first) hook(*medium_, *metadata_, 0);
    drive_ = std::make_unique<Drive>(
        *medium_, *metadata_, config_.engine,
        [this](std::uint64_t tag, Status status, std::uint32_t dw0) { complete(tag, status, dw0); });
    drive_->term = term_;
    if (!mount(*medium_, *drive_, "boot") || crash_medium_) return;
    note_boot(*drive_, *medium_);
    const std::uint64_t now = drive_->now_ns;
    const Answer a = drive_->call_admin_with(nvme::AdminOpcode::kMapSet, oracle_.map);
    if (!ok(a.status) && !crash_medium_)
        fail(fmt::format("boot: MAP SET was answered {}", nvme::status_name(a.status)));
    if (crash_medium_) return;
    note_settled();
    took_map(now);
}

/// Before a flash operation or the end of a sync; before a store of the drive's state, if there is a new
/// blob.
void World::at_operation(Medium& medium, const Metadata& metadata, std::uint32_t depth,
                         std::span<const std::byte> new_blob) {
    if (crash_medium_ || failed()) return;
    const bool stores = !new_blob.empty();
    const std::vector<std::byte> next(new_blob.begin(), new_blob.end());
    if (depth == 0 && crash_armed_ && cuts_.below(4) == 0) {
        crash_medium_ = crash_image(medium);
        crash_blob_ = stores && cuts_.below(2) == 0 ? next : metadata.blob;
        return;
    }
    const std::uint32_t chance = depth == 0 ? config_.cuts : config_.nested;
    if (depth > config_.depth || cuts_.below(1000) >= chance) return;
    if (config_.every_torn_class && depth == 0) {
        for (const Medium::Fates& fates : torn_classes(medium)) {
            look(medium, metadata.blob, depth, fates);
            if (stores) look(medium, next, depth, fates);
        }
        return;
    }
    for (std::uint32_t i = 0; i < config_.images; ++i)
        look(medium, stores && cuts_.below(2) == 0 ? next : metadata.blob, depth, draw_fates(cuts_));
}

/// What the history goes on from.
std::unique_ptr<Medium> World::crash_image(const Medium& medium) {
    if (config_.kills_first != 0 && cuts_.below(1000) < config_.kills_first) {
        ++counters_.kills_first;
        return medium.killed(cuts_.below(2) == 0 ? Fate::whole() : draw_torn(cuts_, true));
    }
    return medium.image(config_.cut_mode(), draw_fates(cuts_));
}

void World::look(const Medium& medium, const std::vector<std::byte>& blob, std::uint32_t depth,
                 const Medium::Fates& fates) {
    if (failed()) return;
    ++(depth == 0 ? counters_.cuts : counters_.cuts_in_recovery);
    const auto before = forgiven_;
    const bool lost_before = records_lost_;
    check_image(medium.image(config_.cut_mode(), fates), blob, depth);
    forgiven_ = before;
    records_lost_ = lost_before;
}

void World::check_image(std::unique_ptr<Medium> image, const std::vector<std::byte>& blob,
                        std::uint32_t depth) {
    counters_.torn += image->counters().torn;
    counters_.lost += image->counters().lost;
    image->reseed(cuts_.next());
    forgive_lost_records(*image);
    Metadata metadata;
    metadata.blob = blob;
    hook(*image, metadata, depth + 1);
    Drive drive(*image, metadata, config_.engine);
    drive.term = term_;
    if (!mount(*image, drive, "after a cut")) return;
    note_boot(drive, *image);
    const Answer a = drive.call_admin_with(nvme::AdminOpcode::kMapSet, oracle_.map);
    if (!ok(a.status))
        return fail(fmt::format("after a cut MAP SET was answered {}", nvme::status_name(a.status)));
    Shown shown;
    if (!audit(drive, "after a cut") || !compare(drive, true, false, &shown)) return;
    Shown again;
    if (!probe(drive) || !audit(drive, "after a cut and a write") || !compare(drive, true, false, &again))
        return;
    // A trimmed block of a volume that has lost records is in doubt again when its tombstone is dropped.
    if (!std::ranges::equal(shown, again, [this](const auto& before, const auto& after) {
            return before == after || (records_lost_ && !after);
        }))
        fail("after a cut the drive showed one version, and later another, that nobody wrote");
    if (drive.engine().unsettled()) {
        image->fill_disk(false);
        for (int i = 0; i < 3; ++i) drive.poll(kSecondNs);
        if (drive.engine().unsettled())
            return fail("after a cut the drive waits for room below, and there is room");
        if (!compare(drive, true, false, &again) || !audit(drive, "after a cut and a wait for room")) return;
    }
    if (!image->violation().empty()) fail("after a cut the flash refused: " + image->violation());
}

void World::cut_now() {
    for (const Medium::Fates& fates : torn_classes(*medium_)) look(*medium_, metadata_->blob, 0, fates);
}

/// The drive still takes a write and gives it back. Its block is outside of what is compared.
bool World::probe(Drive& drive) {
    for (const nvme::VolumeRecord& r : drive.list()) {
        if (r.writer == 0) continue;
        const ContentId id = kProbeContent + cuts_.below(1000);
        Block block;  // its own: another image may be looked at meanwhile
        Pattern(id).fill(block.data());
        nvme::BlockAddress vba = kProbeBlock;
        while (vba + 1 < kCapacity && !owns(r, vba)) ++vba;
        if (!owns(r, vba)) continue;
        nvme::IoFields f = read_fields(r, vba);
        f.client = r.writer;
        f.sequence = (std::uint64_t{1} << 40) + ++probes_;  // newer than the probe that this image may hold
        f.fua = cuts_.below(2) == 0;
        Answer a;
        for (std::uint32_t tries = 0; tries == 0 || (a.status == Status::kBusy && tries < kTriesMax);
             ++tries) {
            a = drive.call(nvme::encode_io(IoOpcode::kWrite, f), f.client, block);
            for (std::uint32_t i = 0; i < 4; ++i) drive.poll();
        }
        if (a.status == Status::kCapacityExceeded) return true;
        if (!ok(a.status)) {
            fail(fmt::format("after a cut a write was answered {}", nvme::status_name(a.status)));
            return false;
        }
        f.sequence = 0;
        f.fua = false;
        f.accept_older = records_lost_;  // it is of the epoch that something was lost of
        const Answer b = drive.call(nvme::encode_io(IoOpcode::kRead, f), f.client, block);
        if (!ok(b.status) || !Pattern(id).matches(block.data(), 0, nvme::kSectorsPerBlock)) {
            fail("after a cut a new write is not read back");
            return false;
        }
        return true;
    }
    return true;
}

nvme::IoFields World::read_fields(const nvme::VolumeRecord& record, nvme::BlockAddress vba) const {
    nvme::IoFields f;
    f.volume = record.geometry.volume;
    f.client = record.owner;
    f.block = vba;
    f.epoch = record.epoch;
    f.map_version = oracle_.map.map.version;
    return f;
}

bool World::compare(Drive& drive, bool after_cut, bool settle, Shown* shown) {
    const std::vector<nvme::VolumeRecord> records = drive.list();
    bool took = false;
    if (const std::string wrong = oracle_.check_records(records, took); !wrong.empty()) {
        fail(wrong);
        return false;
    }
    const BlockState nothing;
    for (const nvme::VolumeRecord& r : records) {
        const nvme::VolumeId vid = r.geometry.volume;
        const auto known = oracle_.volumes.find(vid);
        if (known == oracle_.volumes.end()) {
            // A new life whose ADD was not answered: nothing of an earlier one may show.
            const Version* version = nullptr;
            for (nvme::BlockAddress vba = 250; vba < 254; ++vba)
                if (owns(r, vba) && !compare_block(drive, vid, r, vba, nothing, after_cut, &version))
                    return false;
            continue;
        }
        for (auto& [vba, block] : known->second.blocks) {
            const Version* version = nullptr;
            if (!compare_block(drive, vid, r, vba, block, after_cut, &version)) return false;
            if (shown != nullptr)
                shown->push_back(version != nullptr ? std::optional(version->order) : std::nullopt);
            if (settle && version != nullptr) block.settle(*version);
        }
    }
    if (settle && oracle_.admin) {
        const nvme::VolumeId vid = oracle_.admin->record.geometry.volume;
        if (took) {
            took_admin();
            ready_[vid].clear();  // of an opening that is over
        }
        oracle_.admin.reset();
    }
    return true;
}

bool World::compare_block(Drive& drive, nvme::VolumeId vid, const nvme::VolumeRecord& record,
                          nvme::BlockAddress vba, const BlockState& block, bool after_cut,
                          const Version** version) {
    ++counters_.blocks_compared;
    Block bytes;
    const Answer a =
        drive.call(nvme::encode_io(IoOpcode::kRead, read_fields(record, vba)), record.owner, bytes);
    if (a.status == Status::kUnrecoveredReadError && block.damaged != 0) {
        ++counters_.media_errors;
        return true;
    }
    const char* when = after_cut ? "after a cut " : "";
    if (a.status == Status::kDoubtful && block.damaged != 0 && !record_rot_ && !records_lost_ &&
        !block.damage_may_be_doubtful()) {
        fail(fmt::format("{}volume {} block {} is called doubtful, and it was lost for certain: {}", when,
                         vid, vba, describe(block, bytes.data(), 0)));
        return false;
    }
    if (a.status == Status::kDoubtful && block.damaged != 0) {
        ++counters_.doubts;  // perhaps the newest one, which rotted: here is no replica that would tell
        return true;
    }
    if (a.status == Status::kDoubtful)
        return compare_older(drive, vid, record, vba, block, after_cut, version);
    if (!ok(a.status)) {
        fail(fmt::format("{}a read of volume {} block {} was answered {}", when, vid, vba,
                         nvme::status_name(a.status)));
        return false;
    }
    *version = block.find(bytes.data(), 0, nvme::kSectorsPerBlock, after_cut);
    if (*version != nullptr) return true;
    if (forgiven_.contains({vid, vba})) {
        ++counters_.forgiven;
        // Here a verdict belongs as soon as a drive can tell a rotten page from a torn one: of a page that
        // was promised zeroes are never the answer. Where nothing is forgiven it is a violation, below.
        if (Pattern(0).matches(bytes.data(), 0, nvme::kSectorsPerBlock)) ++counters_.rot_as_zeroes;
        refused_ =
            refused_ || &drive == drive_.get();  // what stands there now is not known: the history ends
        return true;
    }
    fail(fmt::format("{}volume {} block {} shows what it must not: {}", when, vid, vba,
                     describe(block, bytes.data(), next_content_)));
    return false;
}

/// The drive cannot tell the newest version from a torn one. Nothing of this block has rotted: so it may say
/// that only of one which nobody was promised, and what is older must be a version that may show.
bool World::compare_older(Drive& drive, nvme::VolumeId vid, const nvme::VolumeRecord& record,
                          nvme::BlockAddress vba, const BlockState& block, bool after_cut,
                          const Version** version) {
    ++counters_.doubts;
    Block bytes;
    nvme::IoFields fields = read_fields(record, vba);
    fields.accept_older = true;
    const Answer a = drive.call(nvme::encode_io(IoOpcode::kRead, fields), record.owner, bytes);
    *version = ok(a.status) ? block.find(bytes.data(), 0, nvme::kSectorsPerBlock, after_cut) : nullptr;
    if (*version != nullptr && (records_lost_ || block.may_be_doubtful(**version))) return true;
    fail(fmt::format("{}volume {} block {} is called doubtful, and its older version was answered {}: {}",
                     after_cut ? "after a cut " : "", vid, vba, nvme::status_name(a.status),
                     describe(block, bytes.data(), next_content_)));
    return false;
}

/// The history goes on from a cut, which may come again while the drive recovers.
void World::reboot() {
    if (!crash_medium_) {
        crash_medium_ = crash_image(*medium_);
        crash_blob_ = metadata_->blob;
    }
    note("cut");
    // What was in flight is sent again, with its sequence, by whoever still may.
    for (auto& [tag, s] : in_flight_) {
        VolumeState* v = oracle_.find(s.vid, s.life);
        if (v == nullptr || s.refusal || s.targets.empty() || s.fields.epoch != v->record.epoch) continue;
        ready_[s.vid].push_back(std::move(s));
    }
    in_flight_.clear();
    for (std::uint32_t boots = 0; crash_medium_ && !failed(); ++boots) {
        ++counters_.crashes;
        if (boots == 0) note_drive();
        syncs_fail_ = false;
        drive_.reset();
        const MediumCounters& m = medium_->counters();
        counters_.programs += m.programs;
        counters_.erases += m.erases;
        counters_.programs_failed += m.programs_failed;
        counters_.erases_failed += m.erases_failed;
        medium_ = std::move(crash_medium_);
        counters_.torn += medium_->counters().torn;
        counters_.lost += medium_->counters().lost;
        medium_->reseed(cuts_.next());
        if (config_.lose_records != 0 && cuts_.below(1000) < config_.lose_records) lose_records();
        forgive_lost_records(*medium_);
        metadata_->blob = crash_blob_;
        for (auto& [vid, v] : oracle_.volumes)
            for (auto& [vba, b] : v.blocks) b.cut();
        hook(*medium_, *metadata_, 0);
        crash_armed_ = boots < kBootsMax && cuts_.below(3) == 0;
        if (config_.trace)
            for (std::string& line : medium_->dump()) note("before boot" + line);
        boot(false);
        for (const std::string& finding : drive_->report().findings) note("  found: " + finding);
        if (refused_) return;
    }
    crash_armed_ = false;
    if (!failed() && audit(*drive_, "after a cut")) compare(*drive_, true, true, nullptr);
    forgiven_.clear();
}

void World::close_and_boot() {
    idle(5000);
    if (crash_medium_ || failed()) return;
    std::string wrong;
    const auto close = [&wrong](auto& engine) {
        if constexpr (requires { engine.close(); }) {
            const auto closed = engine.close();
            if (!closed.ok()) wrong = closed.error().message;
        }
    };
    if constexpr (kCapabilities.closes) close(drive_->engine());
    if (crash_medium_) return;
    if (!wrong.empty() && !syncs_fail_ && room_below_) return fail("the drive does not close: " + wrong);
    ++counters_.closes;
    if (kCapabilities.closes && wrong.empty())
        for (auto& [vid, v] : oracle_.volumes)
            for (auto& [vba, b] : v.blocks) b.make_durable(b.live);
    crash_medium_ = medium_->image(config_.cut_mode(), draw_fates(cuts_));
    crash_blob_ = metadata_->blob;
}

/// Of a cut at random: all lost, all there, in order up to some point, or any subset with any tears.
Medium::Fates World::draw_fates(SplitMix64& random) const {
    SplitMix64 own(random.next());
    const std::uint64_t style = own.below(7);
    const std::uint64_t point = own.next();
    const bool kill = config_.cut_mode() == CutMode::kKill;
    return [own, style, point, kill](std::size_t index, std::size_t count, const Operation&,
                                     bool pending) mutable {
        if (kill && pending) return draw_fate(own, true);
        const std::size_t chosen = point % count;
        switch (style) {
            case 0:
                return Fate::absent();
            case 1:
                return Fate::whole();
            case 2:
                return index < chosen    ? Fate::whole()
                       : index == chosen ? draw_torn(own, kill)
                                         : Fate::absent();
            case 3:
                return index == chosen ? Fate::absent() : Fate::whole();
            case 4:
                return index == chosen ? Fate::whole() : Fate::absent();
            case 5:
                return own.below(2) == 0 ? Fate::whole() : Fate::absent();
            default:
                return draw_fate(own, kill);
        }
    };
}

/// For short histories: every class of what may be left, each once.
std::vector<Medium::Fates> World::torn_classes(const Medium& medium) const {
    const std::size_t count = medium.uncertain(config_.cut_mode());
    std::vector<Medium::Fates> all;
    const auto same = [&all](Fate others, Fate last) {
        all.emplace_back([others, last](std::size_t index, std::size_t n, const Operation&, bool) {
            return index + 1 == n ? last : others;
        });
    };
    if (count == 0) {
        same(Fate::whole(), Fate::whole());
        return all;
    }
    same(Fate::whole(), Fate::absent());
    same(Fate::whole(), Fate::torn(1300, 0));
    same(Fate::whole(), Fate::torn(nvme::kBlockBytes, 24));
    same(Fate::whole(), Fate::torn(nvme::kBlockBytes, 63));
    if (config_.cut_mode() == CutMode::kKill && config_.medium.survives_kill) return all;
    same(Fate::absent(), Fate::absent());
    same(Fate::absent(), Fate::whole());
    same(Fate::whole(), Fate::torn(0, sizeof(PageOob)));
    same(Fate::whole(), Fate::torn(1300, sizeof(PageOob), 7));
    constexpr std::size_t kAllSubsets = 3;
    if (count > 1 && count <= kAllSubsets)
        for (std::uint32_t subset = 1; subset + 1 < 1u << count; ++subset)
            all.emplace_back([subset](std::size_t index, std::size_t, const Operation&, bool) {
                return (subset >> index & 1) != 0 ? Fate::whole() : Fate::absent();
            });
    SplitMix64 random(cuts_);
    for (int i = 0; count > 1 && i < 3; ++i) all.push_back(draw_fates(random));
    return all;
}

}  // namespace gnstor::deengine::sim
