// backbone.hpp: chooses, opens or creates a drive's store from the drive's options. Host code, any thread.
#pragma once

#include <gnstor/base/result.hpp>

#include "ssd/flash/file/store_head.hpp"
#include "ssd/flash/store.hpp"
#include "ssd/options/drive_options.hpp"

#include <memory>

namespace gnstor::ssd {

/// Flash geometry for the requested user bytes: what the firmware needs for them (shard_room.hpp), and spare
/// erase units that may go bad.
Result<deengine::FlashGeometry> geometry_for(const DriveOptions& options);
/// Parameters of a new store for `options`.
Result<NewStore> new_store_for(const DriveOptions& options);
/// Disk space in bytes that a new store file allocates at first: everything but its pages, and the erase
/// units of its first checkpoints and first blocks.
Result<std::uint64_t> room_to_begin(const DriveOptions& options);
/// Creates the store options.file without opening it; kExists: the name is taken.
Result<void> make_store(const DriveOptions& options);
/// Opens the store for use, or creates it if there is none (memory and files; a device must have been
/// formatted). An existing store keeps its own geometry, UUID and serial number.
Result<std::unique_ptr<Store>> open_backbone(const DriveOptions& options, BootMode mode,
                                             bool accept_loss = false);

}  // namespace gnstor::ssd
