#include "ssd/flash/file/metadata_slots.hpp"

#include <gnstor/base/shell_word.hpp>

#include "ssd/flash/store_format.hpp"

#include <string>

namespace gnstor::ssd {

int newest_slot(const MetadataSlots& slots) {
    if (!slots[0].head_whole && !slots[1].head_whole) return -1;
    return slots[1].generation > slots[0].generation ? 1 : 0;
}

int newest_whole_slot(const MetadataSlots& slots) {
    if (!slots[0].body_whole && !slots[1].body_whole) return -1;
    const bool second =
        slots[1].body_whole && (!slots[0].body_whole || slots[1].generation > slots[0].generation);
    return second ? 1 : 0;
}

std::uint64_t newest_whole_generation(const MetadataSlots& slots) {
    const int slot = newest_whole_slot(slots);
    return slot < 0 ? 0 : slots[static_cast<std::size_t>(slot)].generation;
}

/// A header is written only after its blob is on the medium, and only over the older slot: a whole header of
/// the newest generation with a damaged blob is not a torn write.
bool newest_damaged(const MetadataSlots& slots) {
    if (slots[0].rotten || slots[1].rotten) return true;
    const int newest = newest_slot(slots);
    return newest >= 0 && !slots[static_cast<std::size_t>(newest)].body_whole;
}

std::optional<std::string> metadata_loss(const MetadataSlots& slots, std::uint64_t told) {
    const std::uint64_t there = newest_whole_generation(slots);
    if (newest_damaged(slots))
        return "its newest copy, or a copy that may be the newest, fails its checksum, and the older copy "
               "would undo later acknowledged changes (volumes, permissions, epochs)";
    if (told <= there) return {};
    if (told == kMetadataGivenUp)
        return "a recovery from an older copy of the metadata was interrupted, and that copy would undo "
               "later acknowledged changes (volumes, permissions, epochs)";
    return fmt::format(
        "it had reached generation {}, but the newest copy is of generation {} and would undo later "
        "acknowledged changes (volumes, permissions, epochs)",
        told, there);
}

/// An older copy would undo acknowledged changes: deletions, epochs, and volumes together with their blocks.
Result<void> check_metadata(const std::filesystem::path& path, const MetadataSlots& slots, std::uint64_t told,
                            bool accept_loss) {
    const std::optional<std::string> loss = metadata_loss(slots, told);
    if (!loss) return {};
    if (newest_whole_slot(slots) < 0)
        return error(Errc::kCorrupt,
                     "the metadata of the store {} is damaged: no copy of it can be read, so it is not known "
                     "to which volumes the blocks belong, and no recovery is possible; read from replicas on "
                     "other drives, where there are any, or restore the store from an undamaged copy",
                     path.string());
    if (accept_loss) return {};
    return error(Errc::kCorrupt,
                 "the metadata of the store {} is damaged: {}; read from replicas on other drives, where "
                 "there are any, or accept the older copy with `gnstor ssd recover {} --accept-loss --write`",
                 path.string(), *loss, shell_word(path.string()));
}

}  // namespace gnstor::ssd
