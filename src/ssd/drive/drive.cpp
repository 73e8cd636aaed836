#include "ssd/drive/drive.hpp"

#include <gnstor/base/log.hpp>
#include <gnstor/base/steps.hpp>

#include "ssd/drive/backbone.hpp"
#include "ssd/drive/command_path.hpp"
#include "ssd/drive/scrub_failure_log.hpp"
#include "ssd/drive/service_units.hpp"
#include "ssd/flash/fault/fault_flash.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace gnstor::ssd {

namespace {

constexpr std::chrono::seconds kDeleteDeadline{10};

/// Mounts all shards on the drive's own thread, or shard i on units[i % size].
Result<std::unique_ptr<deengine::Engine>> mount_engine(const FlashParts& parts,
                                                       deengine::MetadataStore& metadata,
                                                       const deengine::EngineOptions& options,
                                                       deengine::CompletionSink& sink,
                                                       deengine::RecoveryReport& report, Reactor& front,
                                                       std::span<Reactor* const> units) {
    std::vector<deengine::Flash*> flashes;
    for (const auto& part : parts) flashes.push_back(part.get());
    if (parts.size() == 1 || units.empty())
        return deengine::Engine::mount(flashes, metadata, options, sink, &report);
    const auto mount = [&](const deengine::EngineOptions& o, const deengine::VolumeRegistry& lives,
                           deengine::CompletionSink& answers, deengine::RecoveryReport& found) {
        return ServiceUnits::mount(parts, units, front, o, lives, answers, found);
    };
    return deengine::Engine::mount(flashes, mount, metadata, options, sink, &report);
}

}  // namespace

struct Drive::Impl {
    Impl(const DriveOptions& o, Reactor& r, std::span<Reactor* const> u)
        : options(o), reactor(r), units(u.begin(), u.end()) {}

    // Steps of opening and of closing, in the order of the tables below.
    Result<void> check_options();
    Result<void> open_store();
    void leave_store() { store.reset(); }
    Result<void> cut_flash();
    void join_flash() { flash.clear(); }
    Result<void> mount();
    void leave_engine() { engine.reset(); }
    Result<void> serve();
    void stop_serving() { reactor.remove(path); }
    Result<void> write_checkpoint();
    Result<void> end_serving();
    Result<void> leave_service_units();
    Result<void> sync_flash();
    Result<void> mark_closed();

    static const Step<Impl> kOpen[];
    static const Step<Impl> kClose[];

    const DriveOptions options;
    Reactor& reactor;
    const std::vector<Reactor*> units;
    bool durable = false;    ///< writes survive power loss
    bool stable = false;     ///< the final sync succeeded
    bool unsettled = false;  ///< closed before the checkpoint of its recovery was written
    std::unique_ptr<Store> store;
    StoreIdentity identity;
    FlashParts flash;
    CommandPath path;
    ScrubFailureLog bad_pages_told;  // by all service units, so it outlives them
    std::unique_ptr<deengine::Engine> engine;
    deengine::RecoveryReport recovery{};
};

constexpr Step<Drive::Impl> Drive::Impl::kOpen[] = {
    {"check options", &Impl::check_options, nullptr},
    {"open store", &Impl::open_store, &Impl::leave_store},
    {"cut flash into service units", &Impl::cut_flash, &Impl::join_flash},
    {"mount", &Impl::mount, &Impl::leave_engine},
    {"serve", &Impl::serve, &Impl::stop_serving},
};

/// All steps run, even after a failure: a drive that could not write its checkpoint is recovered from its
/// log.
constexpr Step<Drive::Impl> Drive::Impl::kClose[] = {
    {"write checkpoint", &Impl::write_checkpoint, nullptr},
    {"stop serving", &Impl::end_serving, nullptr},
    {"leave service units", &Impl::leave_service_units, nullptr},
    {"make flash stable", &Impl::sync_flash, nullptr},
    {"mark the store closed", &Impl::mark_closed, nullptr},
};

