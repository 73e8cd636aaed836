// flash.hpp: what deEngine needs of a flash backbone. Implemented in ssd/; pure interface.
//
// Pages are 4 KiB, programmed once and in order within an erase unit, each with a 64-byte out-of-band record.
// One owner thread.
#pragma once

#include <gnstor/nvme/command.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace gnstor::deengine {

using PageNumber = std::uint32_t;
inline constexpr PageNumber kNoPage = 0xFFFFFFFFu;

struct FlashGeometry {
    std::uint32_t units;  ///< erase units
    std::uint32_t pages_per_unit;
    [[nodiscard]] std::uint64_t pages() const { return std::uint64_t{units} * pages_per_unit; }
};

enum class PageKind : std::uint8_t { kErased = 0xFF, kData = 1, kTombstone = 2 };

/// Out-of-band record of a page. DESIGN.md, "Flash". `crc` covers the bytes before it, so a torn record is
/// seen.
struct PageOob {
    std::uint32_t vba;
    std::uint16_t vid;
    PageKind kind;
    std::uint8_t version;  ///< of this layout: 1
    std::uint64_t sequence;
    std::uint32_t epoch;
    std::uint32_t sector_crc[nvme::kSectorsPerBlock];  ///< CRC-32C of each sector; zero for a tombstone
    std::uint32_t reserved[2];
    std::uint32_t crc;
};
static_assert(sizeof(PageOob) == 64, "an out-of-band record is 64 bytes");

/// kNoRoom: what lies below has no room for the unit now (a full disk under a sparse store). Nothing was
/// programmed, the unit is as good as before.
enum class FlashStatus : std::uint8_t { kOk, kProgramFailed, kUncorrectable, kRefused, kNoRoom };

class Flash {
  public:
    virtual ~Flash() = default;
    [[nodiscard]] virtual FlashGeometry geometry() const = 0;
    /// Programs the next page of its unit. Copies `data` (4096 bytes; null for a tombstone) and fills in
    /// `oob.sector_crc` from the bytes it copied, and `oob.crc`. Refused: out of order, twice, bad unit.
    virtual FlashStatus program(PageNumber page, const std::byte* data, PageOob& oob) = 0;
    /// Copies sectors first .. first + count - 1 to `to` and gives the CRC-32C of each as copied.
    virtual FlashStatus read(PageNumber page, std::uint32_t first, std::uint32_t count, std::byte* to,
                             std::uint32_t* crcs) = 0;
    /// The record of a page; kErased kind if never programmed. kUncorrectable if its own CRC fails.
    virtual FlashStatus read_oob(PageNumber page, PageOob& oob) = 0;
    /// read() and read_oob() of one page in one call: the read path. Implementations may do better than the
    /// default.
    virtual FlashStatus read_page(PageNumber page, std::uint32_t first, std::uint32_t count, std::byte* to,
                                  std::uint32_t* crcs, PageOob& oob) {
        const FlashStatus status = read_oob(page, oob);
        return status == FlashStatus::kOk ? read(page, first, count, to, crcs) : status;
    }
    virtual FlashStatus erase(std::uint32_t unit) = 0;
    /// Everything programmed so far is durable on return (a no-op where it always is).
    virtual FlashStatus sync() = 0;
};

/// Small metadata that must survive: one blob, replaced atomically (two copies with generation and CRC).
class MetadataStore {
  public:
    virtual ~MetadataStore() = default;
    /// Empty if never stored.
    [[nodiscard]] virtual std::vector<std::byte> load() = 0;
    /// Durable on return; false if it could not be (the old one stands).
    [[nodiscard]] virtual bool store(std::span<const std::byte> blob) = 0;
    [[nodiscard]] virtual std::size_t capacity() const = 0;
};

}  // namespace gnstor::deengine
