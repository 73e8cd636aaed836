// memory_flash.hpp: flash and metadata in this process's memory; gone when the process ends.
//
// The pages are mapped without reservation: a drive of 16 GiB costs nothing until it is written
// (memory_pages.hpp). One owner thread for each flash (the whole, or each part of a MemoryStore).
#pragma once

#include <gnstor/base/result.hpp>

#include "ssd/flash/flash_array.hpp"
#include "ssd/flash/memory/memory_pages.hpp"
#include "ssd/flash/store.hpp"

#include <memory>

namespace gnstor::ssd {

class MemoryFlash final : public FlashArray {
  public:
    static Result<std::unique_ptr<MemoryFlash>> create(deengine::FlashGeometry geometry,
                                                       CopiesPastCaches past_caches = {});
    /// A range of the same pages, as a separate flash; it keeps them alive.
    [[nodiscard]] std::unique_ptr<MemoryFlash> part(UnitRange range) const;
    /// Populates `bytes` bytes of its pages now, in the order in which units are opened. False: no memory.
    [[nodiscard]] bool give_memory(std::uint64_t bytes) { return pages_->give_first(range(), bytes); }

    /// Reserves nothing: pages are mapped when a unit is programmed; reserving would make the kernel clear
    /// pages of units that may never be programmed.
    deengine::FlashStatus reserve(std::uint32_t) override { return deengine::FlashStatus::kOk; }

  protected:
    bool reserve_unit(std::uint32_t unit) override { return pages_->open_unit(range_, unit); }

  private:
    MemoryFlash(std::shared_ptr<MemoryPages> pages, deengine::FlashGeometry geometry, UnitRange range);
    std::shared_ptr<MemoryPages> pages_;
    MemoryPages::Range& range_;
};

class MemoryMetadata final : public deengine::MetadataStore {
  public:
    explicit MemoryMetadata(std::size_t capacity) : capacity_(capacity) {}
    [[nodiscard]] std::vector<std::byte> load() override { return blob_; }
    [[nodiscard]] bool store(std::span<const std::byte> blob) override {
        if (blob.size() > capacity_) return false;
        blob_.assign(blob.begin(), blob.end());
        return true;
    }
    [[nodiscard]] std::size_t capacity() const override { return capacity_; }

  private:
    std::size_t capacity_;
    std::vector<std::byte> blob_;
};

/// A drive's backbone in memory. Each object is a new incarnation, which starts empty.
class MemoryStore final : public Store {
  public:
    /// Generates `identity.incarnation` and, if missing, drive UUID and serial number.
    static Result<std::unique_ptr<MemoryStore>> create(deengine::FlashGeometry geometry,
                                                       StoreIdentity identity, MemoryUse use = {});
    [[nodiscard]] StoreIdentity identity() const override { return identity_; }
    [[nodiscard]] deengine::MetadataStore& metadata() override { return metadata_; }
    Result<FlashParts> parts(std::uint32_t count) override;
    [[nodiscard]] std::string describe() const override { return "memory"; }

  private:
    MemoryStore(std::unique_ptr<MemoryFlash> flash, StoreIdentity identity, std::uint64_t at_opening);
    std::unique_ptr<MemoryFlash> flash_;
    const std::uint64_t at_opening_;
    StoreIdentity identity_;
    MemoryMetadata metadata_{kStoreMetadataBytes};
};

}  // namespace gnstor::ssd
