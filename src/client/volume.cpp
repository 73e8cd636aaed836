// volume.cpp: one opening of a volume: its reference for kernels, its lease, and transfers by the host's CPU
// lanes.
#include <gnstor/base/log.hpp>

#include <fmt/core.h>

#include "client/client_impl.hpp"
#include "client/opening_floor.hpp"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <mutex>
#include <optional>
#include <string>

namespace gnstor::client {
namespace {

constexpr std::uint32_t kBlocksPerCall = 4096;  // 16 MiB: bounds what one deadline covers

/// Includes suspended time: a lease runs out while the machine sleeps, too.
std::uint64_t boottime_ms() {
    timespec t{};
    ::clock_gettime(CLOCK_BOOTTIME, &t);
    return static_cast<std::uint64_t>(t.tv_sec) * 1000 + static_cast<std::uint64_t>(t.tv_nsec) / 1'000'000;
}

Errc code_of(nvme::Status status) {
    if (status == nvme::Status::kCapacityExceeded) return Errc::kNoSpace;
    if (status == nvme::Status::kTimedOut || status == nvme::Status::kNotSent) return Errc::kTimedOut;
    return nvme::may_retry(status) ? Errc::kBusy : Errc::kIo;
}

/// For messages: the SSDs that the channel has no connection to.
std::string broken_slots(gnor::Channel& channel) {
    const auto usage = channel.usage();
    std::string slots;
    for (std::uint64_t left = usage.ok() ? usage->queues_broken : 0; left != 0; left &= left - 1)
        slots += fmt::format("{}{}", slots.empty() ? "" : ", ", std::countr_zero(left));
    return slots.empty()
               ? ""
               : fmt::format("; there is no connection to the SSD of slot {} ('gnstor ssd list' shows why)",
                             slots);
}

}  // namespace

struct Volume::Impl {
    Client::Impl* client = nullptr;
    nvme::VolumeRecord record{};        ///< as of the opening
    std::atomic<nvme::Epoch> epoch{0};  ///< the current one: changed by renew() alone
    OpenMode mode = OpenMode::kRead;
    std::uint64_t byte_length = ~0ull;
    bool released = false;
    std::unique_ptr<OpeningFloor> floor;  ///< sequences of this opening's writes; null for a reader
    /// renew() has requested the next epoch without learning the outcome: the epoch may be this client's.
    bool renewing = false;
    std::uint64_t lease_ms = 0;
    PeriodicTasks::TaskId renewal = 0;
    PeriodicTasks::TaskId looking = 0, publishing = 0;
    std::atomic<bool> floor_is_over{false};
    // Written by the periodic thread, read by any: relaxed, because they are hints and order nothing.
    std::atomic<bool> lease_refused{false};
    std::atomic<std::uint64_t> lease_end_ms{0};  ///< counted from before the request to the daemon

