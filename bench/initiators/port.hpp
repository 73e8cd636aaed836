// port.hpp: what a CPU thread that initiates I/O needs: hand requests in, take answers out. Host; one thread
// a port.
#pragma once

#include <gnstor/nvme/command.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace gnstor::bench {

/// A read or write of whole blocks within one chunk, or a read of sectors of one block.
struct Request {
    nvme::BlockAddress block = 0;
    std::uint16_t blocks = 1;
    std::uint8_t first_sector = 0;
    std::uint8_t sectors = 0;  ///< 0: whole blocks
    bool write = false;
    std::uint32_t tag = 0;        ///< comes back with the answer
    std::byte* buffer = nullptr;  ///< registered
    std::uint8_t slot = 0xFF;     ///< where the block's only replica is known to lie; 0xFF: to be found
    std::uint32_t lkey = 0;  ///< of a write of one block from other memory than the port's; 0: the port's

    [[nodiscard]] std::uint32_t bytes() const {
        return sectors != 0 ? sectors * nvme::kSectorBytes : std::uint32_t{blocks} * nvme::kBlockBytes;
    }
};

struct Answer {
    std::uint32_t tag;
    nvme::Status status;
};

class Port {
  public:
    virtual ~Port() = default;
    /// Takes the request. False: no room; come again after answers.
    [[nodiscard]] virtual bool post(const Request& request) = 0;
    /// What was posted is on its way when this returns.
    virtual void flush() = 0;
    /// Answers that are there; never waits.
    virtual std::uint32_t poll(std::span<Answer> answers) = 0;
    /// Commands that this port had SSDs execute.
    [[nodiscard]] virtual std::uint64_t commands() const = 0;
};

}  // namespace gnstor::bench