Result<void> Drive::Impl::check_options() {
    if (options.serial.size() > 20) {
        return error(Errc::kInvalidArgument, "the serial number '{}' is longer than 20 characters",
                     options.serial);
    }
    const bool in_file = !options.file.empty();
    durable =
        options.durability == Durability::kPower || (options.durability == Durability::kDefault && in_file);
    if (durable && !in_file) {
        return error(Errc::kInvalidArgument,
                     "a drive in memory cannot have durability 'power': its contents do not survive a power "
                     "loss; give the drive a file, or choose a lower durability");
    }
    return check(options.timing);
}

Result<void> Drive::Impl::open_store() {
    GN_ASSIGN(store, open_backbone(options, durable ? BootMode::kPower : BootMode::kProcess));
    identity = store->identity();
    store->on_sync_end([this] {
        reactor.wake();
        for (Reactor* other : units) other->wake();
    });
    return {};
}

Result<void> Drive::Impl::cut_flash() {
    GN_ASSIGN(FlashParts parts, store->parts(identity.service_units));
    flash = with_faults(std::move(parts), options.faults);
    if (store->write_protected())
        log_error(
            "SSD {}: {}: the store is read-only: blocks can be read, but nothing can be changed; make the "
            "store writable, then restart the process that serves it",
            identity.serial, store->describe());
    log_info("SSD {}: {}, {} service units", identity.serial, store->describe(), identity.service_units);
    return {};
}

Result<void> Drive::Impl::mount() {
    deengine::EngineOptions engine_options;
    std::copy(identity.incarnation.begin(), identity.incarnation.end(), engine_options.ssd_uuid);
    engine_options.over_provisioning_percent = identity.over_provisioning_percent;
    engine_options.mdts_blocks = kMdtsBlocks;
    engine_options.volatile_cache = !durable;
    engine_options.same_boot = identity.same_boot;
    engine_options.block_limit = identity.capacity_bytes / nvme::kBlockBytes;
    engine_options.scrub_pages_per_second = options.scrub_pages_per_second;
    engine_options.on_scrub_error = [this](const deengine::ScrubError& bad) {
        bad_pages_told.tell(identity.serial, bad);
    };
    engine_options.on_settled = [this] {
        if (!store->note_recovered()) {
            log_error(
                "SSD {}: its boot record cannot be written: writes stay refused; restart the process that "
                "serves the SSD",
                identity.serial);
            return false;
        }
        log_warn(
            "SSD {}: the disk has room again, and the recovery has written its results: writes are accepted "
            "again",
            identity.serial);
        return true;
    };
    GN_ASSIGN(engine, mount_engine(flash, store->metadata(), engine_options, path, recovery, reactor, units));
    for (const std::string& finding : recovery.findings)
        log_warn("SSD {}: recovery: {}", identity.serial, finding);
    if (engine->unsettled()) {
        log_error(
            "SSD {}: the disk under {} is full and has no room for the results of the recovery: blocks can "
            "be read and volumes can be deleted, but writes are refused; make room on that disk, and the SSD "
            "accepts writes again without a restart",
            identity.serial, store->describe());
        return {};
    }
    if (store->note_recovered()) return {};
    return error(Errc::kIo, "the store of the SSD {} was recovered, but its boot record cannot be written",
                 identity.serial);
}

Result<void> Drive::Impl::serve() {
    DriveFacts facts;
    facts.uuid = identity.incarnation;
    facts.serial = identity.serial;
    facts.capacity_blocks = engine->capacity_blocks();
    facts.write_cache = !options.file.empty() && !durable;
    facts.array_commands = true;
    facts.write_protected = store->write_protected();
    path.serve(*engine, std::move(facts), options.timing);
    reactor.add(path);
    return {};
}

/// On the front's thread, like every use of the engine: a service unit may run there too.
Result<void> Drive::Impl::write_checkpoint() {
    Result<void> closed;
    reactor.run([&] {
        closed = engine->close();
        unsettled = engine->unsettled();
    });
    return closed;
}

Result<void> Drive::Impl::end_serving() {
    reactor.remove(path);
    if (path.queues() == 0) return {};
    return error(Errc::kState, "{} queues are still open", path.queues());
}

Result<void> Drive::Impl::leave_service_units() {
    engine.reset();  // only this thread uses the flash from here on
    return {};
}