    [[nodiscard]] bool own_sequence() const { return client->options.lanes == simt::LanesKind::kGpu; }
    /// `host`: for the host's CPU lanes.
    [[nodiscard]] VolumeRef ref(const MapMemory& map, bool host) const {
        VolumeRef r;
        r.geometry = record.geometry;
        r.epoch = epoch.load(std::memory_order_relaxed);
        r.client = client->identity.id;
        r.mode = mode == OpenMode::kWrite ? VolumeMode::kWrite : VolumeMode::kRead;
        r.current_map = map.current();
        if (!floor) return r;
        r.last_sequence = floor->last_sequence(host);
        r.resolved = floor->resolved(host);
        return r;
    }
    // Each opening has one sequence counter (docs/array.md, rule 6). The host's CPU lanes cannot reach a
    // GPU's counter: they start from its value, and store their last value back. This is correct only while
    // no kernel writes the volume; return_sequence() detects one that did.
    Result<std::uint64_t> borrow_sequence();
    Result<void> return_sequence(std::uint64_t borrowed, bool in_doubt);
    /// `older`: if not null, the read accepts older versions, and counts the blocks that it got so.
    Result<void> transfer(std::uint64_t first_block, std::byte* data, std::uint64_t bytes, bool write,
                          std::uint64_t* older = nullptr);
    Result<void> transfer_blocks(const VolumeRef& volume, std::uint64_t first_block, std::byte* data,
                                 std::uint64_t blocks, bool write, std::uint64_t* older);
    void start_background_tasks();
    void renew_periodically();
    void publish_floor_periodically();
    [[nodiscard]] std::uint64_t association(std::size_t session) const;
    Result<nvme::Completion> tell_floor(std::size_t session, std::uint64_t to);
    void publish_last_floor();
    void stop_periodic_tasks();
    Result<void> check_quiet();
    Result<void> check_still_ours();
    Error lost();
};

Result<std::unique_ptr<Volume>> Client::open(const std::string& name, OpenMode mode) {
    const std::uint64_t asked_ms = boottime_ms();
    GN_ASSIGN(const OpenedVolume opened, impl_->control.open_volume(impl_->identity.id, name, mode));
    auto impl = std::make_unique<Volume::Impl>();
    impl->client = impl_.get();
    impl->record = opened.record;
    impl->epoch.store(opened.record.epoch, std::memory_order_relaxed);
    impl->mode = mode;
    impl->lease_ms = opened.lease_ms;
    impl->lease_end_ms.store(asked_ms + opened.lease_ms, std::memory_order_relaxed);
    // From here on ~Volume() releases the opening.
    auto* const state = impl.get();
    std::unique_ptr<Volume> volume(new Volume(std::move(impl)));
    if (mode != OpenMode::kWrite) return volume;
    GN_ASSIGN(state->floor, OpeningFloor::create(impl_->options.lanes));
    state->start_background_tasks();
    return volume;
}

void Volume::Impl::start_background_tasks() {
    renew_periodically();
    publish_floor_periodically();
}

void Volume::Impl::renew_periodically() {
    const auto period = std::chrono::milliseconds(std::max<std::uint64_t>(1, lease_ms / 3));
    renewal = client->renewals.add(period, [this] {
        const std::uint64_t asked_ms = boottime_ms();
        auto renewed = client->control.renew_lease(client->identity.id, record.geometry.volume,
                                                   epoch.load(std::memory_order_relaxed));
        if (renewed.ok()) {
            lease_end_ms.store(asked_ms + *renewed, std::memory_order_relaxed);
            return;
        }
        // kState: the daemon is away, or the lease is over; lease_end_ms tells which. Any other error:
        // another client may have the volume. Epochs keep the data safe.
        if (renewed.error().code != Errc::kState) lease_refused.store(true, std::memory_order_relaxed);
        log_warn("the lease of volume {} was not renewed: {}", record.name, renewed.error().message);
    });
}

void Volume::Impl::publish_floor_periodically() {
    looking = client->pools.add(OpeningFloor::kLook, [this] {
        const std::string news = floor->look_at(OpeningFloor::Clock::now(), record.geometry.volume);
        if (!news.empty()) log_warn("{}", news);
    });
    publishing = client->floors.add(OpeningFloor::kLook, [this] {
        if (floor_is_over.load(std::memory_order_relaxed)) return;
        const bool continues = floor->publish(
            OpeningFloor::Clock::now(), client->sessions.size(),
            [this](std::size_t i) { return association(i); },
            [this](std::size_t i, std::uint64_t to) { return tell_floor(i, to); });
        if (!continues) floor_is_over.store(true, std::memory_order_relaxed);
    });
}

/// 0: the session's SSD is not reachable.
std::uint64_t Volume::Impl::association(std::size_t session) const {
    const SsdSession& s = *client->sessions[session];
    return client->is_lost(s) ? 0 : s.associations();
}

Result<nvme::Completion> Volume::Impl::tell_floor(std::size_t session, std::uint64_t to) {
    return client->sessions[session]->tell_floor(record.geometry.volume,
                                                 epoch.load(std::memory_order_relaxed), to);
}

/// With no thread of the client that works for this opening.
void Volume::Impl::publish_last_floor() {
    if (floor == nullptr || floor_is_over.load(std::memory_order_relaxed)) return;
    floor->publish_last(
        client->sessions.size(), [this](std::size_t i) { return association(i); },
        [this](std::size_t i, std::uint64_t to) { return tell_floor(i, to); });
}

/// After it returns, no thread of the client works for this opening.
void Volume::Impl::stop_periodic_tasks() {
    if (renewal != 0) client->renewals.remove(renewal);
    if (looking != 0) client->pools.remove(looking);
    if (publishing != 0) client->floors.remove(publishing);
    renewal = looking = publishing = 0;
}

Result<void> Volume::Impl::check_quiet() {
    for (const auto& channel : client->channels) {
        GN_ASSIGN(const gnor::Channel::Usage usage, channel->usage());
        if (usage.commands_with_tokens + usage.requests_with_callbacks != 0)
            return error(
                Errc::kBusy,
                "{} commands with tokens and {} requests with callbacks have not ended: wait for them, or "
                "drop them, before volume {} is renewed",
                usage.commands_with_tokens, usage.requests_with_callbacks, record.name);
    }
    return {};
}

Error Volume::Impl::lost() {
    renewing = false;
    lease_refused.store(true, std::memory_order_relaxed);
    return error(Errc::kPermission,
                 "volume {} is not renewed: its lease ended or another opening followed; open it again",
                 record.name);
}

/// Raises no epoch itself. Any opening for writing since then, even if closed again, has raised it, which
/// this detects.
Result<void> Volume::Impl::check_still_ours() {
    GN_ASSIGN(const OpenedVolume seen,
              client->control.open_volume(client->identity.id, record.name, OpenMode::kRead));
    const nvme::VolumeRecord& now = seen.record;
    const nvme::Epoch known = epoch.load(std::memory_order_relaxed);
    const bool known_epoch = now.epoch == known || (renewing && now.epoch == known + 1);
    // An earlier attempt has closed the epoch, and waits until its replicas are equal.
    const bool closed_by_us = renewing && now.writer == 0 && now.epoch == known;
    if (now.geometry.volume != record.geometry.volume || now.birth_epoch != record.birth_epoch ||
        (now.writer != client->identity.id && !closed_by_us) || !known_epoch)
        return lost();
    epoch.store(now.epoch, std::memory_order_relaxed);
    return {};
}

bool Volume::floor_is_held() const {
    return impl_->floor != nullptr && impl_->floor->is_held();
}
bool Volume::renewing() const {
    return impl_->renewing;
}

Result<void> Volume::renew() {
    Impl& v = *impl_;
    if (v.mode == OpenMode::kRead || v.released)
        return error(Errc::kPermission, "volume {} is not open for writing; there is nothing to renew",
                     v.record.name);
    const std::lock_guard no_transfer(v.client->host_lanes);
    GN_TRY(v.check_quiet());
    GN_TRY(v.check_still_ours());
    v.stop_periodic_tasks();  // they work for an epoch that is about to end
    v.publish_last_floor();
    v.renewing = true;
    const std::uint64_t asked_ms = boottime_ms();
    GN_ASSIGN(const OpenedVolume opened,
              v.client->control.open_volume(v.client->identity.id, v.record.name, OpenMode::kWrite));
    if (opened.record.epoch != v.epoch.load(std::memory_order_relaxed) + 1) {
        // Another client opened the volume between the two requests. Its writes are valid, and this opening
        // is over.
        (void)v.client->control.release_volume(v.client->identity.id, v.record.geometry.volume,
                                               opened.record.epoch, ~0ull);
        return v.lost();
    }
    GN_TRY(v.floor->begin_next_epoch());
    v.epoch.store(opened.record.epoch, std::memory_order_relaxed);
    v.lease_ms = opened.lease_ms;
    v.lease_end_ms.store(asked_ms + opened.lease_ms, std::memory_order_relaxed);
    v.floor_is_over.store(false, std::memory_order_relaxed);
    v.renewing = false;
    v.start_background_tasks();
    return {};
}

Volume::Volume(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Volume::~Volume() {
    if (auto done = release(); !done.ok())
        log_warn("volume {} was not released, its lease will run out: {}", impl_->record.name,
                 done.error().message);
    impl_->stop_periodic_tasks();
    // Requests that kernels left behind record their ends in this memory, however late they come.
    if (impl_->floor != nullptr && !impl_->floor->is_settled())
        impl_->client->left_floors.push_back(std::move(impl_->floor));
}

VolumeRef Volume::ref() const {
    return impl_->ref(impl_->client->lane_map, false);
}
const nvme::VolumeRecord& Volume::record() const {
    return impl_->record;
}
bool Volume::lease_held() const {
    if (impl_->mode == OpenMode::kRead) return true;
    return !impl_->released && !impl_->lease_refused.load(std::memory_order_relaxed) &&
           boottime_ms() < impl_->lease_end_ms.load(std::memory_order_relaxed);
}

Result<void> Volume::set_byte_length(std::uint64_t bytes) {
    const std::uint64_t capacity = impl_->record.geometry.capacity_blocks * nvme::kBlockBytes;
    if (impl_->mode != OpenMode::kWrite)
        return error(
            Errc::kPermission,
            "volume {} was opened for reading, so its length cannot be changed; open it for writing first",
            impl_->record.name);
    if (bytes > capacity)
        return error(Errc::kInvalidArgument,
                     "a length of {} bytes is above the capacity of volume {}, {} bytes", bytes,
                     impl_->record.name, capacity);
    impl_->byte_length = bytes;
    return {};
}

Result<void> Volume::release() {
    if (impl_->released) return {};
    if (impl_->mode == OpenMode::kWrite) {
        impl_->stop_periodic_tasks();
        impl_->publish_last_floor();
        // A failed release may be retried, by the destructor at the latest.
        GN_TRY(impl_->client->control.release_volume(
            impl_->client->identity.id, impl_->record.geometry.volume,
            impl_->epoch.load(std::memory_order_relaxed), impl_->byte_length));
    }
    impl_->released = true;  // the daemon holds no state for a reader
    return {};
}

Result<void> Volume::read(std::uint64_t first_block, std::span<std::byte> to) {
    return impl_->transfer(first_block, to.data(), to.size(), false);
}

Result<std::uint64_t> Volume::read_older_too(std::uint64_t first_block, std::span<std::byte> to) {
    std::uint64_t older = 0;
    GN_TRY(impl_->transfer(first_block, to.data(), to.size(), false, &older));
    return older;
}

Result<void> Volume::write(std::uint64_t first_block, std::span<const std::byte> from) {
    if (impl_->mode != OpenMode::kWrite)
        return error(Errc::kPermission, "volume {} was opened for reading; open it for writing first",
                     impl_->record.name);
    return impl_->transfer(first_block, const_cast<std::byte*>(from.data()), from.size(), true);
}

Result<std::uint64_t> Volume::Impl::borrow_sequence() {
    std::uint64_t last = 0;
    GN_TRY(floor->lane_memory().download(0, &last, sizeof last));
    GN_TRY(floor->host_memory().upload(0, &last, sizeof last));
    return last;
}

Result<void> Volume::Impl::return_sequence(std::uint64_t borrowed, bool in_doubt) {
    std::uint64_t now = 0, last = 0;
    GN_TRY(floor->lane_memory().download(0, &now, sizeof now));
    GN_TRY(floor->host_memory().download(0, &last, sizeof last));
    if (now != borrowed)
        return error(Errc::kBusy,
                     "a kernel wrote volume {} while the host wrote it, so it is not known which write of a "
                     "block is newer; write again while no kernel runs",
                     record.name);
    GN_TRY(floor->lane_memory().upload(0, &last, sizeof last));
    return floor->resolve(borrowed + 1, last - borrowed, in_doubt);
}

Result<void> Volume::Impl::transfer(std::uint64_t first_block, std::byte* data, std::uint64_t bytes,
                                    bool write, std::uint64_t* older) {
    const std::uint64_t capacity = record.geometry.capacity_blocks;
    const std::uint64_t blocks = bytes / nvme::kBlockBytes;
    if (blocks == 0 || bytes % nvme::kBlockBytes != 0)
        return error(Errc::kInvalidArgument, "{} bytes are not a whole number of {}-byte blocks", bytes,
                     nvme::kBlockBytes);
    if (first_block >= capacity || blocks > capacity - first_block)
        return error(Errc::kInvalidArgument, "blocks {} to {} lie past the end of volume {} of {} blocks",
                     first_block, first_block + blocks - 1, record.name, capacity);
    const std::lock_guard one_at_a_time(client->host_lanes);
    const bool borrows = write && own_sequence();
    std::uint64_t borrowed = 0;
    if (borrows) {
        GN_ASSIGN(borrowed, borrow_sequence());
    }
    client->settle_host_channel();
    auto done = transfer_blocks(ref(client->host_map, true), first_block, data, blocks, write, older);
    // Runs even if the transfer failed; the caller gets the first error.
    auto returned = borrows ? return_sequence(borrowed, !done.ok()) : Result<void>();
    return done.ok() ? std::move(returned) : std::move(done);
}

// Copies through the channel's pool, since the caller's memory is not registered. A drive that hangs with
// access to memory keeps that access for ever, even after a reset of the queue pair. In the pool that is
// harmless, and the call may end at its deadline with the caller's memory untouched afterwards.
Result<void> Volume::Impl::transfer_blocks(const VolumeRef& volume, std::uint64_t first_block,
                                           std::byte* data, std::uint64_t blocks, bool write,
                                           std::uint64_t* older) {
    const auto group = simt::self(simt::Lane{});
    gnor::Channel& channel = *client->host_channel;
    std::uint64_t older_before = 0;
    if (older != nullptr) {
        GN_ASSIGN(const gnor::Counters counters, channel.counters());
        older_before = counters.older_reads;
    }
    for (std::uint64_t at = 0; at < blocks; at += kBlocksPerCall) {
        const auto block = static_cast<nvme::BlockAddress>(first_block + at);
        const auto count = static_cast<std::uint32_t>(std::min<std::uint64_t>(kBlocksPerCall, blocks - at));
        std::byte* const buffer = data + at * nvme::kBlockBytes;
        const auto deadline =
            simt::Deadline::in_ns(std::uint64_t{client->options.transfer_timeout_ms} * 1'000'000);
        const nvme::Status status = write ? volume.write(group, channel.ref(), block, count, buffer, deadline)
                                          : volume.read(group, channel.ref(), block, count, buffer, deadline);
        if (nvme::ok(status)) continue;
        if (status == nvme::Status::kOlderVersion && older != nullptr) {
            GN_TRY(channel.clear_first_error());
            continue;
        }
        std::uint64_t where = block;
        if (auto first = channel.first_error(); first.ok() && first->has_value()) where = (*first)->block;
        GN_TRY(channel.clear_first_error());
        return error(code_of(status), "{} {} blocks of volume {} from block {} failed at block {}: {}{}",
                     write ? "writing" : "reading", count, record.name, block, where,
                     nvme::status_name(status),
                     status == nvme::Status::kQueueError ? broken_slots(channel) : "");
    }
    if (older != nullptr) {
        GN_ASSIGN(const gnor::Counters counters, channel.counters());
        *older = counters.older_reads - older_before;
    }
    return {};
}

}  // namespace gnstor::client
