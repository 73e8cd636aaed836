// served_queue.hpp: an NVMe queue as the device that serves it sees it: what was fetched and not yet
// answered.
//
// Invariant: a fetched command holds one Pending until its completion is in the ring: at most depth - 1 of
// them. Owned by the device's thread, but for what NvmeQueue gives to the host.
#pragma once

#include "ssd/drive/admin.hpp"
#include "ssd/queues/nvme_queue.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace gnstor::ssd {

struct ServedQueue {
    ServedQueue(std::uint16_t id, std::uint32_t depth, nvme::ClientId client, Priority priority,
                bool privileged);

    struct Pending {
        nvme::Command command;
    };
    NvmeQueue queue;
    std::vector<Pending> pending;
    std::vector<std::uint32_t> free;   // of `pending`
    std::vector<std::uint32_t> held;   // asynchronous event requests, of `pending`
    std::vector<std::uint64_t> due;    // of `pending`: not answered before; empty where nothing is timed
    ControllerFeatures features;       // of an admin queue
    std::uint16_t controller = 0;      // whose it is; 0: nobody's
    std::shared_ptr<ErrorLog> errors;  // its controller's; null: of an I/O queue without an admin queue
    std::uint32_t index = 0;           // among the queues of its device
    bool closing = false;              // nothing is fetched any more
    [[nodiscard]] std::uint32_t outstanding() const {
        return static_cast<std::uint32_t>(pending.size() - free.size());
    }
    /// Names a fetched command among all of its device.
    [[nodiscard]] std::uint64_t tag(std::uint32_t slot) const { return (std::uint64_t{index} << 32) | slot; }
    /// Puts the completion of a fetched command into the ring; its Pending is free. `result`: DW0, and DW1 in
    /// the upper half.
    void answer(std::uint32_t slot, nvme::Status status, std::uint64_t result) {
        nvme::Completion completion{};
        completion.dw0 = static_cast<std::uint32_t>(result);
        completion.dw1 = static_cast<std::uint32_t>(result >> 32);
        completion.command_id = pending[slot].command.command_id;
        completion.set_result(status);
        free.push_back(slot);
        queue.complete(completion);
    }
};

}  // namespace gnstor::ssd
