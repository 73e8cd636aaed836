// engine.cpp: the front of the drive's firmware: checks a command, sends it to its shards, joins their
// answers.
//
// 256 consecutive blocks (1 MiB, an extent) lie in one shard, and so does a chunk. A command across extents
// is split into parts: each part is answered when it is durable, the command when its last part is.
#include "deengine/front/engine.hpp"

#include "deengine/front/engine_impl.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <type_traits>

namespace gnstor::deengine {
namespace {

using nvme::IoOpcode;
using nvme::Status;

constexpr std::uint32_t kExtentShift = 8;
constexpr std::uint32_t kVolumeStride = 0x9E37;  ///< spreads equal blocks of volumes over the shards

ShardOp op_of(IoOpcode opcode) {
    switch (opcode) {
        case IoOpcode::kRead:
            return ShardOp::kRead;
        case IoOpcode::kWrite:
            return ShardOp::kWrite;
        case IoOpcode::kWriteZeroes:
            return ShardOp::kZero;
        case IoOpcode::kDatasetManagement:
            return ShardOp::kTrim;
        case IoOpcode::kFlush:
            break;
    }
    return ShardOp::kFlush;
}

/// Dataset management has its fields elsewhere, and flush has no block.
bool names_a_block(const nvme::Command& c) {
    return c.opcode == static_cast<std::uint8_t>(IoOpcode::kRead) ||
           c.opcode == static_cast<std::uint8_t>(IoOpcode::kWrite);
}

}  // namespace

Engine::Impl::Impl(MetadataStore& metadata_in, const EngineOptions& options_in, CompletionSink& sink_in,
                   FirmwareState state_in)
    : metadata(metadata_in),
      options(options_in),
      sink(sink_in),
      state(std::move(state_in)),
      check(state.permissions, active_map, options_in.mdts_blocks, options_in.mutation) {}

void Engine::Impl::submit(const nvme::Command& command, Requester from, std::span<std::byte> data,
                          std::uint64_t tag, std::uint64_t now_ns) {
    assert((tag & kPartTag) == 0 && "tags are below 2^63");
    CheckedCommand c;
    std::uint32_t dw0 = 0;
    if (const Status s = check.run(command, from, data, now_ns, c, dw0); !ok(s)) {
        ++own.refused;
        return sink.on_complete(tag, s, dw0);
    }
    const bool trim = c.opcode == IoOpcode::kDatasetManagement;
    // Decoded again from the command, into registers. The fields of `c` were stored one by one and the
    // compiler would load pairs of them: such a load stalls until these stores, and all before them, have
    // left the store buffer.
    const nvme::IoFields f = trim ? nvme::decode_trim(command) : nvme::decode_io(command);
    ShardCommand sent{};
    sent.op = op_of(c.opcode);
    sent.stable = f.fua && !trim;
    own.forced += sent.stable ? 1 : 0;
    sent.volume = f.volume;
    sent.first = f.block;
    sent.blocks = f.blocks;
    sent.first_sector = f.first_sector;
    sent.sectors = f.sectors;
    sent.accept_older = f.accept_older && !trim;
    sent.epoch = f.epoch;
    sent.sequence = f.sequence;
    sent.data = data.data();
    sent.tag = tag;
    if (sent.op == ShardOp::kRead) {
        ++own.reads;
        return send(sent);
    }
    if (sent.op == ShardOp::kFlush) {
        ++own.flushes;
        return flush(sent);
    }
    if (unsettled) [[unlikely]]
        return sink.on_complete(tag, Status::kCapacityExceeded, 0);
    const Volume& volume = *state.permissions.find(f.volume);
    sent.volume_epoch = volume.record.epoch;
    sent.floor = volume.floor;
    if (trim) {
        ++own.trims;
        if (!c.deallocate) return sink.on_complete(tag, Status::kSuccess, 0);
        return send_parts(sent, c.ranges);
    }
    ++(sent.op == ShardOp::kWrite ? own.writes : own.zeroes);
    sent.room = room();
    send(sent);
}

std::uint64_t Engine::Impl::room() const {
    const std::uint64_t mapped =
        inline_port != nullptr ? inline_port->mapped_blocks() : port->mapped_blocks();
    return capacity > mapped ? capacity - mapped : 0;
}

inline void Engine::Impl::execute(std::uint32_t shard, const ShardCommand& command) {
    if (inline_port != nullptr) return inline_port->execute(shard, command);
    port->execute(shard, command);
}

std::uint32_t Engine::Impl::shard_of(nvme::VolumeId volume, nvme::BlockAddress block) const {
    return ((block >> kExtentShift) + volume * kVolumeStride) % shards;
}

void Engine::Impl::send(ShardCommand& command) {
    if (shards == 1) return execute(0, command);
    const nvme::BlockAddress last = command.first + command.blocks - 1;
    if (command.first >> kExtentShift == last >> kExtentShift)
        return execute(shard_of(command.volume, command.first), command);
    command.tag = join(command.tag, (last >> kExtentShift) - (command.first >> kExtentShift) + 1);
    send_extents(command);
}

void Engine::Impl::send_parts(ShardCommand& command, std::span<const nvme::DsmRange> ranges) {
    // Copied: the receiver of a completion may submit another trim, which overwrites the ranges.
    std::vector<nvme::DsmRange> own_ranges(ranges.begin(), ranges.end());
    std::uint32_t parts = 0;
    for (const nvme::DsmRange& range : own_ranges) {
        const std::uint64_t last = range.start + range.blocks - 1;
        parts += shards == 1
                     ? 1
                     : static_cast<std::uint32_t>((last >> kExtentShift) - (range.start >> kExtentShift) + 1);
    }
    if (parts > 1) command.tag = join(command.tag, parts);
    for (const nvme::DsmRange& range : own_ranges) {
        command.first = static_cast<nvme::BlockAddress>(range.start);
        command.blocks = range.blocks;
        send_extents(command);
    }
}

/// Sends each extent's blocks to its shard, under the command's tag.
void Engine::Impl::send_extents(ShardCommand command) {
    if (shards == 1) return execute(0, command);
    std::uint32_t left = command.blocks;
    while (left != 0) {
        const std::uint32_t to_border = (1u << kExtentShift) - (command.first & ((1u << kExtentShift) - 1));
        command.blocks = std::min(left, to_border);
        left -= command.blocks;
        // Earlier parts may have used some of the capacity.
        if (command.op == ShardOp::kWrite) command.room = room();
        execute(shard_of(command.volume, command.first), command);
        command.first += command.blocks;
        if (command.data != nullptr) command.data += std::size_t{command.blocks} * nvme::kBlockBytes;
    }
}

void Engine::Impl::flush(ShardCommand& command) {
    if (shards > 1) command.tag = join(command.tag, shards);
    for (std::uint32_t i = 0; i < shards; ++i) execute(i, command);
}

/// A tag for the parts of a command; the completion of the last part completes the command.
std::uint64_t Engine::Impl::join(std::uint64_t tag, std::uint32_t parts) {
    if (free_joins.empty()) {
        free_joins.push_back(static_cast<std::uint32_t>(joins.size()));
        joins.emplace_back();
    }
    const std::uint32_t index = free_joins.back();
    free_joins.pop_back();
    joins[index] = {tag, parts, Status::kSuccess, 0};
    return kPartTag | index;
}

void Engine::Impl::on_complete(std::uint64_t tag, Status status, std::uint64_t result) {
    if ((tag & kPartTag) == 0) return sink.on_complete(tag, status, result);
    const auto index = static_cast<std::uint32_t>(tag);
    Join& join = joins[index];
    if (ok(join.status)) {
        join.status = status;
        join.result = result;
    }
    if (--join.parts != 0) return;
    const Join done = join;
    free_joins.push_back(index);
    sink.on_complete(done.tag, done.status, done.result);
}

void Engine::Impl::prefetch(const nvme::Command& command) const {
    if (inline_port == nullptr || !names_a_block(command)) return;
    const nvme::IoFields f = nvme::decode_io(command);
    inline_port->prefetch(shards == 1 ? 0 : shard_of(f.volume, f.block), f.volume, f.block);
}

void Engine::Impl::prefetch_page(const nvme::Command& command) const {
    if (inline_port == nullptr || !names_a_block(command)) return;
    const nvme::IoFields f = nvme::decode_io(command);
    const bool read = command.opcode == static_cast<std::uint8_t>(IoOpcode::kRead);
    const std::uint32_t first_sector =
        read ? std::min<std::uint32_t>(f.first_sector, nvme::kSectorsPerBlock) : nvme::kSectorsPerBlock;
    inline_port->prefetch_page(shards == 1 ? 0 : shard_of(f.volume, f.block), f.volume, f.block,
                               first_sector);
}

/// Once all shards have their checkpoints, tells the drive (on_settled), then accepts changes.
void Engine::Impl::settle_recovery() {
    if (told_settled || port->counters().unsettled != 0) return;
    told_settled = true;
    unsettled = options.on_settled && !options.on_settled();
}

void Engine::Impl::refresh_counters() {
    counters = own;
    add_counters(counters, port->counters());
}

void add_counters(EngineCounters& sum, const EngineCounters& more) {
    static_assert(
        std::is_trivially_copyable_v<EngineCounters> && sizeof(EngineCounters) % sizeof(std::uint64_t) == 0,
        "counters are 64-bit numbers");
    constexpr std::size_t kCounters = sizeof(EngineCounters) / sizeof(std::uint64_t);
    std::uint64_t a[kCounters], b[kCounters];
    std::memcpy(a, &sum, sizeof(sum));
    std::memcpy(b, &more, sizeof(more));
    for (std::size_t i = 0; i < kCounters; ++i) a[i] += b[i];
    std::memcpy(&sum, a, sizeof(sum));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

void Engine::submit(const nvme::Command& command, Requester from, std::span<std::byte> data,
                    std::uint64_t tag, std::uint64_t now_ns) {
    impl_->submit(command, from, data, tag, now_ns);
}

void Engine::prefetch(const nvme::Command& command) const {
    impl_->prefetch(command);
}
void Engine::prefetch_page(const nvme::Command& command) const {
    impl_->prefetch_page(command);
}

bool Engine::moves_data_itself() const {
    return impl_->inline_port != nullptr;
}

void Engine::observe(const GrantTime& now) {
    impl_->wall_ns = now.wall_ns;
    impl_->active_map.grant().observe(now);
}

bool Engine::granted(std::uint64_t now_ns) const {
    return impl_->active_map.granted(now_ns);
}

void Engine::submit_admin(const nvme::Command& command, Requester from, std::span<std::byte> data,
                          std::uint64_t tag, std::uint64_t now_ns) {
    std::uint32_t dw0 = 0;
    const Status status = impl_->admin(command, from, data, now_ns, dw0);
    if (!ok(status)) ++impl_->own.refused;
    impl_->sink.on_complete(tag, status, dw0);
}

void Engine::flush(std::uint64_t tag) {
    ShardCommand everything{};
    everything.op = ShardOp::kFlush;
    everything.stable = true;
    everything.tag = tag;
    impl_->flush(everything);
}

std::uint32_t Engine::poll(std::uint64_t now_ns) {
    const std::uint32_t given = impl_->port->poll(now_ns);
    if (impl_->unsettled) [[unlikely]]
        impl_->settle_recovery();
    return given;
}

Result<void> Engine::close() {
    return impl_->port->close();
}

bool Engine::unsettled() const {
    return impl_->unsettled;
}
const EngineCounters& Engine::counters() const {
    impl_->refresh_counters();
    return impl_->counters;
}
std::vector<std::string> Engine::audit() const {
    return impl_->port->audit();
}
std::uint64_t Engine::capacity_blocks() const {
    return impl_->capacity;
}
std::uint32_t Engine::map_version() const {
    return impl_->active_map.version();
}
std::vector<std::byte> Engine::firmware_state() const {
    return impl_->state.serialise();
}

}  // namespace gnstor::deengine
