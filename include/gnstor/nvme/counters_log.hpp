// counters_log.hpp: vendor log page C0h: counters of an SSD and of its NVMe-oF target. Little endian.
//
// Served to the array's admin host only; other hosts get Invalid Log Page. Counters start at 0 when the SSD,
// or the target in front of it, is opened. Read the page whole: Get Log Page with offset 0 and
// sizeof(SsdCountersLog) bytes.
#pragma once

#include <gnstor/nvme/command.hpp>

#include <cstddef>
#include <cstdint>

namespace gnstor::nvme {

inline constexpr std::uint8_t kCountersLogPage = 0xC0;
inline constexpr std::uint32_t kCountersLogVersion = 2;
inline constexpr std::uint32_t kCountersLogOldest = 1;   ///< the oldest version that a reader takes
inline constexpr std::uint32_t kCountersLogWithUse = 2;  ///< from here on with mapped_blocks and spare

struct SsdCountersLog {
    std::uint32_t version;  ///< kCountersLogVersion; new fields are only ever added at the end
    std::uint32_t reserved4;
    std::uint64_t reads, writes, flushes, trims, write_zeroes, refused;  ///< commands
    std::uint64_t media_errors;
    std::uint64_t blocks_read, blocks_written;
    std::uint64_t pages_programmed, gc_pages_copied, syncs;  ///< flash pages, flash syncs
    std::uint64_t scrubbed_pages, scrub_bad_pages, bad_units, lost_blocks;
    // Counted by the target.
    std::uint64_t capsules;
    std::uint64_t connections_accepted, connections_refused, connections_failed, connections_disconnected;
    std::uint64_t keep_alive_expired;
    // Blocks in doubt now (gauge); blocks whose read was answered Doubtful, and with the older version.
    std::uint64_t doubtful_blocks, doubtful_reads, older_reads;
    std::uint64_t young_units;  ///< service units with pages that a power cut could still make doubtful
    /// Volumes with lost records, so that all their older blocks are in doubt (gauge); a volume counts once
    /// for each service unit.
    std::uint64_t doubtful_volumes;
    /// Since version 2. Blocks of 4 KiB that hold data now, as NUSE of Identify Namespace (gauge).
    std::uint64_t mapped_blocks;
    std::uint64_t available_spare_percent;  ///< as Available Spare of SMART / Health Information (gauge)
    std::uint64_t reserved240[34];
};
static_assert(sizeof(SsdCountersLog) == 512, "the log page has one sector, 512 bytes");
static_assert(offsetof(SsdCountersLog, capsules) == 136 && offsetof(SsdCountersLog, mapped_blocks) == 224);

/// Get Log Page of the whole page; the caller sets the data pointer.
inline Command counters_log_command() {
    Command command{};
    command.opcode = static_cast<std::uint8_t>(AdminOpcode::kGetLogPage);
    command.flags = kFlagsSgl;
    command.namespace_id = 0xFFFFFFFFu;
    command.cdw10 = kCountersLogPage | ((sizeof(SsdCountersLog) / 4 - 1) << 16);
    return command;
}

}  // namespace gnstor::nvme
