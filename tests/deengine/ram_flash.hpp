// ram_flash.hpp: a deterministic flash and metadata store in memory that enforce NAND's rules and fail on
// demand.
//
// Pages are programmed in order, once, into erased units; anything else is refused and counted in
// `violations`. Values: a copy is the state at that moment, which is how a power cut is made: `on_step` sees
// the state before and after each program, erase and metadata store, and, for a program, torn in two ways
// (data without record, data with half a record).
#pragma once

#include <gnstor/base/crc32c.hpp>

#include "deengine/flash.hpp"

#include <array>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <vector>

namespace gnstor::deengine::test {

enum class Step { kBeforeProgram, kTornNoRecord, kTornHalfRecord, kProgrammed, kErased, kStored };

class RamFlash : public Flash {
  public:
    RamFlash(std::uint32_t units, std::uint32_t pages_per_unit)
        : geometry_{units, pages_per_unit}, pages_(geometry_.pages()), next_(units, 0) {}

    [[nodiscard]] FlashGeometry geometry() const override { return geometry_; }

    FlashStatus program(PageNumber page, const std::byte* data, PageOob& oob) override {
        const std::uint32_t unit = page / geometry_.pages_per_unit;
        if (unit >= geometry_.units || page % geometry_.pages_per_unit != next_[unit] ||
            failed.contains(unit)) {
            ++violations;
            return FlashStatus::kRefused;
        }
        if (const FlashStatus room = reserve(unit); room != FlashStatus::kOk) return room;
        ++programs;
        step(Step::kBeforeProgram);
        Page& p = pages_[page];
        std::memset(oob.sector_crc, 0, sizeof(oob.sector_crc));
        if (data != nullptr) {
            p.data.assign(data, data + nvme::kBlockBytes);
            for (std::uint32_t s = 0; s < nvme::kSectorsPerBlock; ++s)
                oob.sector_crc[s] = crc32c(p.data.data() + s * nvme::kSectorBytes, nvme::kSectorBytes);
        } else {
            p.data.clear();
        }
        oob.crc = record_crc(oob, page);
        step(Step::kTornNoRecord);
        ++next_[unit];
        p.programmed = true;
        p.oob = oob;
        if (on_step) {
            std::memset(reinterpret_cast<std::byte*>(&p.oob) + 32, 0xFF, 32);
            step(Step::kTornHalfRecord);
            p.oob = oob;
        }
        if (const auto fault = program_faults.find(programs); fault != program_faults.end()) {
            // A failed program leaves anything: a good record over half the data, or no readable record.
            if (fault->second == Fault::kBadRecord) p.oob.crc ^= 1;
            if (fault->second == Fault::kBadData && !p.data.empty()) p.data[100] ^= std::byte{1};
            failed.insert(unit);
            return FlashStatus::kProgramFailed;
        }
        step(Step::kProgrammed);
        return FlashStatus::kOk;
    }

    FlashStatus reserve(std::uint32_t unit) override {
        ++reserves;
        if (without_room.contains(unit)) return FlashStatus::kNoRoom;
        if (with_room.contains(unit)) return FlashStatus::kOk;
        if (with_room.size() >= room_units) return FlashStatus::kNoRoom;
        with_room.insert(unit);
        return FlashStatus::kOk;
    }

    FlashStatus copy_back(PageNumber from, PageNumber to, PageOob& oob, std::uint32_t* crcs) override {
        const Page& source = pages_.at(from);
        if (!source.programmed || source.data.empty()) {
            ++violations;
            return FlashStatus::kRefused;
        }
        if (unreadable.contains(from)) return FlashStatus::kUncorrectable;
        const PageOob kept = oob;
        const FlashStatus status = program(to, source.data.data(), oob);
        std::memcpy(crcs, oob.sector_crc, sizeof(oob.sector_crc));  // of the bytes as copied
        std::memcpy(oob.sector_crc, kept.sector_crc, sizeof(oob.sector_crc));
        oob.crc = record_crc(oob, to);
        if (status == FlashStatus::kOk) pages_.at(to).oob = oob;
        return status;
    }

    FlashStatus read(PageNumber page, std::uint32_t first, std::uint32_t count, std::byte* to,
                     std::uint32_t* crcs) override {
        const Page& p = pages_.at(page);
        if (!p.programmed || p.data.empty() || first + count > nvme::kSectorsPerBlock) {
            ++violations;
            return FlashStatus::kRefused;
        }
        if (unreadable.contains(page)) return FlashStatus::kUncorrectable;
        std::memcpy(to, p.data.data() + first * nvme::kSectorBytes, std::size_t{count} * nvme::kSectorBytes);
        for (std::uint32_t s = 0; s < count; ++s)
            crcs[s] = crc32c(to + s * nvme::kSectorBytes, nvme::kSectorBytes);
        return corrected.contains(page) ? FlashStatus::kCorrected : FlashStatus::kOk;
    }

    FlashStatus read_oob(PageNumber page, PageOob& oob) override {
        ++record_reads;
        const Page& p = pages_.at(page);
        if (!p.programmed) {
            std::memset(&oob, 0xFF, sizeof(oob));
            return FlashStatus::kOk;
        }
        oob = p.oob;
        return record_crc(oob, page) == oob.crc ? FlashStatus::kOk : FlashStatus::kUncorrectable;
    }

