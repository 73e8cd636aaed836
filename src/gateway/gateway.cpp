// gateway.cpp: opens a volume as a namespace, and runs the thread that maintains its lease and connections.
#include "gateway/gateway.hpp"

#include <gnstor/base/hash.hpp>
#include <gnstor/base/log.hpp>
#include <gnstor/base/steps.hpp>

#include "gateway/reclaim_pace.hpp"
#include "gateway/record_file.hpp"
#include "gnor/channel.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>

namespace gnstor::gateway {

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kLook = std::chrono::milliseconds(100);
constexpr auto kQuietLook = std::chrono::milliseconds(5);
constexpr auto kQuietWait = std::chrono::seconds(1);
/// Several writes may fail in a row: renew once for all.
constexpr auto kRenewAfter = std::chrono::seconds(3);
constexpr auto kRenewPause = std::chrono::seconds(1);
constexpr std::uint32_t kUnderWayMost = 1024;
/// Most chunks of one trim; each is a command to every replica. Without a limit Linux discards up to 2 TiB in
/// one command, which could not finish before its deadline, however often it is retried. Linux also sends as
/// many at once as its queue holds (127), and the deadline of the last one runs meanwhile, too.
constexpr std::uint32_t kTrimChunksMost = 128;
constexpr std::uint32_t kChannelDepth = 128;
constexpr std::uint64_t kPoolBytes = 8u << 20;
/// Commands for an SSD that does not answer keep their buffers (at most half of the places, SsdQuota), and
/// the other commands need some: 8 pieces of 64 KiB for each of 128 commands.
constexpr std::uint64_t kPoolBytesMost = 64u << 20;

/// A UUID that every opening of the volume derives alike, and no other volume has (RFC 9562, 5.8).
std::array<std::uint8_t, 16> uuid_of(const nvme::VolumeRecord& record) {
    const std::uint64_t life =
        (std::uint64_t{record.geometry.volume} << 32) | std::uint64_t{record.birth_epoch};
    const std::uint64_t words[2] = {mix64(record.geometry.hash_factor ^ mix64(life)),
                                    mix64(life ^ mix64(~record.geometry.hash_factor))};
    std::array<std::uint8_t, 16> uuid;
    std::memcpy(uuid.data(), words, sizeof words);
    uuid[6] = static_cast<std::uint8_t>((uuid[6] & 0x0Fu) | 0x80u);
    uuid[8] = static_cast<std::uint8_t>((uuid[8] & 0x3Fu) | 0x80u);
    return uuid;
}

std::string serial_of(const std::array<std::uint8_t, 16>& uuid) {
    std::string serial = "GNV";
    for (std::size_t i = 0; i < 8; ++i) serial += fmt::format("{:02x}", uuid[i]);
    return serial;
}

}  // namespace

client::ClientOptions client_options(const std::string& name) {
    client::ClientOptions options;
    options.name = name;
    options.channels = 1;
    options.depth = kChannelDepth;
    options.pool_bytes = kPoolBytes;
    options.pool_bytes_max = kPoolBytesMost;
    return options;
}

struct Gateway::Impl {
    Impl(client::Client& c, GatewayOptions o) : client(c), options(std::move(o)) {}

    // Steps of opening, in the order of the table below.
    Result<void> check_options();
    Result<void> open_volume();
    void leave_volume() { volume.reset(); }
    Result<void> describe();
    Result<void> open_record();
    void close_record() { record.reset(); }
    Result<void> start_executor();
    void stop_executor();
    Result<void> start_tending();
    void stop_tending();

    static const Step<Impl> kOpen[];

    // Run by the maintenance thread.
    void tend();
    void look_at_lease();
    void tend_record();
    void reclaim();
    void renew();
    [[nodiscard]] bool hold_until_quiet();
    [[nodiscard]] bool wait(std::chrono::milliseconds most);

    client::Client& client;
    const GatewayOptions options;
    std::unique_ptr<client::Volume> volume;
    ssd::DriveFacts facts;
    std::unique_ptr<RecordFile> record;  // null: no record is kept
    bool has_predecessor = false;
    std::optional<LossRecord> predecessor;  // its record; none: unreadable
    std::unique_ptr<Reactor> reactor;
    std::unique_ptr<CommandExecutor> executor;

