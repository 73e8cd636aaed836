// aligned_buffer.hpp: zeroed memory for O_DIRECT: aligned to 4096 bytes. Move only.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

namespace gnstor::ssd {

class AlignedBuffer {
  public:
    /// `bytes`: a multiple of 4096.
    explicit AlignedBuffer(std::size_t bytes)
        : memory_(static_cast<std::byte*>(std::aligned_alloc(4096, bytes))) {
        if (memory_ == nullptr) throw std::bad_alloc();
        std::memset(memory_.get(), 0, bytes);
    }
    [[nodiscard]] std::byte* data() const { return memory_.get(); }

  private:
    struct Free {
        void operator()(std::byte* p) const { std::free(p); }
    };
    std::unique_ptr<std::byte, Free> memory_;
};

}  // namespace gnstor::ssd