/// Once closed, a store is entirely on its medium, whatever durability was promised for each command.
Result<void> Drive::Impl::sync_flash() {
    stable = true;
    for (const auto& part : flash) stable = part->sync() == deengine::FlashStatus::kOk && stable;
    if (stable) return {};
    return error(Errc::kIo, "the store could not be synchronized; a power cut may lose writes");
}

Result<void> Drive::Impl::mark_closed() {
    if (unsettled) return {};  // the boot record tells the next opening what to recover
    if (stable && store->end_use()) return {};
    return error(Errc::kIo, "the store could not be marked as closed; it is recovered at the next opening");
}

Drive::Drive(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<Drive>> Drive::open(const DriveOptions& options, Reactor& reactor,
                                           std::span<Reactor* const> units) {
    auto impl = std::make_unique<Impl>(options, reactor, units);
    GN_TRY(run_steps(*impl, std::span<const Step<Impl>>(Impl::kOpen), "opening an SSD"));
    return std::unique_ptr<Drive>(new Drive(std::move(impl)));
}

Drive::~Drive() {
    run_every_step(
        *impl_, std::span<const Step<Impl>>(Impl::kClose), [this](const char* step, const Error& why) {
            log_error("closing SSD {}, step \"{}\": {}", impl_->identity.serial, step, why.message);
        });
}

Result<NvmeQueue*> Drive::create_queue(std::uint16_t id, std::uint32_t depth, nvme::ClientId client,
                                       Priority priority, bool privileged, std::uint16_t controller) {
    if (depth < 2 || depth > 65536 || (depth & (depth - 1)) != 0) {
        return error(Errc::kInvalidArgument,
                     "a queue of depth {} is not possible; choose a power of two of 2 to 65536", depth);
    }
    auto queue = std::make_unique<ServedQueue>(id, depth, client, priority, privileged);
    queue->controller = controller;
    NvmeQueue* made = nullptr;
    impl_->reactor.run([&] { made = impl_->path.add(std::move(queue)); });
    return made;
}

Result<void> Drive::delete_queue(NvmeQueue* queue) {
    bool known = false;
    bool gone = false;
    impl_->reactor.run([&] { known = impl_->path.close(queue); });
    if (!known)
        return error(Errc::kNotFound, "cannot delete a queue of drive {}: the drive does not have this queue",
                     impl_->identity.serial);
    const auto deadline = std::chrono::steady_clock::now() + kDeleteDeadline;
    while (!gone) {
        impl_->reactor.run([&] {
            // Polls here because a caller may run on the reactor's own thread, whose pollers do not run
            // meanwhile.
            (void)impl_->path.poll();
            gone = impl_->path.idle(queue);
            if (gone) impl_->path.remove(queue);
        });
        if (!gone && std::chrono::steady_clock::now() > deadline) {
            return error(Errc::kTimedOut, "commands of a queue of drive {} have not ended in {} s",
                         impl_->identity.serial, kDeleteDeadline.count());
        }
        if (!gone) std::this_thread::yield();
    }
    return {};
}

void Drive::flush(std::function<void(bool)> done) {
    impl_->reactor.run([&] { impl_->path.flush(std::move(done)); });
    impl_->reactor.wake();
}

const std::array<std::uint8_t, 16>& Drive::uuid() const {
    return impl_->identity.incarnation;
}
const std::array<std::uint8_t, 16>& Drive::drive_uuid() const {
    return impl_->identity.drive_uuid;
}
const std::string& Drive::serial() const {
    return impl_->identity.serial;
}
bool Drive::write_protected() const {
    return impl_->store->write_protected();
}
std::uint64_t Drive::capacity_blocks() const {
    return impl_->engine->capacity_blocks();
}

bool Drive::is_timed() const {
    return !impl_->options.timing.none();
}

deengine::EngineCounters Drive::counters() const {
    deengine::EngineCounters copy{};
    impl_->reactor.run([&] { copy = impl_->engine->counters(); });
    return copy;
}

const deengine::RecoveryReport& Drive::recovery() const {
    return impl_->recovery;
}

}  // namespace gnstor::ssd