    bool told_of_lease = false, told_of_record = false,
         told_of_renewal = false;  // used by the maintenance thread only, as are the next two
    ReclaimPace reclaim_pace;
    Clock::time_point next_renewal{};
    std::mutex mutex;
    std::condition_variable stop_asked;
    bool stopping = false, record_wanted = false;
    std::thread thread;
};

constexpr Step<Gateway::Impl> Gateway::Impl::kOpen[] = {
    {"check options", &Impl::check_options, nullptr},
    {"open the volume", &Impl::open_volume, &Impl::leave_volume},
    {"describe the namespace", &Impl::describe, nullptr},
    {"open the record", &Impl::open_record, &Impl::close_record},
    {"start the executor", &Impl::start_executor, &Impl::stop_executor},
    {"tend lease and connections", &Impl::start_tending, &Impl::stop_tending},
};

Result<void> Gateway::Impl::check_options() {
    if (client.lanes() != simt::LanesKind::kCpu)
        return error(Errc::kInvalidArgument,
                     "a gateway runs on this machine's CPU; give it a client with CPU lanes");
    if (options.channel >= client.channel_count())
        return error(Errc::kInvalidArgument,
                     "the client has {} channels, numbered from 0; there is no channel {}",
                     client.channel_count(), options.channel);
    if (options.command_timeout_ms == 0)
        return error(Errc::kInvalidArgument, "a gateway's commands need a timeout of at least 1 ms");
    if (options.under_way_max == 0 || options.under_way_max > kUnderWayMost)
        return error(Errc::kInvalidArgument, "a gateway has 1 to {} commands under way, not {}",
                     kUnderWayMost, options.under_way_max);
    return {};
}

Result<void> Gateway::Impl::open_volume() {
    const auto mode = options.read_only ? client::OpenMode::kRead : client::OpenMode::kWrite;
    GN_ASSIGN(volume, client.open(options.volume, mode));
    return {};
}

Result<void> Gateway::Impl::describe() {
    GN_ASSIGN(const bool cache, client.volatile_write_cache());
    facts.uuid = uuid_of(volume->record());
    facts.serial = serial_of(facts.uuid);
    facts.capacity_blocks = volume->record().geometry.capacity_blocks;
    facts.write_cache = cache;
    facts.trim_blocks_max = kTrimChunksMost << volume->record().geometry.chunk_shift;
    facts.model = "GNStor volume";
    facts.tells_of_changes = true;
    facts.write_protected = options.read_only;
    return {};
}

/// Reads an earlier gateway's record; ignored if it is of another life of the volume.
Result<void> Gateway::Impl::open_record() {
    if (options.record.empty() || options.read_only) return {};
    GN_ASSIGN(record, RecordFile::open(options.record));
    const Result<std::optional<LossRecord>> left = record->read();
    if (!left.ok()) {
        log_error("gateway of volume {}: the record {} of an earlier gateway cannot be used: {}",
                  options.volume, options.record.string(), left.error().message);
        has_predecessor = true;
        return {};
    }
    predecessor = *left;
    if (predecessor && predecessor->volume != facts.uuid) predecessor.reset();
    has_predecessor = predecessor.has_value();
    return {};
}

Result<void> Gateway::Impl::start_executor() {
    GN_ASSIGN(reactor, Reactor::start("gateway"));
    ExecutorOptions executor_options;
    executor_options.volume = options.volume;
    executor_options.serves_older = options.serves_older;
    executor_options.timeout_ns = std::uint64_t{options.command_timeout_ms} * 1'000'000;
    executor_options.under_way_max = options.under_way_max;
    executor_options.uuid = facts.uuid;
    executor_options.has_predecessor = has_predecessor;
    executor_options.predecessor = predecessor;
    if (record)
        executor_options.record_wanted = [this] {
            const std::lock_guard lock(mutex);
            record_wanted = true;
            stop_asked.notify_all();
        };
    executor = std::make_unique<CommandExecutor>(volume->ref(), client.channel(options.channel).ref(), facts,
                                                 std::move(executor_options));
    reactor->add(*executor);
    // Flushes what an earlier gateway answered, as far as the SSDs still hold it.
    if (has_predecessor && (!predecessor || predecessor->dirty)) {
        reactor->run([this] { executor->flush([](bool) {}); });
        reactor->wake();
    }
    return {};
}

