// loss_record.hpp: what a gateway leaves for the one that is started after it: whether answers were given
// that no flush has settled, and which SSDs there were. Pure.
//
// A gateway that was killed may have answered writes that only SSDs' volatile caches hold. Its successor goes
// on with this record where the predecessor's watch stopped (loss_watch.hpp), so that SSDs which are lost in
// between are noticed. Invariants
//   * an answered change lies under a record that says `dirty`, with the version of the map it was answered
//   under: the record was stable before the answer;
//   * so a record may say more than is true, never less; it is brought up to date at leisure;
//   * what is torn, damaged, or of another format decodes to an error, and counts as a loss.
#pragma once

#include <gnstor/base/result.hpp>
#include <gnstor/placement/placement.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace gnstor::gateway {

struct LossRecord {
    std::array<std::uint8_t, 16> volume{};  ///< Gateway::uuid(): of one life of a volume
    placement::ArrayMap map{};
    std::uint64_t gone = 0;      ///< slots that lost their SSD before `map`, since the last flush
    std::uint32_t fewest = ~0u;  ///< SSDs of an earlier map, since then
    bool dirty = false;          ///< there may be answered changes that no flush has settled
    bool lost = false;           ///< some of them may be lost
    bool told = false;           ///< of `lost`: a flush of a host has failed for it
};

/// One write of this size, in place: the medium tears it or not.
inline constexpr std::size_t kLossRecordBytes = 4096;
using LossRecordBytes = std::array<std::byte, kLossRecordBytes>;

[[nodiscard]] LossRecordBytes encode_loss_record(const LossRecord& record);
/// kCorrupt: what it says is not known. kUnsupported: another format's.
[[nodiscard]] Result<LossRecord> decode_loss_record(std::span<const std::byte> bytes);

/// Whether two say the same.
[[nodiscard]] bool same(const LossRecord& a, const LossRecord& b);

}  // namespace gnstor::gateway
