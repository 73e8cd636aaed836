// store.hpp: the interface of a drive's backbone: flash for each service unit, the firmware's metadata, the
// store's identity, and a clean close.
//
// Threads: the drive's front calls the store; each part of the flash belongs to one thread at a time,
// different parts to different threads.
#pragma once

#include <gnstor/base/result.hpp>

#include "ssd/flash/store_format.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace gnstor::ssd {

struct StoreIdentity {
    std::array<std::uint8_t, 16> drive_uuid{};
    std::array<std::uint8_t, 16> incarnation{};
    std::string serial;
    std::uint64_t capacity_bytes = 0;
    std::uint32_t over_provisioning_percent = 0;
    std::uint32_t service_units = 1;
    bool same_boot = false;  ///< deengine::EngineOptions::same_boot
};

class StoreFile;
[[nodiscard]] StoreIdentity identity_of(const StoreFile& file);

using FlashParts = std::vector<std::unique_ptr<deengine::Flash>>;

class Store {
  public:
    virtual ~Store() = default;
    [[nodiscard]] virtual StoreIdentity identity() const = 0;
    [[nodiscard]] virtual deengine::MetadataStore& metadata() = 0;
    /// The flash, cut into `count` ranges of units (UnitRange::of). Each part has the geometry, page and unit
    /// numbers of the whole, refuses what is outside its range, and is synced separately. Parts must not
    /// outlive the store; the flash as a whole must not be used beside them. Call it once.
    virtual Result<FlashParts> parts(std::uint32_t count) = 0;
    /// The callback runs on any thread when a sync has ended; set it before the first sync. A store whose
    /// syncs end only while they are polled may ignore it.
    virtual void on_sync_end(std::function<void()>) {}
    /// The mount has ended and has found everything that an earlier power cut tore. False: the store could
    /// not record that.
    [[nodiscard]] virtual bool note_recovered() { return true; }
    /// Records a clean close, after everything was made stable. False: it could not be recorded.
    [[nodiscard]] virtual bool end_use() { return true; }
    /// Nothing written to this store lasts: the drive must refuse changes.
    [[nodiscard]] virtual bool write_protected() const { return false; }
    /// Short description for logs.
    [[nodiscard]] virtual std::string describe() const = 0;
};

}  // namespace gnstor::ssd
