// nvme_device.hpp: the interface between the NVMe-oF target and a device that serves NVMe queues.
//
// Implementations: an emulated drive, and a volume that is exported as a namespace (src/gateway). The device
// reports Identify data, features and log pages on its admin queues; this interface does not repeat them.
// Threads: create_queue(), delete_queue() and flush() from any host thread except the device's own; the other
// functions from any thread, without waiting.
#pragma once

#include <gnstor/base/result.hpp>

#include "ssd/queues/nvme_queue.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <string>

namespace gnstor::ssd {

/// How a device interprets the command dwords that the NVM command set leaves unused.
enum class Dialect : std::uint8_t {
    kArray,  ///< docs/design.md, "The command": volume, client, epoch, sectors of one block, write sequence
    kPlain,  ///< not at all: an ordinary host puts hints there (DSM, CDW13), and SLBA is a plain LBA
};

class NvmeDevice {
  public:
    virtual ~NvmeDevice() = default;

    /// A queue pair; `depth` 2 .. 65536, a power of two. Admin queue: id 0. `controller`: id of the
    /// controller that the queue belongs to; a controller begins and ends with its admin queue. 0: no
    /// controller.
    virtual Result<NvmeQueue*> create_queue(std::uint16_t id, std::uint32_t depth, nvme::ClientId client,
                                            Priority priority, bool privileged,
                                            std::uint16_t controller = 0) = 0;
    /// Waits (bounded) until fetched commands have completed and the device touches none of their memory.
    virtual Result<void> delete_queue(NvmeQueue* queue) = 0;
    /// Makes every completed write survive power loss, as a controller shutdown requires. `done` is called
    /// once, on the device's thread, perhaps within this call, and never if the device is destroyed first.
    /// False: the flush failed.
    virtual void flush(std::function<void(bool)> done) = 0;

    /// The default subsystem NQN contains it.
    [[nodiscard]] virtual const std::array<std::uint8_t, 16>& uuid() const = 0;
    [[nodiscard]] virtual const std::string& serial() const = 0;
    /// Whether a timing model delays completions: writes may then complete far out of order.
    [[nodiscard]] virtual bool is_timed() const = 0;
    [[nodiscard]] virtual Dialect dialect() const = 0;

  protected:
    NvmeDevice() = default;
    NvmeDevice(const NvmeDevice&) = delete;
    NvmeDevice& operator=(const NvmeDevice&) = delete;
};

}  // namespace gnstor::ssd
