// backbone.hpp: which store a drive stands on: chosen, opened, made from the drive's options. Host code, any
// thread.
#pragma once

#include <gnstor/base/result.hpp>

#include "ssd/drive/drive_options.hpp"
#include "ssd/flash/file/store_head.hpp"
#include "ssd/flash/store.hpp"

#include <memory>

namespace gnstor::ssd {

/// Flash for so many user bytes: what the firmware needs for them (shard_room.hpp), and units that may go
/// bad.
Result<deengine::FlashGeometry> geometry_for(const DriveOptions& options);
/// What `options` ask of a new store.
Result<NewStore> new_store_for(const DriveOptions& options);
/// Bytes on disk that a new store in a file takes at once: all but its pages, and of these the erase units of
/// its first checkpoints and of its first blocks.
Result<std::uint64_t> room_to_begin(const DriveOptions& options);
/// Makes the store of options.file, which nobody opens yet; kExists where the name is taken.
Result<void> make_store(const DriveOptions& options);
/// Opens the store, for use, or makes it if there is none (memory and files; a device must have been
/// formatted). An existing store keeps its own geometry, UUID and serial number.
Result<std::unique_ptr<Store>> open_backbone(const DriveOptions& options, BootMode mode,
                                             bool accept_loss = false);

}  // namespace gnstor::ssd
