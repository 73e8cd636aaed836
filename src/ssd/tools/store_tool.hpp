// store_tool.hpp: inspects a store file, resets its term, and corrupts it on purpose. Offline: the store must
// not be in use.
//
// Used by `gnstor ssd info`, which writes nothing, by `gnstor ssd reset-term`, and by `--corrupt` (the demo
// must catch one flipped byte). Host code, any thread.
#pragma once

#include <gnstor/base/result.hpp>
#include <gnstor/nvme/command.hpp>

#include "ssd/flash/store_format.hpp"

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace gnstor::ssd {

/// Contents of a store's head, and its pages by kind.
struct StoreFacts {
    std::uint32_t format_version;
    std::array<std::uint8_t, 16> drive_uuid;
    std::array<std::uint8_t, 16> incarnation;
    BootMode mode;    ///< of the last opening
    BootState state;  ///< how the last use ended
    bool trusted;     ///< whether a drive that is started now would keep the contents
    std::string serial;
    deengine::FlashGeometry geometry;
    std::uint64_t capacity_bytes;
    std::uint64_t file_bytes;
    std::uint32_t over_provisioning_percent;
    std::uint64_t metadata_bytes;  ///< of the newest blob; 0: none
    std::uint32_t service_units;
    std::uint64_t data_pages;       ///< programmed with data, superseded ones included
    std::uint64_t system_pages;     ///< of the journal
    std::uint64_t lost_pages;       ///< recorded as lost contents of a block
    std::uint64_t damaged_records;  ///< programmed, but the record's own CRC fails
    std::uint64_t erased_pages;
};
/// Reads the head and every record. Errors as StoreView::open; kCorrupt if no boot record is whole.
Result<StoreFacts> inspect_store(const std::filesystem::path& path);
/// Sets the newest term that the drive has seen (nvme/fencing.hpp), which may lower it, so that the drive
/// obeys a gnstord of that term again; returns the term before. kNotFound: no gnstord has ever contacted this
/// store; kState: it may lack acknowledged writes; a drive that is started on it sets its contents aside.
Result<std::uint64_t> reset_term(const std::filesystem::path& path, std::uint64_t term);
/// Text for users, one fact per line.
std::string describe(const StoreFacts& facts);

/// Selects the pages that may be corrupted.
using PagePredicate = std::function<bool(deengine::PageNumber page, const deengine::PageOob& oob)>;

struct CorruptedByte {
    deengine::PageNumber page;
    deengine::PageOob oob;
    std::uint64_t file_offset;
    std::uint8_t before;
    std::uint8_t after;
};
/// Flips all bits of byte `byte_in_page` of the *newest* data page that `which` accepts (by epoch and
/// sequence, then page number), and leaves every CRC unchanged. kNotFound: no page was accepted.
Result<CorruptedByte> corrupt_byte(const std::filesystem::path& path, const PagePredicate& which,
                                   std::uint32_t byte_in_page);
/// The same for the current page of one block of one volume.
Result<CorruptedByte> corrupt_block(const std::filesystem::path& path, nvme::VolumeId volume,
                                    nvme::BlockAddress block, std::uint32_t byte_in_page);
/// The same for the n-th programmed data page of the store, from 0.
Result<CorruptedByte> corrupt_nth_page(const std::filesystem::path& path, std::uint64_t n,
                                       std::uint32_t byte_in_page);

}  // namespace gnstor::ssd
