// null_flash.hpp: flash for measuring what lies above it: keeps every page's record, moves no bytes of blocks
// and sums none. Pages of the journal are kept whole, for a mount reads them.
//
// What is read of a block is whatever the destination held, and the CRCs given are the record's own. One
// owner thread.
#pragma once

#include <gnstor/base/crc32c.hpp>

#include "base/large_pages.hpp"
#include "deengine/flash.hpp"

#include <array>
#include <cstring>
#include <unordered_map>
#include <vector>

namespace gnstor::bench {

class NullFlash final : public deengine::Flash {
  public:
    using PageNumber = deengine::PageNumber;
    using PageOob = deengine::PageOob;
    using Status = deengine::FlashStatus;

    explicit NullFlash(deengine::FlashGeometry geometry)
        : geometry_(geometry), records_(geometry.pages(), erased()), next_(geometry.units, 0) {}

    [[nodiscard]] deengine::FlashGeometry geometry() const override { return geometry_; }
    Status program(PageNumber page, const std::byte* data, PageOob& oob) override {
        std::memset(oob.sector_crc, 0, sizeof(oob.sector_crc));
        if (oob.kind == deengine::PageKind::kSystem)
            copy_sectors_crc32c(system_[page].data(), data, nvme::kSectorsPerBlock, oob.sector_crc);
        return store(page, oob);
    }
    Status read(PageNumber page, std::uint32_t first, std::uint32_t count, std::byte* to,
                std::uint32_t* crcs) override {
        if (records_[page].kind == deengine::PageKind::kSystem)
            std::memcpy(to, system_[page].data() + std::size_t{first} * nvme::kSectorBytes,
                        std::size_t{count} * nvme::kSectorBytes);
        std::memcpy(crcs, records_[page].sector_crc + first, count * sizeof(*crcs));
        return Status::kOk;
    }
    Status read_oob(PageNumber page, PageOob& oob) override {
        oob = records_[page];
        return Status::kOk;
    }
    Status copy_back(PageNumber from, PageNumber to, PageOob& oob, std::uint32_t* crcs) override {
        std::memcpy(crcs, records_[from].sector_crc, sizeof(oob.sector_crc));
        return store(to, oob);
    }
    Status erase(std::uint32_t unit) override {
        for (std::uint32_t i = 0; i < geometry_.pages_per_unit; ++i)
            records_[std::size_t{unit} * geometry_.pages_per_unit + i] = erased();
        for (std::uint32_t i = 0; !system_.empty() && i < next_[unit]; ++i)
            system_.erase(unit * geometry_.pages_per_unit + i);
        next_[unit] = 0;
        return Status::kOk;
    }
    void prefetch(PageNumber page) const override { __builtin_prefetch(&records_[page]); }
    Status sync(deengine::SyncLevel) override { return Status::kOk; }

  private:
    static PageOob erased() {
        PageOob oob{};
        oob.kind = deengine::PageKind::kErased;
        return oob;
    }
    Status store(PageNumber page, const PageOob& oob) {
        std::uint32_t& next = next_[page / geometry_.pages_per_unit];
        if (page % geometry_.pages_per_unit != next) return Status::kRefused;
        ++next;
        records_[page] = oob;
        return Status::kOk;
    }

    const deengine::FlashGeometry geometry_;
    std::vector<PageOob, LargePages<PageOob>> records_;
    std::vector<std::uint32_t> next_;
    std::unordered_map<PageNumber, std::array<std::byte, nvme::kBlockBytes>> system_;
};

}  // namespace gnstor::bench
