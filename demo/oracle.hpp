// oracle.hpp: what the system's own tools say about the input: the answers that the kernel's are compared
// with.
#pragma once

#include <gnstor/base/result.hpp>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace gnstor::demo {

/// Byte offsets of `pattern` as `grep -obUaF` prints them.
Result<std::vector<std::uint64_t>> grep_offsets(const std::filesystem::path& file,
                                                const std::string& pattern);

/// CRC-32C of each 4 KiB block of the file, the last padded with zeroes; computed by the CPU.
Result<std::vector<std::uint32_t>> block_crcs(const std::filesystem::path& file);

/// Of all occurrences, in order, those that grep reports: an occurrence that overlaps the one reported before
/// is passed over.
std::vector<std::uint64_t> without_overlaps(std::vector<std::uint64_t> sorted, std::size_t pattern_bytes);

}  // namespace gnstor::demo
