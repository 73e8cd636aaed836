// metadata_slots.hpp: which of the two slots of the firmware's state a drive uses, and when it is refused.
//
// Invariants
//   * a drive uses the newest metadata or, where a user accepts the loss, the newest copy that can be read;
//   * an error names a command only where that command works.
// Host code, pure: a StoreFile and a StoreView judge alike.
#pragma once

#include <gnstor/base/result.hpp>

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace gnstor::ssd {

/// What one slot holds.
struct MetadataSlot {
    bool head_whole = false;  ///< a copy of its header is whole
    bool head_twice = false;  ///< both are, and say the same
    bool rotten = false;      ///< HeaderCopies::rotten
    bool body_whole = false;  ///< a header and the blob are whole
    std::uint64_t generation = 0;
    std::uint64_t bytes = 0;  ///< of the blob
};
using MetadataSlots = std::array<MetadataSlot, 2>;

/// Index of the slot whose header names the highest generation; -1: no header is whole.
[[nodiscard]] int newest_slot(const MetadataSlots& slots);
/// Index of the newest slot that can be read; -1: none can.
[[nodiscard]] int newest_whole_slot(const MetadataSlots& slots);
/// Generation of that one; 0: none.
[[nodiscard]] std::uint64_t newest_whole_generation(const MetadataSlots& slots);
/// A whole header of the highest generation lies over a damaged blob, or a slot's header has rotted.
[[nodiscard]] bool newest_damaged(const MetadataSlots& slots);

/// How the metadata is damaged, if the newest copy that can be read is not the newest there was: the end of a
/// sentence about the metadata. Nothing: it is the newest. `told`: the generation in the boot record.
[[nodiscard]] std::optional<std::string> metadata_loss(const MetadataSlots& slots, std::uint64_t told);
/// Whether a drive may use its metadata; `told`: the generation in the boot record. kCorrupt with what to do,
/// unless the newest metadata is there, or `accept_loss` and an older copy is whole.
Result<void> check_metadata(const std::filesystem::path& path, const MetadataSlots& slots, std::uint64_t told,
                            bool accept_loss);

}  // namespace gnstor::ssd
