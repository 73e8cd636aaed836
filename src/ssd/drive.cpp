#include "ssd/drive.hpp"

#include <gnstor/base/log.hpp>
#include <gnstor/base/uuid.hpp>

#include "ssd/command_path.hpp"
#include "ssd/file_store.hpp"
#include "ssd/memory_flash.hpp"

#include <algorithm>
#include <chrono>
#include <string_view>
#include <thread>

namespace gnstor::ssd {

namespace {

constexpr std::chrono::seconds kDeleteDeadline{10};
constexpr std::size_t kMemoryMetadataBytes = kStoreMetadataBytes;
constexpr std::uint32_t kSpareUnits =
    4;  // open units and room for one to be cleaned, beside over-provisioning

/// Everything under the engine, in memory or in a file.
struct Backbone {
    std::unique_ptr<MemoryFlash> memory;
    std::unique_ptr<MemoryMetadata> memory_metadata;
    std::unique_ptr<FileStore> file;
    std::array<std::uint8_t, 16> uuid{};
    std::string serial;
    std::uint32_t over_provisioning_percent = 0;

    [[nodiscard]] deengine::Flash& flash() {
        return file != nullptr ? static_cast<deengine::Flash&>(*file) : *memory;
    }
    [[nodiscard]] deengine::MetadataStore& metadata() {
        return file != nullptr ? static_cast<deengine::MetadataStore&>(*file) : *memory_metadata;
    }
};

Result<deengine::FlashGeometry> geometry_for(const DriveOptions& o) {
    const std::uint64_t blocks = o.capacity_bytes / nvme::kBlockBytes;
    if (blocks == 0 || o.capacity_bytes % nvme::kBlockBytes != 0) {
        return error(Errc::kInvalidArgument, "a drive of {} bytes is not a whole number of 4096-byte blocks",
                     o.capacity_bytes);
    }
    if (o.pages_per_unit == 0 || o.pages_per_unit > (1u << 20) || o.over_provisioning_percent > 100) {
        return error(
            Errc::kInvalidArgument,
            "erase units of {} pages with {} % over-provisioning are not possible (1 to 2^20, 0 to 100)",
            o.pages_per_unit, o.over_provisioning_percent);
    }
    if (blocks > (1ull << 32)) {
        return error(Errc::kInvalidArgument,
                     "a drive of {} bytes is too large; 16 TiB with its over-provisioning is the most",
                     o.capacity_bytes);
    }
    const std::uint64_t pages = blocks + (blocks * o.over_provisioning_percent + 99) / 100;
    const std::uint64_t units = (pages + o.pages_per_unit - 1) / o.pages_per_unit + kSpareUnits;
    if (units * o.pages_per_unit >= deengine::kNoPage) {
        return error(Errc::kInvalidArgument,
                     "a drive of {} bytes is too large; 16 TiB with its over-provisioning is the most",
                     o.capacity_bytes);
    }
    return deengine::FlashGeometry{static_cast<std::uint32_t>(units), o.pages_per_unit};
}

std::string serial_from(const std::array<std::uint8_t, 16>& uuid) {
    std::string serial = "GN";
    for (int i = 0; i < 8; ++i) serial += fmt::format("{:02X}", uuid[static_cast<std::size_t>(i)]);
    return serial;
}

Result<Backbone> open_memory(const DriveOptions& o) {
    GN_ASSIGN(const deengine::FlashGeometry geometry, geometry_for(o));
    Backbone b;
    GN_ASSIGN(b.memory, MemoryFlash::create(geometry));
    b.memory_metadata = std::make_unique<MemoryMetadata>(kMemoryMetadataBytes);
    b.uuid = Uuid::random().bytes;
    b.serial = o.serial.empty() ? serial_from(b.uuid) : o.serial;
    b.over_provisioning_percent = o.over_provisioning_percent;
    return b;
}

/// Opens the store, or makes it if there is none. An existing store keeps its own geometry, UUID and serial
/// number.
Result<Backbone> open_file(const DriveOptions& o) {
    Backbone b;
    Result<std::unique_ptr<FileStore>> opened = FileStore::open(o.file);
    if (!opened.ok() && opened.error().code == Errc::kNotFound) {
        GN_ASSIGN(const deengine::FlashGeometry geometry, geometry_for(o));
        opened = FileStore::create(o.file, {.geometry = geometry,
                                            .capacity_bytes = o.capacity_bytes,
                                            .over_provisioning_percent = o.over_provisioning_percent,
                                            .serial = o.serial});
    }
    GN_ASSIGN(b.file, std::move(opened));
    const Superblock& s = b.file->superblock();
    std::copy(std::begin(s.uuid), std::end(s.uuid), b.uuid.begin());
    b.serial.assign(std::begin(s.serial), std::end(s.serial));
    b.serial.erase(b.serial.find_last_not_of(' ') + 1);
    b.over_provisioning_percent = s.over_provisioning_percent;
    return b;
}

}  // namespace

struct Drive::Impl {
    Impl(Reactor& r, Backbone b) : reactor(r), backbone(std::move(b)) {}
    Reactor& reactor;
    Backbone backbone;
    CommandPath path;
    std::unique_ptr<deengine::Engine> engine;
    deengine::RecoveryReport recovery{};
};

Drive::Drive(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<Drive>> Drive::open(const DriveOptions& options, Reactor& reactor) {
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
    GN_ASSIGN(Backbone backbone, in_file ? open_file(options) : open_memory(options));
    auto impl = std::make_unique<Impl>(reactor, std::move(backbone));
    deengine::EngineOptions engine_options;
    std::copy(impl->backbone.uuid.begin(), impl->backbone.uuid.end(), engine_options.ssd_uuid);
    engine_options.over_provisioning_percent = impl->backbone.over_provisioning_percent;
    engine_options.mdts_blocks = kMdtsBlocks;
    engine_options.volatile_cache = !durable;
    GN_ASSIGN(impl->engine, deengine::Engine::mount(impl->backbone.flash(), impl->backbone.metadata(),
                                                    engine_options, impl->path, &impl->recovery));
    // A page that a kill tore was never acknowledged; one that rotted was. A scan cannot tell them apart yet,
    // so it is said.
    if (impl->recovery.pages_torn != 0)
        log_warn(
            "SSD {}: {} pages have damaged out-of-band records and count as never written: torn by a kill, "
            "or rotted",
            impl->backbone.serial, impl->recovery.pages_torn);
    impl->path.serve(*impl->engine, {impl->backbone.uuid, impl->backbone.serial,
                                     impl->engine->capacity_blocks(), in_file && !durable});
    reactor.add(impl->path);
    return std::unique_ptr<Drive>(new Drive(std::move(impl)));
}

Drive::~Drive() {
    impl_->reactor.remove(impl_->path);
    if (impl_->path.queues() > 0)
        log_error("drive {} closes with {} queues open", impl_->backbone.serial, impl_->path.queues());
    // What is in a file is on its medium when the name is given up, whatever was promised for each command.
    if (impl_->backbone.flash().sync() != deengine::FlashStatus::kOk) {
        log_error("drive {}: its file could not be synchronized; a power cut may lose writes",
                  impl_->backbone.serial);
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
    if (!known) return error(Errc::kNotFound, "drive {} has no such queue", impl_->backbone.serial);
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
                         impl_->backbone.serial, kDeleteDeadline.count());
        }
        if (!gone) std::this_thread::yield();
    }
    return {};
}

const std::array<std::uint8_t, 16>& Drive::uuid() const {
    return impl_->backbone.uuid;
}
const std::string& Drive::serial() const {
    return impl_->backbone.serial;
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