void Gateway::Impl::stop_executor() {
    reactor->run([this] { executor->stop(); });
    reactor->remove(*executor);
    if (executor->queues() != 0)
        log_error("closing the gateway of volume {}: {} queues are still open", options.volume,
                  executor->queues());
    reactor.reset();
}

Result<void> Gateway::Impl::start_tending() {
    try {
        thread = std::thread([this] { tend(); });
    } catch (const std::system_error& e) {
        return error(Errc::kNoSpace, "cannot start a thread of the gateway of volume {}: {}", options.volume,
                     e.what());
    }
    return {};
}

void Gateway::Impl::stop_tending() {
    {
        const std::lock_guard lock(mutex);
        stopping = true;
    }
    stop_asked.notify_all();
    thread.join();
}

/// False: the gateway is closing.
bool Gateway::Impl::wait(std::chrono::milliseconds most) {
    std::unique_lock lock(mutex);
    (void)stop_asked.wait_for(lock, most, [this] { return stopping || record_wanted; });
    record_wanted = false;
    return !stopping;
}

void Gateway::Impl::tend() {
    while (wait(kLook)) {
        look_at_lease();
        tend_record();
        renew();
        if (!reclaim_pace.due(Clock::now())) continue;
        bool needed = false;
        reactor->run([&] { needed = executor->needs_reclaim(); });
        if (needed) reclaim();
    }
}

/// Only for the log: the epoch, which the SSDs check, keeps the data safe (CommandExecutor::fence).
void Gateway::Impl::look_at_lease() {
    const bool held = volume->lease_held();
    if (held == !told_of_lease) return;
    told_of_lease = !held;
    if (held)
        log_info("gateway of volume {}: its lease is renewed again", options.volume);
    else
        log_warn("gateway of volume {}: its lease could not be renewed; another writer may take the volume",
                 options.volume);
}

/// Writes the record on this thread, while the executor continues: only answers to changes wait for it.
void Gateway::Impl::tend_record() {
    if (!record) return;
    std::optional<LossRecord> now;
    reactor->run([&] { now = executor->record_to_write(); });
    if (!now) return;
    const Result<void> written = record->write(*now);
    if (!written.ok() && !told_of_record)
        log_error("gateway of volume {}: {}; hosts' writes fail until it can be written again",
                  options.volume, written.error().message);
    told_of_record = !written.ok();
    reactor->run([&] { executor->record_written(*now, written.ok()); });
    reactor->wake();
}

/// Holds the executor, and waits until all its requests have ended. False: an SSD delays that; the caller
/// retries later.
bool Gateway::Impl::hold_until_quiet() {
    const auto began = Clock::now();
    bool quiet = false;
    reactor->run([this] { executor->hold(); });
    do {
        tend_record();  // completed changes may wait for the record
        reactor->run([&] { quiet = executor->channel_is_quiet(); });
    } while (!quiet && Clock::now() - began < kQuietWait && wait(kQuietLook));
    return quiet;
}

/// Resets the client's queue pairs that need it; the channel must be quiet meanwhile.
void Gateway::Impl::reclaim() {
    const auto began = Clock::now();
    const bool quiet = hold_until_quiet();
    Result<void> done;
    if (quiet) done = client.reclaim();
    bool others_waited = false;
    reactor->run([&] {
        others_waited = executor->holds_others_back();
        executor->resume(quiet && done.ok());
    });
    reclaim_pace.ended(began, Clock::now(), quiet || others_waited);
    if (!quiet) return;
    if (done.ok())
        log_info("gateway of volume {}: connections to its SSDs were established again", options.volume);
    else
        log_warn("gateway of volume {}: not all SSDs can be reached: {}", options.volume,
                 done.error().message);
}

