// nvme_device.hpp: what the fabric needs of anything that answers NVMe commands: queues, and a few facts.
//
// A drive is one; a volume that is served as a namespace (src/gateway) is another. What it says in Identify,
// its features and its log pages it says itself, on its admin queues: nothing here repeats them.
// Threads: create_queue(), delete_queue() and flush() from any host thread that is not the device's own; the
// facts from any thread, without waiting.
#pragma once

#include <gnstor/base/result.hpp>

#include "ssd/queues/nvme_queue.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <string>

namespace gnstor::ssd {

/// What the dwords mean that the NVM command set leaves free.
enum class Dialect : std::uint8_t {
    kArray,  ///< DESIGN.md, "The command": volume, client, epoch, sectors of one block, write sequence
    kPlain,  ///< nothing: an ordinary host's reads carry its hints there (DSM, CDW13), its SLBA is an LBA
};

class NvmeDevice {
  public:
    virtual ~NvmeDevice() = default;

    /// A queue pair; `depth` 2 .. 65536, a power of two. Admin queue: id 0. `controller`: whose queue it is;
    /// a controller begins with its admin queue and ends with it. Queues of nobody's have 0.
    virtual Result<NvmeQueue*> create_queue(std::uint16_t id, std::uint32_t depth, nvme::ClientId client,
                                            Priority priority, bool privileged,
                                            std::uint16_t controller = 0) = 0;
    /// Waits (bounded) until fetched commands have completed and the device touches no memory named by them.
    virtual Result<void> delete_queue(NvmeQueue* queue) = 0;
    /// Makes all that was answered survive power loss, as a host wants it that shuts its controller down.
    /// `done` is called once, on the device's thread, perhaps within this call; not where the device goes
    /// before. False: it did not work.
    virtual void flush(std::function<void(bool)> done) = 0;

    /// What its subsystem is named after where nobody names it.
    [[nodiscard]] virtual const std::array<std::uint8_t, 16>& uuid() const = 0;
    [[nodiscard]] virtual const std::string& serial() const = 0;
    /// Whether answers wait for their time: then writes overtake one another by far.
    [[nodiscard]] virtual bool is_timed() const = 0;
    [[nodiscard]] virtual Dialect dialect() const = 0;

  protected:
    NvmeDevice() = default;
    NvmeDevice(const NvmeDevice&) = delete;
    NvmeDevice& operator=(const NvmeDevice&) = delete;
};

}  // namespace gnstor::ssd
