// backbone.hpp: which store a drive stands on: chosen, opened, made from the drive's options. Host code, any
// thread.
#pragma once

#include <gnstor/base/result.hpp>

#include "ssd/drive_options.hpp"
#include "ssd/store.hpp"
#include "ssd/store_head.hpp"

#include <memory>

namespace gnstor::ssd {

/// Flash for so many user bytes: over-provisioning, and units that are never the user's, see spare_units.
Result<deengine::FlashGeometry> geometry_for(const DriveOptions& options);
/// Units of each service unit beside blocks and over-provisioning: two whole checkpoints of the block map
/// (8.9 bytes a page in pages of 4032 payload bytes; unit table and tombstones are within the rest), the
/// journal between them, open units, room to collect into, and some that may go bad.
[[nodiscard]] std::uint64_t spare_units(std::uint64_t pages, std::uint32_t pages_per_unit);

/// What `options` ask of a new store.
Result<NewStore> new_store_for(const DriveOptions& options);
/// Opens the store, for use, or makes it if there is none (memory and files; a device must have been
/// formatted). An existing store keeps its own geometry, UUID and serial number.
Result<std::unique_ptr<Store>> open_backbone(const DriveOptions& options, BootMode mode);

}  // namespace gnstor::ssd
