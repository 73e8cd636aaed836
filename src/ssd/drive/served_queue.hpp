// served_queue.hpp: the device's side of an NVMe queue: the queue and its commands that are fetched and not
// completed.
//
// Invariant: a fetched command holds one Pending until its completion is in the ring: at most depth - 1 of
// them. Owned by the device's thread, except the host side of NvmeQueue.
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
    std::vector<std::uint32_t> free;   // free indices of `pending`
    std::vector<std::uint32_t> held;   // outstanding asynchronous event requests, indices of `pending`
    std::vector<std::uint64_t> due;    // by index of `pending`: when due, ns; empty without timing
    ControllerFeatures features;       // admin queues only
    std::uint16_t controller = 0;      // id of its controller; 0: none
    std::shared_ptr<ErrorLog> errors;  // its controller's error log; null: the controller has no admin queue
    std::uint32_t index = 0;           // among the queues of its device
    bool closing = false;              // no more commands are fetched
    [[nodiscard]] std::uint32_t outstanding() const {
        return static_cast<std::uint32_t>(pending.size() - free.size());
    }
    /// Identifies a fetched command among all commands of its device.
    [[nodiscard]] std::uint64_t tag(std::uint32_t slot) const { return (std::uint64_t{index} << 32) | slot; }
    /// Posts the completion of a fetched command and frees its Pending. `result`: DW0, and DW1 in the upper
    /// half.
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
