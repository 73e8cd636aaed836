// record_entries.hpp: the daemon's records as keys and values, for a store of such (etcd_store.hpp). Pure.
//
// Keys: term, epoch_floor, map, told; clients/ID, volumes/VID, creating/VID, retired/VID (five decimal digits);
// ssds/UUID (32 hexadecimal digits). A value is a head and a payload, little endian:
//   byte 0     version of the format
//   bytes 1-4  CRC-32C of the key, a zero byte and the payload: a value under another key is damaged, too
//   byte 5 on  payload: a number of 8 bytes; the map and a volume's record as SSDs get them; of a client its generation
//              (4 bytes), whether it was removed (1 byte) and its name; of a creation nothing
#pragma once

#include "daemon/records/records.hpp"

#include <map>
#include <optional>
#include <string>

namespace gnstor::daemon {

inline constexpr std::uint8_t kEntryVersion = 1;

using RecordEntries = std::map<std::string, std::string>;
/// nullopt: the key is deleted.
using EntryChanges = std::map<std::string, std::optional<std::string>>;

/// What apply() does, on entries; each key once.
[[nodiscard]] EntryChanges entries_of(const Change& change);

/// kCorrupt: an entry is damaged, unknown or contradicts another. kUnsupported: a newer gnstord wrote it. The error says
/// which and why.
[[nodiscard]] Result<Records> records_of(const RecordEntries& entries);

}  // namespace gnstor::daemon
