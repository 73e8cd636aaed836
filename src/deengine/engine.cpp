// engine.cpp: reads, writes, trims, zeroes, flushes: from a checked command to flash and to its answer.
#include "deengine/engine.hpp"

#include "deengine/engine_impl.hpp"

#include <cassert>
#include <cstring>

namespace gnstor::deengine {
namespace {

using nvme::IoOpcode;
using nvme::Status;

constexpr std::uint32_t kProgramAttempts = 8;  ///< units tried for one page before the write is given up
constexpr std::size_t kMaxWaiting = 1024;      ///< answers held back before a sync is forced
constexpr std::uint32_t kPrefetchBlocks = 4;   ///< how far the map is looked up ahead in a multi-block read

}  // namespace

Engine::Impl::Impl(Flash& flash_in, MetadataStore& metadata_in, const EngineOptions& options_in,
                   CompletionSink& sink_in, FirmwareState state_in)
    : flash(flash_in),
      metadata(metadata_in),
      options(options_in),
      sink(sink_in),
      state(std::move(state_in)),
      check(state.permissions, active_map, options_in.mdts_blocks),
      blocks(flash_in.geometry().pages()),
      allocator(flash_in),
      capacity(flash_in.geometry().pages() * 100 / (100 + options_in.over_provisioning_percent)),
      planned(options_in.mdts_blocks),
      scratch(nvme::kBlockBytes) {
    waiting.reserve(kMaxWaiting);
}

void Engine::Impl::submit(const nvme::Command& command, Requester from, std::span<std::byte> data,
                          std::uint64_t tag, std::uint64_t now_ns) {
    CheckedCommand c;
    std::uint32_t dw0 = 0;
    if (const Status s = check.run(command, from, data, now_ns, c, dw0); !ok(s)) {
        ++counters.refused;
        return answer(tag, s, dw0);
    }
    const nvme::IoFields& f = c.fields;
    Status status = Status::kSuccess;
    switch (c.opcode) {
        case IoOpcode::kRead:
            ++counters.reads;
            return answer(tag, read(f, data.data()), 0);
        case IoOpcode::kFlush:
            ++counters.flushes;
            return answer_when_durable(tag, true);
        case IoOpcode::kWrite:
            ++counters.writes;
            status = apply({f.volume, f.block, f.blocks, f.epoch, f.sequence, data.data()});
            break;
        case IoOpcode::kWriteZeroes:
            ++counters.zeroes;
            status = apply({f.volume, f.block, f.blocks, f.epoch, f.sequence, nullptr});
            break;
        case IoOpcode::kDatasetManagement:
            ++counters.trims;
            if (c.deallocate) status = trim(c);
            break;
    }
    refresh_gauges();
    if (!ok(status)) return answer(tag, status, 0);
    const bool fua = f.fua && c.opcode != IoOpcode::kDatasetManagement;
    answer_when_durable(tag, fua || !options.volatile_cache);
}

void Engine::Impl::answer(std::uint64_t tag, Status status, std::uint32_t dw0) {
    sink.on_complete(tag, status, dw0);
}

/// At once if nothing is unsynced or nobody asked to wait; else with the next settle(). A superseded write
/// comes here too: its answer speaks of the winner, so it waits for the winner's durability.
void Engine::Impl::answer_when_durable(std::uint64_t tag, bool wait) {
    if (!wait || !unsynced) return answer(tag, Status::kSuccess, 0);
    waiting.push_back(tag);
    if (waiting.size() == kMaxWaiting) settle();
}

/// One sync for all who wait.
std::uint32_t Engine::Impl::settle() {
    if (waiting.empty()) return 0;
    const Status status = flash.sync() == FlashStatus::kOk ? Status::kSuccess : Status::kWriteFault;
    if (ok(status)) unsynced = false;
    // The sink may submit more: it sees an empty list.
    std::vector<std::uint64_t> done;
    done.swap(waiting);
    for (const std::uint64_t tag : done) answer(tag, status, 0);
    const auto count = static_cast<std::uint32_t>(done.size());
    if (waiting.empty()) {
        done.clear();
        waiting.swap(done);  // keeps its memory
    }
    return count;
}

Status Engine::Impl::read(const nvme::IoFields& f, std::byte* to) {
    if (f.sectors != 0) return read_block(make_key(f.volume, f.block), f.first_sector, f.sectors, to);
    for (std::uint32_t i = 0; i < f.blocks; ++i) {
        if (i + kPrefetchBlocks < f.blocks)
            blocks.prefetch(make_key(f.volume, f.block + i + kPrefetchBlocks));
        const Status s = read_block(make_key(f.volume, f.block + i), 0, nvme::kSectorsPerBlock,
                                    to + std::size_t{i} * nvme::kBlockBytes);
        if (!ok(s)) return s;
    }
    return Status::kSuccess;
}

Status Engine::Impl::read_block(BlockKey key, std::uint32_t first_sector, std::uint32_t sectors,
                                std::byte* to) {
    ++counters.blocks_read;
    const auto entry = blocks.find(key);
    if (!entry || entry->tombstone) {
        std::memset(to, 0, std::size_t{sectors} * nvme::kSectorBytes);
        return Status::kSuccess;
    }
    PageOob oob;
    std::uint32_t crcs[nvme::kSectorsPerBlock];
    bool good = flash.read_page(entry->page, first_sector, sectors, to, crcs, oob) == FlashStatus::kOk;
    // The record is the page's own word on whose block it is: a second fence behind the exact map.
    good = good && make_key(oob.vid, oob.vba) == key && oob.kind == PageKind::kData;
    good = good && std::memcmp(crcs, oob.sector_crc + first_sector, sectors * sizeof(crcs[0])) == 0;
    if (good) return Status::kSuccess;
    ++counters.media_errors;
    std::memset(to, 0, std::size_t{sectors} * nvme::kSectorBytes);  // whatever was copied is nobody's to see
    return Status::kUnrecoveredReadError;
}

Status Engine::Impl::trim(const CheckedCommand& c) {
    if (const Status s = plan_ranges(c); !ok(s)) return s;
    for (const nvme::DsmRange& range : c.ranges) {
        const Status s = apply({c.fields.volume, static_cast<nvme::BlockAddress>(range.start), range.blocks,
                                c.fields.epoch, c.fields.sequence, nullptr});
        if (!ok(s)) return s;
    }
    return Status::kSuccess;
}

/// What plan() would refuse in any range is refused before the first is done. Ranges that overlap are counted
/// twice.
Status Engine::Impl::plan_ranges(const CheckedCommand& c) {
    std::uint64_t pages = 0;
    std::uint64_t keys = 0;
    for (const nvme::DsmRange& range : c.ranges) {
        pages += range.blocks;
        for (std::uint32_t i = 0; i < range.blocks; ++i) {
            const auto entry =
                blocks.find(make_key(c.fields.volume, static_cast<nvme::BlockAddress>(range.start + i)));
            PageOob oob;
            if (!entry) {
                ++keys;
            } else if (flash.read_oob(entry->page, oob) != FlashStatus::kOk || !is_known_page(oob)) {
                ++counters.media_errors;
                return Status::kUnrecoveredReadError;
            }
        }
    }
    const bool fits = pages <= allocator.available() && blocks.size() + keys <= capacity;
    return fits ? Status::kSuccess : Status::kCapacityExceeded;
}

/// Everything that can be refused is refused by plan(); after it only flash itself can fail.
Status Engine::Impl::apply(const Change& change) {
    if (const Status s = plan(change); !ok(s)) return s;
    for (std::uint32_t i = 0; i < change.blocks; ++i) {
        const PlannedBlock& block = planned[i];
        if (block.action == PlannedBlock::Action::kSuperseded) {
            ++counters.superseded;
            continue;
        }
        PageOob oob{};
        oob.vid = change.volume;
        oob.vba = change.first + i;
        oob.kind = change.data != nullptr ? PageKind::kData : PageKind::kTombstone;
        oob.version = kOobVersion;
        oob.sequence = change.sequence;
        oob.epoch = change.epoch;
        const std::byte* data =
            change.data != nullptr ? change.data + std::size_t{i} * nvme::kBlockBytes : nullptr;
        PageNumber page = kNoPage;
        if (const Status s = program(data, oob, page); !ok(s)) {
            cancel_plan(i, change.blocks);
            return s;
        }
        const MapEntry entry{page, change.data == nullptr};
        if (block.action == PlannedBlock::Action::kInsert) {
            blocks.commit(block.ticket, entry);
        } else {
            const bool updated = blocks.update(make_key(change.volume, change.first + i), entry);
            assert(updated);
            (void)updated;
            allocator.invalidate(block.old_page);
        }
        ++counters.blocks_written;
    }
    return Status::kSuccess;
}

/// Decides for each block whether the change is newer, and reserves slots and room for all of them, or for
/// none.
Status Engine::Impl::plan(const Change& change) {
    std::uint64_t pages = 0;
    for (std::uint32_t i = 0; i < change.blocks; ++i) {
        const BlockKey key = make_key(change.volume, change.first + i);
        PlannedBlock& block = planned[i];
        block = {PlannedBlock::Action::kSuperseded, {}, kNoPage};
        Status failed = Status::kSuccess;
        if (const auto entry = blocks.find(key)) {
            const auto newer = is_newer(entry->page, change, i);
            if (!newer) failed = Status::kUnrecoveredReadError;
            if (newer.value_or(false)) {
                block.action = PlannedBlock::Action::kReplace;
                block.old_page = entry->page;
                ++pages;
            }
        } else if (const auto ticket = blocks.size() < capacity ? blocks.reserve(key) : std::nullopt) {
            block.action = PlannedBlock::Action::kInsert;
            block.ticket = *ticket;
            ++pages;
        } else {
            failed = Status::kCapacityExceeded;
        }
        if (ok(failed) && pages > allocator.available()) failed = Status::kCapacityExceeded;
        if (!ok(failed)) {
            cancel_plan(0, i + 1);
            return failed;
        }
    }
    return Status::kSuccess;
}

void Engine::Impl::cancel_plan(std::uint32_t from, std::uint32_t end) {
    for (std::uint32_t i = from; i < end; ++i)
        if (planned[i].action == PlannedBlock::Action::kInsert) blocks.cancel(planned[i].ticket);
}

/// Whether block `block` of the change is newer than what `stored` holds; nothing if that page's order cannot
/// be read (then the error stays: overwriting it blindly could bring an older version back; ARRAY.md, rule
/// 13).
std::optional<bool> Engine::Impl::is_newer(PageNumber stored, const Change& change, std::uint32_t block) {
    PageOob oob;
    if (flash.read_oob(stored, oob) != FlashStatus::kOk || !is_known_page(oob)) {
        ++counters.media_errors;
        return std::nullopt;
    }
    if (change.epoch != oob.epoch) return change.epoch > oob.epoch;
    if (change.sequence != oob.sequence) return change.sequence > oob.sequence;
    // One sequence twice: a duplicate, or a buffer that changed. Only here the contents decide.
    std::uint32_t crcs[nvme::kSectorsPerBlock] = {};
    if (change.data != nullptr) {
        const std::byte* data = change.data + std::size_t{block} * nvme::kBlockBytes;
        for (std::uint32_t s = 0; s < nvme::kSectorsPerBlock; ++s)
            crcs[s] = crc32c(data + std::size_t{s} * nvme::kSectorBytes, nvme::kSectorBytes);
    }
    return content_crc(crcs) > content_crc(oob.sector_crc);
}

/// Programs the next page; a unit that fails is retired and another one tried.
Status Engine::Impl::program(const std::byte* data, PageOob& oob, PageNumber& page) {
    for (std::uint32_t attempt = 0; attempt < kProgramAttempts; ++attempt) {
        page = allocator.next_page();
        for (const std::uint32_t unit : allocator.take_newly_retired()) retire(unit);
        if (page == kNoPage) return Status::kCapacityExceeded;
        unsynced = true;
        const FlashStatus programmed = flash.program(page, data, oob);
        if (programmed == FlashStatus::kOk) {
            allocator.programmed(page);
            ++counters.pages_programmed;
            return Status::kSuccess;
        }
        if (programmed == FlashStatus::kNoRoom) {
            // The unit is good: a full disk below says nothing of it, and may have room again tomorrow.
            const bool exchanged = allocator.exchange_open_unit();
            for (const std::uint32_t unit : allocator.take_newly_retired()) retire(unit);
            if (!exchanged) return Status::kCapacityExceeded;
            continue;
        }
        retire(allocator.failed(page));
    }
    return Status::kWriteFault;
}

/// Remembers a bad unit. If that cannot be stored it is forgotten at the next mount, and found again: no
/// harm.
void Engine::Impl::retire(std::uint32_t unit) {
    state.retired_units.push_back(unit);
    const auto blob = state.serialise();
    if (blob.size() <= metadata.capacity()) (void)metadata.store(blob);
}

void Engine::Impl::refresh_gauges() {
    counters.mapped_blocks = blocks.size();
    counters.free_pages = allocator.available();
    counters.units_erased = allocator.units_erased();
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

void Engine::submit(const nvme::Command& command, Requester from, std::span<std::byte> data,
                    std::uint64_t tag, std::uint64_t now_ns) {
    impl_->submit(command, from, data, tag, now_ns);
}

void Engine::submit_admin(const nvme::Command& command, Requester from, std::span<std::byte> data,
                          std::uint64_t tag, std::uint64_t now_ns) {
    std::uint32_t dw0 = 0;
    const Status status = impl_->admin(command, from, data, now_ns, dw0);
    if (!ok(status)) ++impl_->counters.refused;
    impl_->refresh_gauges();
    impl_->answer(tag, status, dw0);
}

std::uint32_t Engine::poll(std::uint64_t /*now_ns*/) {
    return impl_->settle();
}

const EngineCounters& Engine::counters() const {
    return impl_->counters;
}
std::uint64_t Engine::capacity_blocks() const {
    return impl_->capacity;
}
std::uint32_t Engine::map_version() const {
    return impl_->active_map.version();
}

}  // namespace gnstor::deengine
