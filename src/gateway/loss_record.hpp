// loss_record.hpp: what a gateway stores for its successor: whether it gave answers that no flush has
// covered, and which SSDs the map had. Pure.
//
// A gateway that was killed may have answered writes that only the SSDs' volatile caches hold. With this
// record its successor continues the predecessor's watch (write_loss_tracker.hpp), and so notices SSDs that
// were lost in between.
// Invariants
//   * before a change is answered, a record that says `dirty`, with the map version of the answer, is stable;
//   * so a record may overstate what is at risk, never understate it; it is corrected when the gateway is
//     idle;
//   * a torn or damaged record, or one of another format, decodes to an error, and counts as a loss.
#pragma once

#include <gnstor/base/result.hpp>
#include <gnstor/placement/placement.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace gnstor::gateway {

struct LossRecord {
    std::array<std::uint8_t, 16> volume{};  ///< Gateway::uuid(): one life of a volume
    placement::ArrayMap map{};
    std::uint64_t gone = 0;      ///< slots that lost their SSD before `map`, since the last flush
    std::uint32_t fewest = ~0u;  ///< smallest number of SSDs in an earlier map, since the last flush
    bool dirty = false;          ///< there may be answered changes that no flush has covered
    bool lost = false;           ///< some of them may be lost
    bool told = false;           ///< a host's flush has failed because of `lost`
};

/// Written in place by one write of this size, which a power cut may tear.
inline constexpr std::size_t kLossRecordBytes = 4096;
using LossRecordBytes = std::array<std::byte, kLossRecordBytes>;

[[nodiscard]] LossRecordBytes encode_loss_record(const LossRecord& record);
/// kCorrupt: unreadable. kUnsupported: another format.
[[nodiscard]] Result<LossRecord> decode_loss_record(std::span<const std::byte> bytes);

/// Whether two records have equal content.
[[nodiscard]] bool same(const LossRecord& a, const LossRecord& b);

}  // namespace gnstor::gateway