/// If a write has been in doubt for some time, ends the epoch (docs/array.md, rule 11): otherwise the SSDs
/// would keep the tombstones of all later trims, until they have no room for more. This gateway opens the
/// next epoch itself; hosts only see a pause. Once the daemon was asked, changes wait for its answer, because
/// the SSDs may refuse the old epoch already.
void Gateway::Impl::renew() {
    const auto now = Clock::now();
    const bool held = volume->floor_is_held() || volume->renewing();
    if (!held || !executor->writable()) next_renewal = now + kRenewAfter;
    if (now < next_renewal) return;
    Result<void> done;
    bool quiet = hold_until_quiet();
    if (!quiet)
        reactor->run([&] {
            executor->recall_changes();
            quiet = executor->channel_is_quiet();
        });
    if (quiet) done = volume->renew();
    const bool renewed = quiet && done.ok();
    reactor->run([&] {
        if (renewed) executor->renewed(volume->ref());
        if (quiet && !renewed && done.error().code == Errc::kPermission) executor->fence();
        executor->hold_changes(volume->renewing());
        executor->resume(false);
    });
    reactor->wake();
    next_renewal = Clock::now() + (volume->renewing() ? kRenewPause : kRenewAfter);
    if (renewed)
        log_info("gateway of volume {}: writes had failed on some of their SSDs; a new epoch was started",
                 options.volume);
    else if (quiet && !std::exchange(told_of_renewal, true))
        log_warn(
            "gateway of volume {}: writes have failed on some of their SSDs, and no new epoch can be started "
            "yet: {}",
            options.volume, done.error().message);
    if (renewed) told_of_renewal = false;
}

Gateway::Gateway(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<Gateway>> Gateway::open(client::Client& client, const GatewayOptions& options) {
    auto impl = std::make_unique<Impl>(client, options);
    GN_TRY(run_steps(*impl, std::span<const Step<Impl>>(Impl::kOpen), "opening a gateway"));
    return std::unique_ptr<Gateway>(new Gateway(std::move(impl)));
}

Gateway::~Gateway() {
    impl_->stop_tending();
    impl_->stop_executor();
}

Result<ssd::NvmeQueue*> Gateway::create_queue(std::uint16_t id, std::uint32_t depth, nvme::ClientId client,
                                              ssd::Priority priority, bool privileged,
                                              std::uint16_t controller) {
    if (depth < 2 || depth > 65536 || (depth & (depth - 1)) != 0)
        return error(Errc::kInvalidArgument,
                     "a queue of depth {} is not possible; choose a power of two of 2 to 65536", depth);
    auto queue = std::make_unique<ssd::ServedQueue>(id, depth, client, priority, privileged);
    queue->controller = controller;
    ssd::NvmeQueue* made = nullptr;
    impl_->reactor->run([&] { made = impl_->executor->add(std::move(queue)); });
    return made;
}

Result<void> Gateway::delete_queue(ssd::NvmeQueue* queue) {
    bool known = false;
    impl_->reactor->run([&] { known = impl_->executor->remove(queue); });
    if (known) return {};
    return error(Errc::kNotFound, "the gateway of volume {} has no such queue", impl_->options.volume);
}

void Gateway::flush(std::function<void(bool)> done) {
    impl_->reactor->run([&] { impl_->executor->flush(std::move(done)); });
    impl_->reactor->wake();
}

const std::array<std::uint8_t, 16>& Gateway::uuid() const {
    return impl_->facts.uuid;
}
const std::string& Gateway::serial() const {
    return impl_->facts.serial;
}
void Gateway::stop() {
    impl_->reactor->run([this] { impl_->executor->stop(); });
}
Reactor& Gateway::reactor() {
    return *impl_->reactor;
}
const nvme::VolumeRecord& Gateway::volume() const {
    return impl_->volume->record();
}
bool Gateway::writable() const {
    return impl_->executor->writable();
}
GatewayState Gateway::state() const {
    GatewayState copy{};
    impl_->reactor->run([&] { copy = impl_->executor->state(); });
    return copy;
}
GatewayCounters Gateway::counters() const {
    GatewayCounters copy{};
    impl_->reactor->run([&] { copy = impl_->executor->counters(); });
    return copy;
}

}  // namespace gnstor::gateway
