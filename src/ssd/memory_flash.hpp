// memory_flash.hpp: flash and metadata in this process's memory; gone when the process ends.
//
// The pages are mapped without reservation: a drive of 16 GiB costs nothing until it is written. One owner
// thread.
#pragma once

#include <gnstor/base/result.hpp>

#include "ssd/flash_array.hpp"
#include "ssd/mapping.hpp"

#include <memory>

namespace gnstor::ssd {

class MemoryFlash final : public FlashArray {
  public:
    static Result<std::unique_ptr<MemoryFlash>> create(deengine::FlashGeometry geometry);

  protected:
    void release_unit(std::uint32_t unit) override;

  private:
    explicit MemoryFlash(Mapping mapping) : mapping_(std::move(mapping)) {}
    Mapping mapping_;
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

}  // namespace gnstor::ssd
