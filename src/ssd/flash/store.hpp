// store.hpp: what a drive needs of its backbone, whichever it is: flash for each service unit, the firmware's
// small state, who it is, and a clean end.
//
// Threads: parts() and the rest from the drive's front; each part of the flash belongs to one thread at a
// time, different parts to different threads.
#pragma once

#include <gnstor/base/result.hpp>

#include "ssd/flash/file/store_format.hpp"

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
    /// The flash cut into `count` ranges of units (UnitRange::of). Each part has the geometry, page and unit
    /// numbers of the whole, refuses what is not in its range, and has syncs of its own. Parts must not
    /// outlive the store; the flash as a whole is not to be used beside them. Asked for once.
    virtual Result<FlashParts> parts(std::uint32_t count) = 0;
    /// Any thread may call it when a sync has ended; set before the first sync. May be ignored where syncs
    /// end only while they are polled.
    virtual void on_sync_end(std::function<void()>) {}
    /// A mount has ended: what an earlier cut tore is found. False: the store could not remember that.
    [[nodiscard]] virtual bool note_recovered() { return true; }
    /// Everything is stable, or it failed: the store may say that it was closed. False: it could not.
    [[nodiscard]] virtual bool end_use() { return true; }
    /// Nothing that is written to it lasts: changes must be refused.
    [[nodiscard]] virtual bool write_protected() const { return false; }
    /// For people: what it is.
    [[nodiscard]] virtual std::string describe() const = 0;
};

}  // namespace gnstor::ssd
