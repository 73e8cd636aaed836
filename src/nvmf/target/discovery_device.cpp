#include "nvmf/target/discovery_device.hpp"

#include "nvmf/protocol/capsule.hpp"
#include "ssd/drive/data_pointer.hpp"

#include <algorithm>

namespace gnstor::nvmf {

using nvme::AdminOpcode;
using nvme::Status;

namespace {
constexpr std::uint32_t kBurst = 8;  // commands of a queue a poll
}  // namespace

DiscoveryDevice::DiscoveryDevice(DiscoveryLog log, Reactor& reactor)
    : commands_(std::move(log)), reactor_(reactor) {
    reactor_.add(*this);
}

Result<ssd::NvmeQueue*> DiscoveryDevice::create_queue(std::uint16_t id, std::uint32_t depth,
                                                      nvme::ClientId client, ssd::Priority priority,
                                                      bool privileged, std::uint16_t /*controller*/) {
    if (id != 0) return error(Errc::kUnsupported, "a discovery controller has no I/O queue {}", id);
    auto queue = std::make_unique<ssd::ServedQueue>(id, depth, client, priority, privileged);
    ssd::NvmeQueue* const made = &queue->queue;
    reactor_.run([&] { queues_.push_back(std::move(queue)); });
    return made;
}

Result<void> DiscoveryDevice::delete_queue(ssd::NvmeQueue* queue) {
    std::size_t gone = 0;
    reactor_.run([&] { gone = std::erase_if(queues_, [&](const auto& q) { return &q->queue == queue; }); });
    if (gone == 0)
        return error(Errc::kNotFound,
                     "cannot delete a queue: the discovery controller does not have this queue");
    return {};
}

std::uint32_t DiscoveryDevice::poll() {
    std::uint32_t work = 0;
    for (const auto& q : queues_) {
        for (std::uint32_t n = 0; n < kBurst && !q->free.empty(); ++n, ++work) {
            const std::uint32_t slot = q->free.back();
            if (!q->queue.fetch(q->pending[slot].command)) break;
            q->free.pop_back();
            take(*q, slot);
        }
    }
    return work;
}

void DiscoveryDevice::take(ssd::ServedQueue& q, std::uint32_t slot) {
    const nvme::Command& command = q.pending[slot].command;
    const Status flags = ssd::check_flags(command);
    if (!nvme::ok(flags)) return q.answer(slot, flags, 0);
    if (is_fabrics(command)) return reset(q, slot);
    if (command.opcode == static_cast<std::uint8_t>(AdminOpcode::kAbort)) return abort(q, slot);
    if (command.opcode == static_cast<std::uint8_t>(AdminOpcode::kAsyncEventRequest)) {
        if (q.held.size() >= ssd::kAsyncEventRequests)
            return q.answer(slot, Status::kAsyncEventLimitExceeded, 0);
        q.held.push_back(slot);
        return;
    }
    std::span<std::byte> data;
    const std::uint32_t bytes = ssd::AdminHandler::data_bytes(command);
    if (bytes > 0) {
        const Status pointer = ssd::data_span(command, bytes, ssd::Length::kExact, data);
        if (!nvme::ok(pointer)) return q.answer(slot, pointer, 0);
    }
    const ssd::AdminReply reply = commands_.handle(command, q.features, data);
    q.answer(slot, reply.status, reply.dw0);
}

/// The Property Set that disables the controller; the target passes on no other.
void DiscoveryDevice::reset(ssd::ServedQueue& q, std::uint32_t slot) {
    for (const std::uint32_t held : q.held) q.answer(held, Status::kSuccess, 0);
    q.held.clear();
    q.features = {};
    q.answer(slot, Status::kSuccess, 0);
}

/// DW0 bit 0: 0 if the command was aborted. Only held event requests can be.
void DiscoveryDevice::abort(ssd::ServedQueue& q, std::uint32_t slot) {
    const nvme::Command& command = q.pending[slot].command;
    const auto command_id = static_cast<std::uint16_t>(command.cdw10 >> 16);
    const auto at = std::ranges::find_if(q.held, [&](std::uint32_t held) {
        return (command.cdw10 & 0xFFFFu) == 0 && q.pending[held].command.command_id == command_id;
    });
    const bool found = at != q.held.end();
    if (found) {
        q.answer(*at, Status::kAborted, 0);
        q.held.erase(at);
    }
    q.answer(slot, Status::kSuccess, found ? 0 : 1);
}

}  // namespace gnstor::nvmf
