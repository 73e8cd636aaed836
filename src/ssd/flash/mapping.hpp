// mapping.hpp: owns one mmap'ed range; unmaps it at the end. Move only.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <utility>

namespace gnstor::ssd {

class Mapping {
  public:
    Mapping() = default;
    /// Takes over `bytes` bytes at `address`, mapped by the caller.
    Mapping(void* address, std::size_t bytes) : address_(static_cast<std::byte*>(address)), bytes_(bytes) {}
    Mapping(Mapping&& o) noexcept
        : address_(std::exchange(o.address_, nullptr)), bytes_(std::exchange(o.bytes_, 0)) {}
    Mapping& operator=(Mapping&& o) noexcept {
        std::swap(address_, o.address_);
        std::swap(bytes_, o.bytes_);
        return *this;
    }
    ~Mapping() {
        if (address_ != nullptr) ::munmap(address_, bytes_);
    }
    [[nodiscard]] std::byte* data() const { return address_; }
    [[nodiscard]] std::size_t size() const { return bytes_; }

  private:
    std::byte* address_ = nullptr;
    std::size_t bytes_ = 0;
};

}  // namespace gnstor::ssd