    FlashStatus erase(std::uint32_t unit) override {
        ++erases;
        if (failed.contains(unit)) ++violations;
        if (erase_faults.contains(erases)) {
            failed.insert(unit);
            return FlashStatus::kProgramFailed;
        }
        for (std::uint32_t i = 0; i < geometry_.pages_per_unit; ++i) {
            const PageNumber page = unit * geometry_.pages_per_unit + i;
            pages_[page].programmed = false;
            pages_[page].oob = {};
            pages_[page].data.clear();  // and keeps its memory for the next program
            unreadable.erase(page);
            corrected.erase(page);
        }
        next_[unit] = 0;
        step(Step::kErased);
        return FlashStatus::kOk;
    }

    using Flash::sync;
    FlashStatus sync(SyncLevel) override {
        ++syncs;
        return fail_sync ? FlashStatus::kRefused : FlashStatus::kOk;
    }

    /// Flips one bit of a page's data (or of its record).
    void flip_data(PageNumber page, std::uint32_t byte) { pages_.at(page).data.at(byte) ^= std::byte{0x10}; }
    void flip_record(PageNumber page) { pages_.at(page).oob.sequence ^= 1; }
    /// The record of one page over that of another.
    void copy_record(PageNumber from, PageNumber to) { pages_.at(to).oob = pages_.at(from).oob; }
    /// Nothing is left of its record.
    void lose_record(PageNumber page) {
        pages_.at(page) = Page{};
        std::uint32_t& next = next_[page / geometry_.pages_per_unit];
        const PageNumber first = page - page % geometry_.pages_per_unit;
        while (next > 0 && !pages_[first + next - 1].programmed) --next;
    }
    /// The newest page with this key, by scan; kNoPage if none.
    [[nodiscard]] PageNumber find_last(nvme::VolumeId vid, nvme::BlockAddress vba) const {
        PageNumber best = kNoPage;
        for (PageNumber p = 0; p < pages_.size(); ++p)
            if (pages_[p].programmed && pages_[p].oob.vid == vid && pages_[p].oob.vba == vba &&
                (best == kNoPage || pages_[p].oob.sequence >= pages_[best].oob.sequence))
                best = p;
        return best;
    }
    /// The unit of the newest page of the journal.
    [[nodiscard]] std::uint32_t journal_unit() const {
        PageNumber newest = kNoPage;
        for (PageNumber p = 0; p < pages_.size(); ++p)
            if (pages_[p].programmed && pages_[p].oob.kind == PageKind::kSystem &&
                (newest == kNoPage || pages_[p].oob.sequence > pages_[newest].oob.sequence))
                newest = p;
        return newest == kNoPage ? kNoPage : newest / geometry_.pages_per_unit;
    }
    [[nodiscard]] std::uint32_t programmed(std::uint32_t unit) const { return next_[unit]; }
    /// A copy without hooks or faults: what a new process finds.
    [[nodiscard]] RamFlash image() const {
        RamFlash copy(*this);
        copy.on_step = nullptr;
        copy.program_faults.clear();
        copy.erase_faults.clear();
        return copy;
    }

    enum class Fault { kBadRecord, kBadData, kWhole };  ///< what the failed program leaves
    std::function<void(Step)> on_step;
    std::map<std::uint64_t, Fault> program_faults;  ///< by number of program, from 1
    std::set<std::uint64_t> erase_faults;           ///< by number of erasure, from 1
    std::set<PageNumber> unreadable;                ///< until they are erased
    std::set<PageNumber> corrected;                 ///< whose data needs correction to be read
    /// Units whose program or erasure failed: to use one again is a violation. It answers is_bad() with
    /// false, as a flash that forgets in a restart: the drive has to remember.
    std::set<std::uint32_t> failed;
    std::size_t room_units = ~std::size_t{0};  ///< units that what lies below has room for at once
    std::set<std::uint32_t> without_room;      ///< units of which no page gets room any more
    std::set<std::uint32_t> with_room;
    bool fail_sync = false;
    std::uint64_t programs = 0, erases = 0, syncs = 0, reserves = 0, record_reads = 0, violations = 0;

  private:
    struct Page {
        bool programmed = false;
        PageOob oob{};
        std::vector<std::byte> data;  ///< empty: tombstone or erased
    };
    /// A record proves its page, as in a store (docs/store-format.md, "Records and pages").
    static std::uint32_t record_crc(const PageOob& oob, PageNumber page) {
        return crc32c(&oob, offsetof(PageOob, crc), crc32c(&page, sizeof(page)));
    }
    void step(Step s) {
        if (on_step) on_step(s);
    }
    FlashGeometry geometry_;
    std::vector<Page> pages_;
    std::vector<std::uint32_t> next_;
};

class RamMetadata : public MetadataStore {
  public:
    [[nodiscard]] std::vector<std::byte> load() override { return blob; }
    [[nodiscard]] bool store(std::span<const std::byte> bytes) override {
        ++stores;
        if (fail) return false;
        blob.assign(bytes.begin(), bytes.end());
        if (on_store) on_store();
        return true;
    }
    [[nodiscard]] std::size_t capacity() const override { return limit; }

    std::vector<std::byte> blob;
    std::function<void()> on_store;
    std::size_t limit = 1 << 20;
    bool fail = false;
    std::uint64_t stores = 0;
};

}  // namespace gnstor::deengine::test
