#include "ssd/drive.hpp"

#include <gnstor/base/log.hpp>

#include "ssd/backbone.hpp"
#include "ssd/command_path.hpp"
#include "ssd/fault_flash.hpp"
#include "ssd/service_units.hpp"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

namespace gnstor::ssd {

namespace {

constexpr std::chrono::seconds kDeleteDeadline{10};
constexpr std::size_t kBadPagesTold = 100;  ///< in the log; the rest is counted

/// What the scrub of a drive has told: each page once, however often it is found again. Any service unit's
/// thread.
class BadPagesTold {
  public:
    void tell(const std::string& serial, const deengine::BadPlace& bad) {
        const std::lock_guard lock(mutex_);
        if (told_.size() > kBadPagesTold || !told_.emplace(bad.page, bad.key).second) return;
        if (told_.size() > kBadPagesTold)
            log_error("SSD {}: more pages fail the scrub; they are counted (scrub_bad_pages)", serial);
        else if (bad.known)
            log_error(
                "SSD {}: scrub: flash page {} fails its checksums: reads of block {} of volume {} fail here; "
                "another replica has it, and writing the block again mends it",
                serial, bad.page, static_cast<std::uint32_t>(bad.key), bad.key >> 32);
        else
            log_error("SSD {}: scrub: the record of flash page {} cannot be read", serial, bad.page);
    }

  private:
    std::mutex mutex_;
    std::set<std::pair<deengine::PageNumber, std::uint64_t>> told_;
};

/// Shards in the drive's own thread, or each on the reactor of its turn.
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
    const auto mount = [&](const deengine::EngineOptions& o, const deengine::VolumeLives& lives,
                           deengine::CompletionSink& answers, deengine::RecoveryReport& found) {
        return ServiceUnits::mount(parts, units, front, o, lives, answers, found);
    };
    return deengine::Engine::mount(flashes, mount, metadata, options, sink, &report);
}

}  // namespace

struct Drive::Impl {
    Impl(Reactor& r, std::unique_ptr<Store> s)
        : reactor(r), store(std::move(s)), identity(store->identity()) {}
    Reactor& reactor;
    std::unique_ptr<Store> store;
    StoreIdentity identity;
    FlashParts flash;
    CommandPath path;
    BadPagesTold bad_pages_told;  // by all service units, so it outlives them
    std::unique_ptr<deengine::Engine> engine;
    deengine::RecoveryReport recovery{};
};

Drive::Drive(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<Drive>> Drive::open(const DriveOptions& options, Reactor& reactor,
                                           std::span<Reactor* const> units) {
    if (options.serial.size() > 20) {
        return error(Errc::kInvalidArgument, "the serial number '{}' is longer than 20 characters",
                     options.serial);
    }
    const bool in_file = !options.file.empty();
    const bool durable =
        options.durability == Durability::kPower || (options.durability == Durability::kDefault && in_file);
    if (durable && !in_file) {
        return error(Errc::kInvalidArgument,
                     "a drive in memory cannot survive power loss; name a file or ask for less");
    }
    GN_ASSIGN(std::unique_ptr<Store> store,
              open_backbone(options, durable ? BootMode::kPower : BootMode::kProcess));
    auto impl = std::make_unique<Impl>(reactor, std::move(store));
    impl->store->on_sync_end([&reactor, others = std::vector<Reactor*>(units.begin(), units.end())] {
        reactor.wake();
        for (Reactor* other : others) other->wake();
    });
    const StoreIdentity& identity = impl->identity;
    GN_ASSIGN(FlashParts parts, impl->store->parts(identity.service_units));
    impl->flash = with_faults(std::move(parts), options.faults);
    log_info("SSD {}: {}, {} service units", identity.serial, impl->store->describe(),
             identity.service_units);
    deengine::EngineOptions engine_options;
    std::copy(identity.incarnation.begin(), identity.incarnation.end(), engine_options.ssd_uuid);
    engine_options.over_provisioning_percent = identity.over_provisioning_percent;
    engine_options.mdts_blocks = kMdtsBlocks;
    engine_options.volatile_cache = !durable;
    engine_options.block_limit = identity.capacity_bytes / nvme::kBlockBytes;
    engine_options.scrub_pages_per_second = options.scrub_pages_per_second;
    engine_options.on_bad_page = [serial = identity.serial, &told = impl->bad_pages_told](
                                     const deengine::BadPlace& bad) { told.tell(serial, bad); };
    GN_ASSIGN(impl->engine, mount_engine(impl->flash, impl->store->metadata(), engine_options, impl->path,
                                         impl->recovery, reactor, units));
    for (const std::string& finding : impl->recovery.findings)
        log_warn("SSD {}: recovery: {}", identity.serial, finding);
    impl->path.serve(*impl->engine, {identity.incarnation, identity.serial, impl->engine->capacity_blocks(),
                                     in_file && !durable});
    reactor.add(impl->path);
    return std::unique_ptr<Drive>(new Drive(std::move(impl)));
}

Drive::~Drive() {
    // On the front's thread, as every use of the engine: a service unit may live there too.
    Result<void> closed;
    impl_->reactor.run([&] { closed = impl_->engine->close(); });
    impl_->reactor.remove(impl_->path);
    impl_->engine.reset();  // its service units leave their threads: flash has one user again
    if (impl_->path.queues() > 0)
        log_error("drive {} closes with {} queues open", impl_->identity.serial, impl_->path.queues());
    if (!closed.ok()) log_warn("drive {}: {}", impl_->identity.serial, closed.error().message);
    // What is in a file is on its medium when the name is given up, whatever was promised for each command.
    bool stable = true;
    for (const auto& part : impl_->flash) stable = part->sync() == deengine::FlashStatus::kOk && stable;
    if (!stable || !impl_->store->end_use()) {
        log_error("drive {}: its store could not be synchronized; a power cut may lose writes",
                  impl_->identity.serial);
    }
}

Result<NvmeQueue*> Drive::create_queue(std::uint16_t id, std::uint32_t depth, nvme::ClientId client,
                                       Priority priority, bool privileged) {
    if (depth < 2 || depth > 65536 || (depth & (depth - 1)) != 0) {
        return error(Errc::kInvalidArgument,
                     "a queue of depth {} is not possible; choose a power of two of 2 to 65536", depth);
    }
    auto queue = std::make_unique<ServedQueue>(id, depth, client, priority, privileged);
    NvmeQueue* made = nullptr;
    impl_->reactor.run([&] { made = impl_->path.add(std::move(queue)); });
    return made;
}

Result<void> Drive::delete_queue(NvmeQueue* queue) {
    bool known = false;
    bool gone = false;
    impl_->reactor.run([&] { known = impl_->path.close(queue); });
    if (!known) return error(Errc::kNotFound, "drive {} has no such queue", impl_->identity.serial);
    const auto deadline = std::chrono::steady_clock::now() + kDeleteDeadline;
    while (!gone) {
        impl_->reactor.run([&] {
            // Polling here serves a caller on the reactor's own thread, whose pollers do not run meanwhile.
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

const std::array<std::uint8_t, 16>& Drive::uuid() const {
    return impl_->identity.incarnation;
}
const std::array<std::uint8_t, 16>& Drive::drive_uuid() const {
    return impl_->identity.drive_uuid;
}
const std::string& Drive::serial() const {
    return impl_->identity.serial;
}
std::uint64_t Drive::capacity_blocks() const {
    return impl_->engine->capacity_blocks();
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
