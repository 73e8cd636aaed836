// flash.hpp: what deEngine needs of a flash backbone. Implemented in ssd/; pure interface.
//
// NAND's rules, and every backbone refuses what NAND refuses
//   * pages are 4 KiB, programmed once and in order within an erase unit, each with a 64-byte out-of-band
//   record;
//   * what was never programmed is not read (its record reads as erased);
//   * a unit whose program or erase failed is bad: it is read, never programmed or erased again.
// What is programmed may be lost by a kill or a power cut until a sync of that strength has ended.
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
    std::uint32_t channels = 1;
    std::uint32_t dies_per_channel = 1;
    /// Consecutive units lie on different dies, consecutive dies on different channels.
    [[nodiscard]] std::uint32_t die_of(std::uint32_t unit) const {
        return unit % (channels * dies_per_channel);
    }
    [[nodiscard]] std::uint32_t channel_of(std::uint32_t unit) const { return unit % channels; }
    [[nodiscard]] std::uint64_t pages() const { return std::uint64_t{units} * pages_per_unit; }
};

/// kData: a block. kSystem: a page of the journal (journal.hpp). kLost: a block
/// whose contents were lost to a media error before this page was programmed; its order counts, its reads
/// fail. kLostOrder: the same, but its order is only a bound, as the record was lost too (ARRAY.md, rule 13).
/// What is programmed in lost pages: lost_page.hpp.
enum class PageKind : std::uint8_t {
    kErased = 0xFF,
    kData = 1,
    kSystem = 3,
    kLost = 4,
    kLostOrder = 5,
};

/// Out-of-band record of a page. DESIGN.md, "Flash". `crc` covers the bytes before it, so a torn record is
/// seen.
struct PageOob {
    std::uint32_t vba;
    std::uint16_t vid;
    PageKind kind;
    std::uint8_t version;  ///< of this layout: 2
    std::uint64_t sequence;
    std::uint32_t epoch;
    std::uint32_t sector_crc[nvme::kSectorsPerBlock];  ///< CRC-32C of each sector; zero without data
    std::uint32_t unit_serial;  ///< of its unit's latest opening: counts openings, so it tells old from new
    std::uint32_t group;        ///< durability group it was programmed in (durability.hpp), modulo 2^32
    std::uint32_t crc;
};
static_assert(sizeof(PageOob) == 64, "an out-of-band record is 64 bytes");
static_assert(offsetof(PageOob, sector_crc) == 20 && offsetof(PageOob, unit_serial) == 52);

/// kNoRoom: what lies below has no room for the unit now (a full disk under a sparse store). Nothing was
/// programmed, the unit is as good as before.
/// kCorrected: the data is good, but the medium needed error correction: its unit should be rewritten.
enum class FlashStatus : std::uint8_t { kOk, kProgramFailed, kUncorrectable, kRefused, kNoRoom, kCorrected };
constexpr bool has_data(FlashStatus s) {
    return s == FlashStatus::kOk || s == FlashStatus::kCorrected;
}

/// What a sync makes what was programmed survive.
enum class SyncLevel : std::uint8_t {
    kKill,   ///< kill -9 of this process
    kPower,  ///< power loss of the host
};
enum class SyncState : std::uint8_t { kIdle, kBusy, kDone, kFailed };

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
    /// Copy-back: programs `to` with the contents of `from`, without its bytes leaving the drive.
    /// `oob.sector_crc` is kept as given (what was damaged stays seen as damaged); `crcs` gets the CRC-32C of
    /// each sector as copied. kUncorrectable: `from` cannot be read, nothing was programmed.
    virtual FlashStatus copy_back(PageNumber from, PageNumber to, PageOob& oob, std::uint32_t* crcs) = 0;
    /// A unit that has room below keeps it, as far as what lies below keeps what it was asked to keep.
    virtual FlashStatus erase(std::uint32_t unit) = 0;
    /// Takes from what lies below the room for every page of this unit, and programs nothing. kOk: no program
    /// of the unit is answered kNoRoom from now on, erased in between or not. kNoRoom: it has none now.
    virtual FlashStatus reserve(std::uint32_t /*unit*/) { return FlashStatus::kOk; }
    /// Bad from the factory, or since a program or an erase failed.
    [[nodiscard]] virtual bool is_bad(std::uint32_t) const { return false; }
    /// A hint: this page's record will be read soon.
    virtual void prefetch(PageNumber) const {}
    /// A hint: so will its data, from this sector on.
    virtual void prefetch_data(PageNumber, std::uint32_t /*first_sector*/) const {}

    /// Strongest level that a program has reached when program() returns; nothing if it may be lost by a
    /// kill. Where it survives one, a record is there only behind the contents that it tells, unless is_bad()
    /// says also after the kill that a program of the unit failed.
    [[nodiscard]] virtual bool survives_kill() const { return true; }
    /// Begins to make everything programmed and erased so far survive `level`; at most one at a time, and
    /// what is programmed meanwhile may or may not be included. kOk: begun (or done; sync_poll() says).
    virtual FlashStatus sync_begin(SyncLevel level) { return sync(level); }
    /// kDone or kFailed once after each sync_begin() that returned kOk, then kIdle. After a failure no later
    /// sync succeeds: what the medium holds is not known any more.
    virtual SyncState sync_poll() { return SyncState::kDone; }
    /// The same, waiting (bounded by the backbone).
    virtual FlashStatus sync(SyncLevel level) = 0;
    FlashStatus sync() { return sync(SyncLevel::kPower); }
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
