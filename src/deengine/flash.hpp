// flash.hpp: what deEngine needs of a flash backbone. Implemented in ssd/; pure interface.
//
// NAND's rules; every backbone refuses operations that NAND would refuse
//   * pages are 4 KiB, programmed once and in order within an erase unit, each with a 64-byte out-of-band
//     record;
//   * a page that was never programmed cannot be read (its record reads as erased);
//   * a unit whose program or erase failed is bad: it can be read, but is never programmed or erased again.
// A kill or a power cut may lose programmed pages until a sync of that level has completed.
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

/// kData: a block. kSystem: a page of the journal (journal.hpp). kLost: stands for a block whose contents
/// were lost to a media error: reads fail, but the version's order counts. kLostOrder: the same, but the
/// record was lost too, so its order is only an upper bound (docs/array.md, rule 13). Contents of lost pages:
/// lost_page.hpp.
enum class PageKind : std::uint8_t {
    kErased = 0xFF,
    kData = 1,
    kSystem = 3,
    kLost = 4,
    kLostOrder = 5,
};

/// Out-of-band record of a page. docs/design.md, "Flash". `crc` covers the bytes before it and detects a torn
/// record.
struct PageOob {
    std::uint32_t vba;
    std::uint16_t vid;
    PageKind kind;
    std::uint8_t version;  ///< of this layout: 2
    std::uint64_t sequence;
    std::uint32_t epoch;
    std::uint32_t sector_crc[nvme::kSectorsPerBlock];  ///< CRC-32C of each sector; zero without data
    std::uint32_t unit_serial;  ///< serial number of its unit's opening; later openings have higher ones
    std::uint32_t group;  ///< durability group it was programmed in (durability_groups.hpp), modulo 2^32
    std::uint32_t crc;
};
static_assert(sizeof(PageOob) == 64, "an out-of-band record is 64 bytes");
static_assert(offsetof(PageOob, sector_crc) == 20 && offsetof(PageOob, unit_serial) == 52);

/// kNoRoom: the medium below (a full disk under a sparse store) has no room for the unit now; nothing was
/// programmed, the unit stays good. kCorrected: the data is good, but needed error correction: the unit
/// should be rewritten.
enum class FlashStatus : std::uint8_t { kOk, kProgramFailed, kUncorrectable, kRefused, kNoRoom, kCorrected };
constexpr bool has_data(FlashStatus s) {
    return s == FlashStatus::kOk || s == FlashStatus::kCorrected;
}

/// What programmed data survives after a sync of this level.
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
    /// read() and read_oob() of one page in one call: the read path. Implementations may override it with a
    /// faster one.
    virtual FlashStatus read_page(PageNumber page, std::uint32_t first, std::uint32_t count, std::byte* to,
                                  std::uint32_t* crcs, PageOob& oob) {
        const FlashStatus status = read_oob(page, oob);
        return status == FlashStatus::kOk ? read(page, first, count, to, crcs) : status;
    }
    /// Copy-back: programs `to` with the contents of `from`, without its bytes leaving the drive.
    /// `oob.sector_crc` is kept as given, so that damaged data still fails its CRC; `crcs` gets the CRC-32C
    /// of each sector as copied. kUncorrectable: `from` cannot be read, nothing was programmed.
    virtual FlashStatus copy_back(PageNumber from, PageNumber to, PageOob& oob, std::uint32_t* crcs) = 0;
    /// Erases a unit. Space that the medium below allocated to it stays allocated, as far as that medium
    /// allows.
    virtual FlashStatus erase(std::uint32_t unit) = 0;
    /// Allocates space in the medium below for every page of this unit; programs nothing. kOk: from now on no
    /// program of the unit returns kNoRoom, not even after an erasure. kNoRoom: there is no space now.
    virtual FlashStatus reserve(std::uint32_t /*unit*/) { return FlashStatus::kOk; }
    /// Bad from the factory, or since a program or an erase failed.
    [[nodiscard]] virtual bool is_bad(std::uint32_t) const { return false; }
    /// A hint: this page's record will be read soon.
    virtual void prefetch(PageNumber) const {}
    /// A hint: its data, from this sector on, will be read soon too.
    virtual void prefetch_data(PageNumber, std::uint32_t /*first_sector*/) const {}

    /// Whether what was programmed survives a kill once program() has returned. If so, a record is present
    /// only if its contents are, except where a program of the unit failed (is_bad() says so, also after the
    /// kill).
    [[nodiscard]] virtual bool survives_kill() const { return true; }
    /// Begins to make everything programmed and erased so far survive `level`; at most one at a time. Pages
    /// programmed meanwhile may or may not be included. kOk: begun (or done; sync_poll() tells).
    virtual FlashStatus sync_begin(SyncLevel level) { return sync(level); }
    /// kDone or kFailed once after each sync_begin() that returned kOk, then kIdle. After a failure no later
    /// sync succeeds: the contents of the medium are unknown.
    virtual SyncState sync_poll() { return SyncState::kDone; }
    /// The same, blocking (the backbone bounds the wait).
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
