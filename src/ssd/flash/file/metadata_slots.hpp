// metadata_slots.hpp: which of the two metadata slots (the firmware's state) a drive uses, and when the store
// is refused.
//
// Invariants
//   * a drive uses the newest metadata or, where a user accepts the loss, the newest copy that can be read;
//   * an error names a command only where that command works.
// Host code, pure: StoreFile and StoreView apply the same rules.
#pragma once

#include <gnstor/base/result.hpp>

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace gnstor::ssd {

/// Contents of one slot.
struct MetadataSlot {
    bool head_whole = false;  ///< at least one copy of its header is whole
    bool head_twice = false;  ///< both copies are whole and agree
    bool rotten = false;      ///< HeaderCopies::rotten
    bool body_whole = false;  ///< a header copy and the blob are whole
    std::uint64_t generation = 0;
    std::uint64_t bytes = 0;  ///< of the blob
};
using MetadataSlots = std::array<MetadataSlot, 2>;

/// Index of the slot whose header names the highest generation; -1: no header is whole.
[[nodiscard]] int newest_slot(const MetadataSlots& slots);
/// Index of the newest slot that can be read; -1: none can.
[[nodiscard]] int newest_whole_slot(const MetadataSlots& slots);
/// Generation of that slot; 0: none.
[[nodiscard]] std::uint64_t newest_whole_generation(const MetadataSlots& slots);
/// The whole header of the highest generation has a damaged blob, or a slot's header has rotted.
[[nodiscard]] bool newest_damaged(const MetadataSlots& slots);

/// How the metadata is damaged, if the newest readable copy is not the newest that existed: the end of a
/// sentence about the metadata. Empty: it is the newest. `told`: the generation in the boot record.
[[nodiscard]] std::optional<std::string> metadata_loss(const MetadataSlots& slots, std::uint64_t told);
/// Whether a drive may use its metadata; `told`: the generation in the boot record. kCorrupt, with what to
/// do, unless the newest metadata is readable, or `accept_loss` is set and an older copy is whole.
Result<void> check_metadata(const std::filesystem::path& path, const MetadataSlots& slots, std::uint64_t told,
                            bool accept_loss);

}  // namespace gnstor::ssd
