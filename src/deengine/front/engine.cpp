// engine.cpp: the front of the drive's firmware: checks a command and hands it to the router or to the vendor
// commands.
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

}  // namespace

Engine::Impl::Impl(MetadataStore& metadata_in, const EngineOptions& options_in, CompletionSink& sink_in,
                   FirmwareState state_in)
    : options(options_in),
      sink(sink_in),
      state(metadata_in, std::move(state_in)),
      check(state.now().permissions, active_map, options_in.mdts_blocks, options_in.mutation),
      router(sink_in),
      vendor(options, state, active_map, unsettled) {}

void Engine::Impl::submit(const nvme::Command& command, Requester from, std::span<std::byte> data,
                          std::uint64_t tag, std::uint64_t now_ns) {
    assert((tag & CommandRouter::kPartTag) == 0 && "tags are below 2^63");
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
        return router.send(sent);
    }
    if (sent.op == ShardOp::kFlush) {
        ++own.flushes;
        return router.flush(sent);
    }
    if (unsettled) [[unlikely]]
        return sink.on_complete(tag, Status::kCapacityExceeded, 0);
    const Volume& volume = *state.now().permissions.find(f.volume);
    sent.volume_epoch = volume.record.epoch;
    sent.floor = volume.floor;
    if (trim) {
        ++own.trims;
        if (!c.deallocate) return sink.on_complete(tag, Status::kSuccess, 0);
        return router.send_parts(sent, c.ranges);
    }
    ++(sent.op == ShardOp::kWrite ? own.writes : own.zeroes);
    sent.room = router.room();
    router.send(sent);
}

void Engine::Impl::submit_copy(const nvme::Command& command, Requester from, std::span<std::byte> data,
                               std::uint64_t tag, std::uint64_t now_ns) {
    ShardCommand sent{};
    std::uint32_t dw0 = 0;
    Status status = from.privileged ? vendor.check_term(command, dw0) : Status::kAccessDenied;
    if (ok(status))
        status =
            check_copy(state.now().permissions, active_map, check, command, from, data, now_ns, sent, dw0);
    const bool changes =
        sent.op == ShardOp::kCopyOpen || sent.op == ShardOp::kCopyWrite || sent.op == ShardOp::kCopyMend;
    if (ok(status) && unsettled && changes) status = Status::kCapacityExceeded;
    if (!ok(status)) {
        ++own.refused;
        return sink.on_complete(tag, status, dw0);
    }
    sent.tag = tag;
    sent.room = router.room();
    router.send(sent);
}

/// Once all shards have their checkpoints, tells the drive (on_settled), then accepts changes.
void Engine::Impl::settle_recovery() {
    if (told_settled || router.port().counters().unsettled != 0) return;
    told_settled = true;
    unsettled = options.on_settled && !options.on_settled();
}

void Engine::Impl::refresh_counters() {
    counters = own;
    add_counters(counters, router.port().counters());
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
    impl_->router.prefetch(command);
}
void Engine::prefetch_page(const nvme::Command& command) const {
    impl_->router.prefetch_page(command);
}

bool Engine::moves_data_itself() const {
    return impl_->router.is_inline();
}

void Engine::observe(const GrantTime& now) {
    impl_->vendor.observe(now);
    impl_->active_map.grant().observe(now);
}

bool Engine::granted(std::uint64_t now_ns) const {
    return impl_->active_map.granted(now_ns);
}

void Engine::submit_admin(const nvme::Command& command, Requester from, std::span<std::byte> data,
                          std::uint64_t tag, std::uint64_t now_ns) {
    if (nvme::is_copy(command.opcode)) return impl_->submit_copy(command, from, data, tag, now_ns);
    std::uint32_t dw0 = 0;
    const Status status = impl_->vendor.run(command, from, data, now_ns, dw0);
    if (!ok(status)) ++impl_->own.refused;
    impl_->sink.on_complete(tag, status, dw0);
}

void Engine::flush(std::uint64_t tag) {
    ShardCommand everything{};
    everything.op = ShardOp::kFlush;
    everything.stable = true;
    everything.tag = tag;
    impl_->router.flush(everything);
}

std::uint32_t Engine::poll(std::uint64_t now_ns) {
    const std::uint32_t given = impl_->router.port().poll(now_ns);
    if (impl_->unsettled) [[unlikely]]
        impl_->settle_recovery();
    return given;
}

Result<void> Engine::close() {
    return impl_->router.port().close();
}

bool Engine::unsettled() const {
    return impl_->unsettled;
}
const EngineCounters& Engine::counters() const {
    impl_->refresh_counters();
    return impl_->counters;
}
std::vector<std::string> Engine::audit() const {
    return impl_->router.port().audit();
}
std::uint64_t Engine::capacity_blocks() const {
    return impl_->router.capacity();
}
std::uint32_t Engine::map_version() const {
    return impl_->active_map.version();
}
std::vector<std::byte> Engine::firmware_state() const {
    return impl_->state.now().serialise();
}

}  // namespace gnstor::deengine
